// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
)

// TextKind says where in a message a text stands. The kinds below InHeader are
// the fields of the ENVELOPE (RFC 3501 §7.4.2), by their place in it, as it has
// them and as the header has each of them.
type TextKind uint8

// The kinds that are no field of the ENVELOPE.
const (
	InHeaders TextKind = 10 // any field of the header, as "Name: text"
	InBodies  TextKind = 11 // what InBody looks through
)

// Sought is a text that messages are narrowed by: one of the kinds has it.
type Sought struct {
	Kinds []TextKind
	Text  []byte // folded as Indexable.Texts folds; at least 3 bytes
}

// minSought is the length of the shortest needle that an index can tell of, and
// fewOpen is how many messages are read sooner than the index is asked.
const (
	minSought = 3
	fewOpen   = 32
)

// Narrowed is what an index tells of messages. Those that it does not name
// must be looked at.
type Narrowed struct {
	Messages []db.ID    // rising
	May      [][]uint64 // by what is sought: a bit for each of Messages
}

// find returns the place of a message, or -1.
func (n *Narrowed) find(id db.ID) int {
	if n != nil {
		if at, found := slices.BinarySearch(n.Messages, id); found {
			return at
		}
	}
	return -1
}

// lacks reports whether the message there surely hasn't what is sought.
func (n *Narrowed) lacks(sought, at int) bool {
	return n != nil && sought >= 0 && at >= 0 && n.May[sought][at/64]&(1<<(at%64)) == 0
}

// soughtBy collects what the criteria look for and an index can tell of.
func (c *criterion) soughtBy(all []Sought) []Sought {
	for i := range c.of {
		all = c.of[i].soughtBy(all)
	}
	if s := c.seeks(); s != nil {
		c.sought = len(all)
		all = append(all, *s)
	}
	return all
}

// seeks returns what an index can tell of about the criterion itself, or nil.
func (c *criterion) seeks() *Sought {
	switch {
	case len(c.needle) < minSought:
		return nil
	case c.Test == InBody:
		return &Sought{[]TextKind{InBodies}, c.needle}
	case c.Test == InText:
		return &Sought{[]TextKind{InHeaders, InBodies}, c.needle}
	case c.place >= 0:
		return &Sought{[]TextKind{TextKind(c.place)}, c.needle}
	}
	return &Sought{[]TextKind{InHeaders}, c.needle}
}

// narrow asks the index about the messages that the view leaves open, and
// returns those that it leaves open too. What it finds out joins the hits.
func (v *View) narrow(ctx context.Context, c *criterion, open []uint32, hits *[]uint32) (*Narrowed, []uint32, error) {
	if v.store.Narrow == nil || len(open) < fewOpen {
		return nil, open, nil
	}
	sought := c.soughtBy(nil)
	if len(sought) == 0 {
		return nil, open, nil
	}
	ids, err := v.messagesOf(ctx, open)
	if err != nil {
		return nil, nil, err
	}
	among := slices.DeleteFunc(slices.Clone(ids), func(id db.ID) bool { return id == 0 })
	slices.Sort(among)
	index, err := v.store.Narrow(ctx, v.row.Mailbox, among, sought)
	if err != nil {
		return nil, open, v.store.without(ctx, v.row.Mailbox, err)
	}
	left := open[:0]
	for i, uid := range open {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		e, _ := v.snap.find(uid)
		switch c.judge(&candidate{entry: e, recent: v.isRecent(uid), index: index, at: index.find(ids[i])}) {
		case yes:
			*hits = append(*hits, uid)
		case maybe:
			left = append(left, uid)
		}
	}
	return index, left, nil
}

// messageIDs are which messages the UIDs of a folder stand for. That never
// changes, so it is read once, by the first search that asks an index.
type messageIDs struct {
	mu   sync.Mutex
	uids []uint32 // rising
	ids  []db.ID
}

// forget gives the memory back, when no session has the folder open.
func (m *messageIDs) forget() {
	m.mu.Lock()
	m.uids, m.ids = nil, nil
	m.mu.Unlock()
}

// idsPage is how many are read at once: a read transaction must be short.
const idsPage = 5_000

var readIDs = db.SQL(`SELECT uid, message FROM folder_message WHERE folder = $1 AND uid > $2 ORDER BY uid LIMIT $3`)

