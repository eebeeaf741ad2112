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

// MaxRepliedIDs is how many Message-IDs are looked up for one message, and
// MaxReferences how many its References then hold: the first and the last.
const (
	MaxRepliedIDs = 20
	MaxReferences = 20
)

// Source is a room that keeps messages in threads: the outbox what is sent, the
// folders what arrives. domain is 0, or bounds it to messages of one domain.
type Source interface {
	// Lookup finds those of at most MaxRepliedIDs Message-IDs that the account's
	// messages have; of several messages with the same one, the first.
	Lookup(ctx context.Context, account, domain db.ID, messageIDs []string) (map[string]Match, error)
	// Chain returns the first and the last MaxReferences messages of a thread,
	// in order, of those whose id is position at most.
	Chain(ctx context.Context, account, domain db.ID, thread string, upTo db.ID) ([]Message, error)
}

// Match is a message that is answered.
type Match struct {
	ID     db.ID
	Thread string
}

// Message is a message of a thread.
type Message struct {
	ID        db.ID
	MessageID string // "" if it has none
}

// Threads finds threads, and begins new ones.
type Threads struct {
	NewID   func() db.ID
	Sources []Source
}

// LookupKey is what a Message-ID is looked up by. It is never 0, and nobody can find
// another Message-ID with the same one.
func LookupKey(messageID string) int64 {
	sum := sha256.Sum256([]byte(strings.ToValidUTF8(messageID, "\uFFFD")))
	return max(1, int64(binary.BigEndian.Uint64(sum[:])>>1))
}

// RepliedIDs returns the Message-IDs of what a message answers, with their angle
// brackets, in the order in which its thread is looked for: In-Reply-To, then
// References from right to left; at most MaxRepliedIDs.
func RepliedIDs(h message.Header) []string {
	ids := message.ParseMessageIDs(h.Text("In-Reply-To"))
	for _, id := range slices.Backward(message.ParseMessageIDs(h.Text("References"))) {
		ids = append(ids, id)
	}
	return uniqueIDs(ids, MaxRepliedIDs)
}

// uniqueIDs leaves out what is repeated, and what is beyond the first most.
func uniqueIDs(ids []string, most int) []string {
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
	known, err := t.findKnown(ctx, account, domain, answers)
	if err == nil && known.Thread == "" {
		known.Thread = t.NewID().String()
	}
	return known.Thread, err
}

// findKnown finds the first of some Message-IDs that is known; zero if none is.
func (t *Threads) findKnown(ctx context.Context, account, domain db.ID, ids []string) (Match, error) {
	ids = ids[:min(len(ids), MaxRepliedIDs)]
	var found Match
	for _, s := range t.Sources {
		if len(ids) == 0 {
			break
		}
		all, err := s.Lookup(ctx, account, domain, ids)
		if err != nil {
			return Match{}, err
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

// Position is where a message that is being sent belongs, as its header says it.
type Position struct {
	Thread     string
	InReplyTo  string   // "" for nothing
	References []string // at most MaxReferences
}

// Assigner places the messages of one request, in their order: the later ones may
// answer the earlier ones. domain, unless it is 0, is the only one whose
// messages they may answer.
type Assigner struct {
	threads         *Threads
	account, domain db.ID
	chains          map[string][]Message
}

// NewAssigner begins the placing of some messages of an account.
func (t *Threads) NewAssigner(account, domain db.ID) *Assigner {
	return &Assigner{threads: t, account: account, domain: domain, chains: map[string][]Message{}}
}

// Assign places a message: thread is the one that its sender chose, inReplyTo the
// Message-ID that it answers; either may be "". A message that is to be in a
// thread answers the newest of that. What answers an unknown message, or
// nothing, begins a thread.
func (p *Assigner) Assign(ctx context.Context, own Message, thread, inReplyTo string) (Position, error) {
	place := Position{Thread: thread, InReplyTo: inReplyTo}
	var chain []Message
	var err error
	switch {
	case inReplyTo != "":
		chain, err = p.findParent(ctx, &place)
	case thread != "":
		chain, err = p.chain(ctx, thread)
	}
	if err != nil {
		return Position{}, err
	}
	if place.Thread == "" {
		place.Thread = p.threads.NewID().String()
	}
	place.References = buildReferences(chain, inReplyTo)
	if n := len(place.References); n > 0 {
		place.InReplyTo = place.References[n-1]
	}
	if thread != "" || p.chains[place.Thread] != nil {
		p.chains[place.Thread] = append(p.chains[place.Thread], own)
	}
	return place, nil
}

// findParent finds the thread of the message that is answered, unless another one
// was chosen, and what came before it there.
func (p *Assigner) findParent(ctx context.Context, place *Position) ([]Message, error) {
	parent, err := p.threads.findKnown(ctx, p.account, p.domain, []string{place.InReplyTo})
	if err != nil || parent.Thread == "" || place.Thread != "" && place.Thread != parent.Thread {
		return nil, err
	}
	place.Thread = parent.Thread
	return p.threads.chain(ctx, p.account, p.domain, parent.Thread, parent.ID)
}

// chain is what is known of a thread, the messages of this request included.
func (p *Assigner) chain(ctx context.Context, thread string) ([]Message, error) {
	if chain, ok := p.chains[thread]; ok {
		return chain, nil
	}
	chain, err := p.threads.chain(ctx, p.account, p.domain, thread, math.MaxInt64)
	p.chains[thread] = chain
	return chain, err
}

func (t *Threads) chain(ctx context.Context, account, domain db.ID, thread string, upTo db.ID) ([]Message, error) {
	var chain []Message
	for _, s := range t.Sources {
		links, err := s.Chain(ctx, account, domain, thread, upTo)
		if err != nil {
			return nil, err
		}
		chain = append(chain, links...)
	}
	slices.SortFunc(chain, func(a, b Message) int { return cmp.Compare(a.ID, b.ID) })
	return chain, nil
}

// buildReferences makes the References field of what answers the last message of a
// chain, or parent if that is given: the first and the last ones, parent last.
// What others wrote so that it can't be repeated in every header is left out.
func buildReferences(chain []Message, parent string) []string {
	var ids []string
	for _, l := range chain {
		if message.IsCitable(l.MessageID) && l.MessageID != parent && !slices.Contains(ids, l.MessageID) {
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
