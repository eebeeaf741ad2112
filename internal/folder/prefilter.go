// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// TextKind is where in a message a text is: in a field of the ENVELOPE, with its text from the
// ENVELOPE and from each such field of the header, or in HeaderText or BodyText.
type TextKind = message.EnvelopeField

// The kinds that are not ENVELOPE fields.
const (
	HeaderText = message.EnvelopeFieldCount // any field of the header, as "Name: text"
	BodyText   = HeaderText + 1             // what InBody searches
)

// IndexTerm is a text to look up in the index. A message matches if the text is in one of the
// kinds.
type IndexTerm struct {
	Kinds []TextKind
	Text  []byte // folded as EachText folds; at least 3 bytes
}

// minTermBytes is the length of the shortest needle that an index supports, and minPrefilter is the
// number of messages below which reading them is cheaper than asking the index.
const (
	minTermBytes = 3
	minPrefilter = 32
)

// PrefilterResult is an index's result about some messages. Messages that it does not name must be
// read.
type PrefilterResult struct {
	Messages   []db.ID    // ascending
	MayContain [][]uint64 // for each term: a bit for each of Messages
}

// position returns the index of a message in Messages, or -1.
func (n *PrefilterResult) position(id db.ID) int {
	if n != nil {
		if at, found := slices.BinarySearch(n.Messages, id); found {
			return at
		}
	}
	return -1
}

// lacks reports whether the message at a position certainly lacks a term.
func (n *PrefilterResult) lacks(sought, at int) bool {
	return n != nil && sought >= 0 && at >= 0 && n.MayContain[sought][at/64]&(1<<(at%64)) == 0
}

// collectTerms appends the terms of the criteria that an index supports.
func (c *compiledCriterion) collectTerms(all []IndexTerm) []IndexTerm {
	for i := range c.children {
		all = c.children[i].collectTerms(all)
	}
	if s := c.term(); s != nil {
		c.termIndex = len(all)
		all = append(all, *s)
	}
	return all
}

// term returns the term of the criterion itself that an index supports, or nil.
func (c *compiledCriterion) term() *IndexTerm {
	switch {
	case len(c.needle) < minTermBytes:
		return nil
	case c.Test == InBody:
		return &IndexTerm{[]TextKind{BodyText}, c.needle}
	case c.Test == InText:
		return &IndexTerm{[]TextKind{HeaderText, BodyText}, c.needle}
	case c.field >= 0:
		return &IndexTerm{[]TextKind{c.field}, c.needle}
	}
	return &IndexTerm{[]TextKind{HeaderText}, c.needle}
}

// prefilter asks the index about the messages that the view leaves undecided, and returns those
// that remain undecided. It adds the decided matches to hits.
func (v *View) prefilter(ctx context.Context, c *compiledCriterion, open []uint32, hits *[]uint32) (*PrefilterResult, []uint32, error) {
	if v.store.Index == nil || len(open) < minPrefilter {
		return nil, open, nil
	}
	sought := c.collectTerms(nil)
	if len(sought) == 0 {
		return nil, open, nil
	}
	ids, err := v.messageIDs(ctx, open)
	if err != nil {
		return nil, nil, err
	}
	among := slices.DeleteFunc(slices.Clone(ids), func(id db.ID) bool { return id == 0 })
	slices.Sort(among)
	index, err := v.store.Index.Prefilter(ctx, v.row.Mailbox, among, sought)
	if err != nil {
		return nil, open, v.store.logIndexError(ctx, v.row.Mailbox, err)
	}
	left := open[:0]
	for i, uid := range open {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		e, _ := v.snap.Find(uid)
		switch c.match(&candidate{Entry: e, recent: v.isRecent(uid), prefilter: index, position: index.position(ids[i])}) {
		case matchYes:
			*hits = append(*hits, uid)
		case matchUnknown:
			left = append(left, uid)
		}
	}
	return index, left, nil
}

// messageIDCache maps the UIDs of a folder to messages. The mapping never changes, so the first
// search that asks an index reads it once.
type messageIDCache struct {
	mu   sync.Mutex
	uids []uint32 // ascending
	ids  []db.ID
}

// reset frees the memory when no session has the folder open.
func (m *messageIDCache) reset() {
	m.mu.Lock()
	m.uids, m.ids = nil, nil
	m.mu.Unlock()
}

// messageIDsPage is how many UIDs are read at once, as a read transaction must be short.
const messageIDsPage = 5_000

var messageIDsQuery = db.SQL(`SELECT uid, message FROM folder_message WHERE folder = $1 AND uid > $2 ORDER BY uid LIMIT $3`)

