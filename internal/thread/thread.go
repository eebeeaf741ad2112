// SPDX-License-Identifier: Apache-2.0

// Package thread says which messages of an account answer each other: by
// In-Reply-To and References, against the Message-IDs that the account has sent
// and received, and never by subject. The messages themselves are kept by the
// rooms that own them; here are the rules.
package thread

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// MaxAnswers is how many Message-IDs are looked up for one message, and
// MaxReferences how many its References then hold: the first and the last.
const (
	MaxAnswers    = 20
	MaxReferences = 20
)

// Source is a room that keeps messages in threads: the outbox what is sent, the
// folders what arrives. domain is 0, or bounds it to messages of one domain.
type Source interface {
	// Known finds those of at most MaxAnswers Message-IDs that the account's
	// messages have; of several messages with the same one, the first.
	Known(ctx context.Context, account, domain db.ID, messageIDs []string) (map[string]Known, error)
	// Chain returns the first and the last MaxReferences messages of a thread,
	// in order, of those whose id is upTo at most.
	Chain(ctx context.Context, account, domain db.ID, thread string, upTo db.ID) ([]Link, error)
}

// Known is a message that is answered.
type Known struct {
	ID     db.ID
	Thread string
}

// Link is a message of a thread.
type Link struct {
	ID        db.ID
	MessageID string // "" if it has none
}

// Threads finds threads, and begins new ones.
type Threads struct {
	NewID   func() db.ID
	Sources []Source
}

// Key is what a Message-ID is looked up by. It is never 0, and nobody can find
// another Message-ID with the same one.
func Key(messageID string) int64 {
	sum := sha256.Sum256([]byte(strings.ToValidUTF8(messageID, "\uFFFD")))
	return max(1, int64(binary.BigEndian.Uint64(sum[:])>>1))
}

// Answers returns the Message-IDs of what a message answers, with their angle
// brackets, in the order in which its thread is looked for: In-Reply-To, then
// References from right to left; at most MaxAnswers.
func Answers(h message.Header) []string {
	ids := message.ParseMessageIDs(h.Text("In-Reply-To"))
	for _, id := range slices.Backward(message.ParseMessageIDs(h.Text("References"))) {
		ids = append(ids, id)
	}
	return once(ids, MaxAnswers)
}

// once leaves out what is repeated, and what is beyond the first most.
func once(ids []string, most int) []string {
	var kept []string
	for _, id := range ids {
		if len(kept) == most {
			break
		}
		if !slices.Contains(kept, id) {
			kept = append(kept, id)
		}
	}
	return kept
}

// Find returns the thread of an account that a message belongs to which answers
// these Message-IDs: that of the first one which is known, else a new one.
// domain is 0, or the only one whose messages may be answered.
func (t *Threads) Find(ctx context.Context, account, domain db.ID, answers []string) (string, error) {
	known, err := t.known(ctx, account, domain, answers)
	if err == nil && known.Thread == "" {
		known.Thread = t.NewID().String()
	}
	return known.Thread, err
}

// known finds the first of some Message-IDs that is known; zero if none is.
func (t *Threads) known(ctx context.Context, account, domain db.ID, ids []string) (Known, error) {
	ids = ids[:min(len(ids), MaxAnswers)]
	var found Known
	for _, s := range t.Sources {
		if len(ids) == 0 {
			break
		}
		all, err := s.Known(ctx, account, domain, ids)
		if err != nil {
			return Known{}, err
		}
		for i, id := range ids {
			if k, ok := all[id]; ok && k.Thread != "" {
				found, ids = k, ids[:i] // only a better one is still of interest
				break
			}
		}
	}
	return found, nil
}

// Place is where a message that is being sent belongs, as its header says it.
type Place struct {
	Thread     string
	InReplyTo  string   // "" for nothing
	References []string // at most MaxReferences
}

// Placer places the messages of one request, in their order: the later ones may
// answer the earlier ones. domain, unless it is 0, is the only one whose
// messages they may answer.
type Placer struct {
	threads         *Threads
	account, domain db.ID
	chains          map[string][]Link
}

// Placer begins the placing of some messages of an account.
func (t *Threads) Placer(account, domain db.ID) *Placer {
	return &Placer{threads: t, account: account, domain: domain, chains: map[string][]Link{}}
}

// Place places a message: thread is the one that its sender chose, inReplyTo the
// Message-ID that it answers; either may be "". A message that is to be in a
// thread answers the newest of that. What answers an unknown message, or
// nothing, begins a thread.
func (p *Placer) Place(ctx context.Context, own Link, thread, inReplyTo string) (Place, error) {
	place := Place{Thread: thread, InReplyTo: inReplyTo}
	var chain []Link
	var err error
	switch {
	case inReplyTo != "":
		chain, err = p.answer(ctx, &place)
	case thread != "":
		chain, err = p.chain(ctx, thread)
	}
	if err != nil {
		return Place{}, err
	}
	if place.Thread == "" {
		place.Thread = p.threads.NewID().String()
	}
	place.References = references(chain, inReplyTo)
	if n := len(place.References); n > 0 {
		place.InReplyTo = place.References[n-1]
	}
	if thread != "" || p.chains[place.Thread] != nil {
		p.chains[place.Thread] = append(p.chains[place.Thread], own)
	}
	return place, nil
}

// answer finds the thread of the message that is answered, unless another one
// was chosen, and what came before it there.
func (p *Placer) answer(ctx context.Context, place *Place) ([]Link, error) {
	parent, err := p.threads.known(ctx, p.account, p.domain, []string{place.InReplyTo})
	if err != nil || parent.Thread == "" || place.Thread != "" && place.Thread != parent.Thread {
		return nil, err
	}
	place.Thread = parent.Thread
	return p.threads.chain(ctx, p.account, p.domain, parent.Thread, parent.ID)
}

// chain is what is known of a thread, the messages of this request included.
func (p *Placer) chain(ctx context.Context, thread string) ([]Link, error) {
	if chain, ok := p.chains[thread]; ok {
		return chain, nil
	}
	chain, err := p.threads.chain(ctx, p.account, p.domain, thread, math.MaxInt64)
	p.chains[thread] = chain
	return chain, err
}

func (t *Threads) chain(ctx context.Context, account, domain db.ID, thread string, upTo db.ID) ([]Link, error) {
	var chain []Link
	for _, s := range t.Sources {
		links, err := s.Chain(ctx, account, domain, thread, upTo)
		if err != nil {
			return nil, err
		}
		chain = append(chain, links...)
	}
	slices.SortFunc(chain, func(a, b Link) int { return cmp.Compare(a.ID, b.ID) })
	return chain, nil
}

// references makes the References field of what answers the last message of a
// chain, or parent if that is given: the first and the last ones, parent last.
// What others wrote so that it can't be repeated in every header is left out.
func references(chain []Link, parent string) []string {
	var ids []string
	for _, l := range chain {
		if message.Citable(l.MessageID) && l.MessageID != parent && !slices.Contains(ids, l.MessageID) {
			ids = append(ids, l.MessageID)
		}
	}
	if parent != "" {
		ids = append(ids, parent)
	}
	if over := len(ids) - MaxReferences; over > 0 {
		ids = slices.Delete(ids, 1, 1+over)
	}
	return ids
}
