// SPDX-License-Identifier: Apache-2.0

// Package thread determines which messages of an account belong together. It matches In-Reply-To
// and References with the Message-IDs that the account has sent and received, never subjects. It
// contains only the rules; the packages outbound and folder store the messages.
package thread

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// MaxRepliedIDs is how many Message-IDs are looked up for one message. MaxReferences is the maximum
// number in its References: the first and the last ones.
const (
	MaxRepliedIDs = 20
	MaxReferences = 20
)

// Source finds stored messages by thread: the outbox has sent mail, the folders have received mail.
// domain is 0, or restricts the result to messages of one domain.
type Source interface {
	// Lookup returns the account's messages for at most MaxRepliedIDs Message-IDs. If several
	// messages have the same one, it returns the first.
	Lookup(ctx context.Context, account, domain db.ID, messageIDs []string) (map[string]Match, error)
	// Chain returns the first and the last MaxReferences messages of a thread, in order, of those
	// whose id is at most upTo.
	Chain(ctx context.Context, account, domain db.ID, thread string, upTo db.ID) ([]Message, error)
}

// Match is a message that was found by its Message-ID.
type Match struct {
	ID     db.ID
	Thread string
}

// Message is a message of a thread.
type Message struct {
	ID        db.ID
	MessageID string // "" if it has none
}

// Threads finds threads, and starts new ones.
type Threads struct {
	NewID   func() db.ID
	Sources []Source
}

// MaxIDLength is the maximum length of a thread's id, in characters.
const MaxIDLength = 255

// ValidID reports whether a text can be a thread's id: 1 to MaxIDLength printable characters.
func ValidID(id string) bool {
	return id != "" && utf8.RuneCountInString(id) <= MaxIDLength && utf8.ValidString(id) && !strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) })
}

// LookupKey returns the key by which a Message-ID is looked up. It is never 0, and finding another
// Message-ID with the same key is infeasible.
func LookupKey(messageID string) int64 {
	sum := sha256.Sum256([]byte(strings.ToValidUTF8(messageID, "\uFFFD")))
	return max(1, int64(binary.BigEndian.Uint64(sum[:])>>1))
}

// RepliedIDs returns the Message-IDs that a message answers, with angle brackets, in look-up order:
// In-Reply-To, then References from right to left; at most MaxRepliedIDs.
func RepliedIDs(h message.Header) []string {
	ids := message.ParseMessageIDs(h.Unfolded("In-Reply-To"))
	for _, id := range slices.Backward(message.ParseMessageIDs(h.Unfolded("References"))) {
		ids = append(ids, id)
	}
	return uniqueIDs(ids, MaxRepliedIDs)
}

// uniqueIDs removes duplicates and returns at most the first most ids.
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

// FindOrStart returns the thread of a message that answers these Message-IDs: that of the first
// known one, else a new thread. If domain isn't 0, only messages of that domain count.
func (t *Threads) FindOrStart(ctx context.Context, account, domain db.ID, answers []string) (string, error) {
	known, err := t.findKnown(ctx, account, domain, answers)
	if err == nil && known.Thread == "" {
		known.Thread = t.NewID().String()
	}
	return known.Thread, err
}

// findKnown returns the first of the Message-IDs that is known; zero if none is.
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
				found, ids = k, ids[:i] // from now on only an earlier id matters
				break
			}
		}
	}
	return found, nil
}

// Position is the place of a message in its thread, as its header states it.
type Position struct {
	Thread     string
	InReplyTo  string   // "" for none
	References []string // at most MaxReferences
}

// Assigner assigns the messages of one request to threads, in order: later ones may answer earlier
// ones. If domain isn't 0, they may answer only messages of that domain.
type Assigner struct {
	threads         *Threads
	account, domain db.ID
	chains          map[string][]Message
}

// NewAssigner returns an Assigner for messages of an account.
func (t *Threads) NewAssigner(account, domain db.ID) *Assigner {
	return &Assigner{threads: t, account: account, domain: domain, chains: map[string][]Message{}}
}

// Assign assigns a message to a thread. thread is the one that the sender chose, inReplyTo the
// Message-ID that it answers; either may be "". A message with a chosen thread answers the newest
// message of it. A message that answers nothing, or an unknown message, starts a thread.
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

// findParent finds the thread of the message that is answered, unless another one was chosen, and
// the messages before it there.
func (p *Assigner) findParent(ctx context.Context, place *Position) ([]Message, error) {
	parent, err := p.threads.findKnown(ctx, p.account, p.domain, []string{place.InReplyTo})
	if err != nil || parent.Thread == "" || place.Thread != "" && place.Thread != parent.Thread {
		return nil, err
	}
	place.Thread = parent.Thread
	return p.threads.chain(ctx, p.account, p.domain, parent.Thread, parent.ID)
}

// chain returns the known messages of a thread, including those of this request.
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

// buildReferences returns the References of a message that answers the last message of a chain, or
// parent if given: the first and the last ones, parent last. It omits malformed Message-IDs of
// received messages, which can't be repeated in every header.
func buildReferences(chain []Message, parent string) []string {
	var ids []string
	for _, l := range chain {
		if message.IsUsableMessageID(l.MessageID) && l.MessageID != parent && !slices.Contains(ids, l.MessageID) {
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