// messageIDs returns the messages with the given UIDs, which must ascend; 0 for one that was
// expunged meanwhile.
func (v *View) messageIDs(ctx context.Context, uids []uint32) ([]db.ID, error) {
	m := &v.shared.idCache
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.uids) > 2*v.snap.Len()+messageIDsPage { // most are gone
		m.uids, m.ids = nil, nil
	}
	last := uids[len(uids)-1]
	for len(m.uids) == 0 || m.uids[len(m.uids)-1] < last {
		from, had := uint32(0), len(m.uids)
		if had > 0 {
			from = m.uids[had-1]
		}
		err := v.store.DB.Each(ctx, messageIDsQuery.With(v.shared.id, from, messageIDsPage), func(r db.Row) error {
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

// IndexDocument is a message to index.
type IndexDocument struct {
	ID        db.ID
	Mailbox   db.ID
	blob      db.ID
	envelope  []byte
	structure []byte
}

var (
	indexDocumentsQuery   = db.SQL(`SELECT id, mailbox, blob, envelope, structure FROM message WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3`)
	existingMessagesQuery = db.SQL(`SELECT id FROM message WHERE id ` + inList)
)

// IndexDocuments returns at most limit messages with ids between after and before, both excluded,
// in the order of their ids. Messages with lower ids may be committed later.
func (s *Folders) IndexDocuments(ctx context.Context, after, before db.ID, limit int) ([]IndexDocument, error) {
	return db.All(ctx, s.DB, indexDocumentsQuery.With(after, before, limit), func(r db.Row) (m IndexDocument, err error) {
		return m, r.Scan(&m.ID, &m.Mailbox, &m.blob, &m.envelope, &m.structure)
	})
}

// maxIndexDelayFactor is the maximum pause of indexing, as a multiple of its working time, on top
// of its usual pause. At the maximum it uses a twentieth of a processor, otherwise a quarter.
const maxIndexDelayFactor = 16

// IndexDelay returns how long indexing must pause after a batch that took so long. The busier
// filing is, the longer the pause; see notify.LoadGauge.
func (s *Folders) IndexDelay(took time.Duration) time.Duration {
	return s.load.RestTime(s.Now(), took, maxIndexDelayFactor)
}

// ExistingMessages returns which of the messages have not been deleted.
func (s *Folders) ExistingMessages(ctx context.Context, ids []db.ID) (map[db.ID]bool, error) {
	there := map[db.ID]bool{}
	for some := range slices.Chunk(ids, listSize) {
		args := listArgs(len(some), func(i int) any { return some[i] })
		err := s.DB.Each(ctx, existingMessagesQuery.With(args...), func(r db.Row) error {
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

// textOverlap is by how many bytes the pieces of a text overlap.
const textOverlap = 3

// ErrMessageDeleted is returned for a message that is deleted.
var ErrMessageDeleted = errors.New("the message is gone")

// EachText calls f with the texts of a message that Search searches, folded as it compares them. A
// long text comes in pieces that overlap by 3 bytes, so that each sequence of 4 bytes is in one
// piece. complete is false if BodyText exceeded limit bytes.
func (s *Folders) EachText(ctx context.Context, m IndexDocument, limit int, f func(kind TextKind, text []byte)) (complete bool, err error) {
	b, err := s.Blobs.Load(ctx, m.blob)
	if errors.Is(err, blob.ErrNotExist) { // deleted together with it, or lost
		if there, failed := s.ExistingMessages(ctx, []db.ID{m.ID}); failed == nil && !there[m.ID] {
			return false, ErrMessageDeleted
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
	t, err := newTextScanner(ctx, r, m.structure, make([]byte, min(textBuffer, max(b.Size, 1<<10))))
	if err != nil {
		return false, fmt.Errorf("scanning message %s: %w", m.ID, err)
	}
	complete = t.eachText(m.envelope, limit, f)
	return complete, t.err
}

// eachText calls f as EachText does.
func (t *textScanner) eachText(envelope []byte, limit int, f func(kind TextKind, text []byte)) (complete bool) {
	for k := range message.EnvelopeFieldCount {
		f(k, []byte(fold(message.EnvelopeText(envelope, k))))
	}
	for field := range t.header(&t.index.Parts[0]).Fields() {
		f(HeaderText, []byte(fold(fieldText(field))))
		if k := searchableField(field.Name); k >= 0 {
			f(k, []byte(fold(field.Decoded())))
		}
	}
	return t.eachBodyText(limit, f)
}

// eachBodyText calls f with the texts that InBody searches, up to limit bytes.
func (t *textScanner) eachBodyText(limit int, f func(kind TextKind, text []byte)) (complete bool) {
	give := func(text []byte) (more bool) {
		limit -= len(text)
		if limit >= 0 {
			f(BodyText, text)
		}
		return limit >= 0
	}
	for i := range t.index.Parts {
		p := &t.index.Parts[i]
		if t.isEmbedded(p) {
			for line := range t.headerTexts(p) {
				if !give([]byte(fold(line))) {
					return false
				}
			}
		}
		if isTextPart(p) {
			t.fail(eachFoldedWindow(t.visibleText(p), textOverlap, t.buf, give))
			if limit < 0 {
				return false
			}
		}
	}
	return true
}