// messagesOf returns the messages of UIDs, which must be rising; 0 for one that
// was expunged meanwhile.
func (v *View) messagesOf(ctx context.Context, uids []uint32) ([]db.ID, error) {
	m := &v.shared.messages
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.uids) > 2*v.snap.n+idsPage { // most are gone
		m.uids, m.ids = nil, nil
	}
	last := uids[len(uids)-1]
	for len(m.uids) == 0 || m.uids[len(m.uids)-1] < last {
		from, had := uint32(0), len(m.uids)
		if had > 0 {
			from = m.uids[had-1]
		}
		err := v.store.DB.Each(ctx, readIDs.With(v.shared.id, from, idsPage), func(r db.Row) error {
			var uid uint32
			var id db.ID
			if err := r.Scan(&uid, &id); err != nil {
				return err
			}
			m.uids, m.ids = append(m.uids, uid), append(m.ids, id)
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(m.uids) == had {
			break
		}
	}
	ids := make([]db.ID, len(uids))
	at := 0
	for i, uid := range uids {
		for at < len(m.uids) && m.uids[at] < uid {
			at++
		}
		if at < len(m.uids) && m.uids[at] == uid {
			ids[i] = m.ids[at]
		}
	}
	return ids, nil
}

// Indexable is a message that an index takes in.
type Indexable struct {
	ID        db.ID
	Mailbox   db.ID
	blob      db.ID
	envelope  []byte
	structure []byte
}

var (
	toIndex = db.SQL(`SELECT id, mailbox, blob, envelope, structure FROM message WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)
	isThere = db.SQL(`SELECT id FROM message WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
)

// ToIndex returns at most limit messages with ids between after and before,
// both not included, in the order of their ids. Messages may be committed
// later that have lower ids.
func (s *Store) ToIndex(ctx context.Context, after, before db.ID, limit int) ([]Indexable, error) {
	return db.All(ctx, s.DB, toIndex.With(after, before, limit), func(r db.Row) (m Indexable, err error) {
		return m, r.Scan(&m.ID, &m.Mailbox, &m.blob, &m.envelope, &m.structure)
	})
}

// filingRest is how many times longer than it works indexing rests at most, beyond
// what it does anyway: it takes a twentieth of a processor then, not a quarter.
const filingRest = 16

// Rest says how long indexing is to rest after a piece that took so long: the more,
// the busier filing is; see signal.Pace.
func (s *Store) Rest(took time.Duration) time.Duration { return s.pace.Rest(s.Now(), took, filingRest) }

// There returns which of the messages have not been deleted.
func (s *Store) There(ctx context.Context, ids []db.ID) (map[db.ID]bool, error) {
	there := map[db.ID]bool{}
	for some := range slices.Chunk(ids, 16) {
		args := make([]any, 16)
		for i := range args {
			args[i] = some[min(i, len(some)-1)]
		}
		err := s.DB.Each(ctx, isThere.With(args...), func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			there[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return there, nil
}

// overlap is by how many bytes the pieces of a text overlap.
const overlap = 3

// ErrGone is returned of a message that is deleted.
var ErrGone = errors.New("the message is gone")

// Texts calls f with the texts of a message in which Search would look, folded
// as it compares them. A long one comes in pieces that overlap by 3 bytes, so
// that each sequence of 4 bytes is in one piece. complete is false if there
// was more of InBodies than limit bytes.
func (s *Store) Texts(ctx context.Context, m Indexable, limit int, f func(kind TextKind, text []byte)) (complete bool, err error) {
	b, err := s.Blobs.Load(ctx, m.blob)
	if errors.Is(err, blob.ErrNotExist) { // deleted together with it, or lost
		if there, failed := s.There(ctx, []db.ID{m.ID}); failed == nil && !there[m.ID] {
			return false, ErrGone
		}
	}
	if err != nil {
		return false, err
	}
	r, err := b.Open(ctx)
	if err != nil {
		return false, err
	}
	defer r.Close() //nolint:errcheck // nothing was written
	t, err := newTexts(ctx, r, m.structure, make([]byte, min(textBuffer, max(b.Size, 1<<10))))
	if err != nil {
		return false, fmt.Errorf("scanning message %s: %w", m.ID, err)
	}
	complete = t.each(m.envelope, limit, f)
	return complete, t.err
}

// each calls f as Texts does.
func (t *texts) each(envelope []byte, limit int, f func(kind TextKind, text []byte)) (complete bool) {
	for place := range int(InHeaders) {
		f(TextKind(place), []byte(fold(envelopeText(envelope, place))))
	}
	for field := range t.header(&t.ix.Parts[0]).Fields() {
		f(InHeaders, []byte(fold(fieldText(field))))
		if place := envelopePlace(strings.ToLower(string(field.Name))); place >= 0 {
			f(TextKind(place), []byte(fold(field.Decoded())))
		}
	}
	return t.bodies(limit, f)
}

// bodies calls f with what inBody looks through, up to limit bytes.
func (t *texts) bodies(limit int, f func(kind TextKind, text []byte)) (complete bool) {
	give := func(text []byte) (more bool) {
		limit -= len(text)
		if limit >= 0 {
			f(InBodies, text)
		}
		return limit >= 0
	}
	for i := range t.ix.Parts {
		p := &t.ix.Parts[i]
		if t.isWithin(p) {
			for line := range t.headerTexts(p) {
				if !give([]byte(fold(line))) {
					return false
				}
			}
		}
		if isText(p) {
			t.fail(foldedWindows(t.text(p), overlap, t.buf, give))
			if limit < 0 {
				return false
			}
		}
	}
	return true
}
