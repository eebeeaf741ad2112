// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/summary"
)

const (
	// minTrained is the number of spam and of ham messages that an account must have trained before
	// the filter gives it a score.
	minTrained = 10
	// maxEvidence is the number of tokens that count: the most significant ones.
	maxEvidence = 150
	// tokensPerQuery is the number of tokens per query.
	tokensPerQuery = 100
)

// Bayes is a Bayesian spam filter. Each account trains its own.
type Bayes struct {
	DB        *db.DB
	Node      *lease.Node
	Folders   *folder.Folders
	Now       func() time.Time
	Log       *slog.Logger
	wake      chan struct{} // set by NewBayes
	untrained *untrainedCache
}

// NewBayes returns b with its internal fields set.
func NewBayes(b Bayes) *Bayes {
	b.wake = make(chan struct{}, 1)
	b.untrained = &untrainedCache{until: map[db.ID]time.Time{}}
	return &b
}

var (
	trainingQuery    = db.SQL(`SELECT spam, ham FROM spam_training_total WHERE account = $1`)
	tokenCountsQuery = db.SQL(`SELECT spam, ham FROM spam_token WHERE account = $1 AND token IN (
			$2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70, $71, $72, $73, $74, $75, $76, $77, $78, $79, $80, $81, $82, $83, $84, $85, $86, $87, $88, $89, $90, $91, $92, $93, $94, $95, $96, $97, $98, $99, $100, $101)`)
)

// Score returns the reasons from an account's training. It returns none if the account has trained
// too little, and then it doesn't call words. words must return each token once.
func (b *Bayes) Score(ctx context.Context, account db.ID, words func() []uint64) ([]summary.SpamReason, error) {
	now := b.Now()
	is, lessons := b.untrained.isUntrained(account, now)
	if is {
		return nil, nil
	}
	var spam, ham float64
	err := b.DB.One(ctx, trainingQuery.With(account), &spam, &ham)
	if errors.Is(err, db.ErrNoRow) || err == nil && (spam < minTrained || ham < minTrained) {
		b.untrained.add(account, now, lessons)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	all := words()
	if len(all) == 0 {
		return nil, nil
	}
	var known []float64
	for some := range slices.Chunk(all, tokensPerQuery) {
		args := []any{account}
		for n := range tokensPerQuery {
			args = append(args, int64(some[min(n, len(some)-1)]))
		}
		err := b.DB.Each(ctx, tokenCountsQuery.With(args...), func(r db.Row) error {
			var inSpam, inHam float64
			err := r.Scan(&inSpam, &inHam)
			known = append(known, wordProbability(max(inSpam, 0)/spam, max(inHam, 0)/ham, max(inSpam, 0)+max(inHam, 0)))
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return bayesReasons(combineProbabilities(known)), nil
}

// wordProbability returns the probability that a message with a token is spam, from the shares of
// spam and ham that contain it. It uses Robinson's f(w), which gives more weight to tokens seen in
// more messages.
func wordProbability(inSpam, inHam, seen float64) float64 {
	const strength, unknown = 0.45, 0.5
	if inSpam+inHam == 0 {
		return unknown
	}
	return (strength*unknown + seen*inSpam/(inSpam+inHam)) / (strength + seen)
}

// combineProbabilities combines the tokens' probabilities by Fisher's method: it compares how
// unlikely the evidence for ham and for spam would be by chance.
func combineProbabilities(known []float64) float64 {
	known = slices.DeleteFunc(known, func(p float64) bool { return math.Abs(p-0.5) < 0.1 })
	slices.SortFunc(known, func(p, q float64) int { return cmp.Compare(math.Abs(q-0.5), math.Abs(p-0.5)) })
	known = known[:min(len(known), maxEvidence)]
	if len(known) == 0 {
		return 0.5
	}
	var forSpam, forHam float64
	for _, p := range known {
		forSpam += math.Log(1 - p)
		forHam += math.Log(p)
	}
	return (1 + chi2(-2*forHam, 2*len(known)) - chi2(-2*forSpam, 2*len(known))) / 2
}

// chi2 returns the probability that a chi-square variable with an even number of degrees of freedom
// is at least x.
func chi2(x float64, degrees int) float64 {
	m := x / 2
	term := math.Exp(-m)
	sum := term
	for i := 1; i < degrees/2; i++ {
		term *= m / float64(i)
		sum += term
	}
	return min(sum, 1)
}

// bayesReasons returns the points for a probability. Near certainty alone makes a message spam.
func bayesReasons(p float64) []summary.SpamReason {
	for _, step := range []struct {
		from   float64
		name   string
		points float64
	}{{0.99, "BAYES_99", 5.5}, {0.95, "BAYES_95", 4}, {0.8, "BAYES_80", 2}} {
		if p >= step.from {
			return []summary.SpamReason{{Name: step.name, Points: step.points}}
		}
	}
	switch {
	case p <= 0.01:
		return []summary.SpamReason{{Name: "BAYES_01", Points: -2.5}}
	case p <= 0.2:
		return []summary.SpamReason{{Name: "BAYES_20", Points: -1}}
	}
	return []summary.SpamReason{{Name: "BAYES_50"}}
}
