// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"context"
	"log/slog"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
)

// ownThreshold is from how many points on our own filter calls a message spam.
// It refuses nothing.
const ownThreshold = 5

// Own is our own filter.
type Own struct {
	Bayes *Bayes // nil: nothing learns
	Lists *Lists // of bad hosts; nil for none
	Log   *slog.Logger
}

// Judge weighs a message for each of its recipients. Trouble means that some
// evidence is missing.
func (w *Own) Judge(ctx context.Context, m *Mail) []digest.Opinion {
	common := results(&m.Verdicts)
	if w.Lists != nil {
		common = append(common, w.Lists.Look(ctx, m.Client)...)
	}
	words := sync.OnceValue(func() []uint64 {
		all, err := Tokens(ctx, m)
		if err != nil {
			w.Log.Warn("a message could not be read by the spam filter", "message", m.ID, "error", err)
		}
		return all
	})
	known := map[db.ID]digest.Opinion{}
	all := make([]digest.Opinion, len(m.To))
	for n, account := range m.Accounts {
		o, ok := known[account]
		if !ok {
			o = digest.Opinion{Threshold: ownThreshold, Reasons: append([]digest.Reason(nil), common...)}
			if w.Bayes != nil {
				r, err := w.Bayes.Judge(ctx, account, words)
				if err != nil {
					w.Log.Warn("what an account taught the spam filter could not be read", "account", account, "error", err)
				}
				o.Reasons = append(o.Reasons, r...)
			}
			for _, r := range o.Reasons {
				o.Score += r.Points
			}
			sortReasons(o.Reasons)
			if o.Score >= ownThreshold {
				o.Action = digest.Junk
			}
			known[account] = o
		}
		all[n] = o
	}
	return all
}

// results weighs who sent it. Much honest mail has no good results, and spam
// often has: by themselves they never make a message spam.
func results(v *digest.Verdicts) (all []digest.Reason) {
	add := func(name string, points float64) {
		all = append(all, digest.Reason{Name: name, Points: points})
	}
	switch v.SPF {
	case "fail":
		add("SPF_FAIL", 1.5)
	case "softfail":
		add("SPF_SOFTFAIL", 0.5)
	}
	if v.DKIM == "fail" {
		add("DKIM_FAIL", 0.5)
	}
	switch v.DMARC {
	case "pass":
		add("DMARC_PASS", -0.5)
	case "fail":
		add("DMARC_FAIL", 1.5)
	case "none", "":
		if v.SPF != "pass" && v.DKIM != "pass" {
			add("NOBODY_SPEAKS_FOR_IT", 0.5)
		}
	}
	return all
}
