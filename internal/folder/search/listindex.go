// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// A list of messages first examines a few. If these don't fill the page, it reads only the messages
// that the search index or the folder names.

// filterText is a text that must be in one of some ENVELOPE fields of a message.
type filterText struct {
	kinds []TextKind
	text  needle
}

func (t *filterText) matches(envelope []byte) bool {
	return slices.ContainsFunc(t.kinds, func(k TextKind) bool { return t.text.isIn(message.EnvelopeText(envelope, k)) })
}

// texts returns the texts that a message must contain for the filter to match.
func (f *MessageFilter) texts() (all []filterText) {
	for _, text := range append([]string{f.Subject}, f.Words...) {
		if text != "" {
			all = append(all, filterText{[]TextKind{message.EnvelopeSubject}, newNeedle(text)})
		}
	}
	if text := envelopeAddress(f.From); text != "" {
		all = append(all, filterText{[]TextKind{message.EnvelopeFrom}, newNeedle(text)})
	}
	if text := envelopeAddress(f.To); text != "" {
		all = append(all, filterText{[]TextKind{message.EnvelopeTo, message.EnvelopeCc}, newNeedle(text)})
	}
	return all
}

// envelopeAddress returns the form in which an ENVELOPE contains an address or a domain; "" if
// there may be several forms.
func envelopeAddress(text string) string {
	var a address.Address
	if strings.Contains(text, "@") {
		a, _ = address.Parse(text)
	} else {
		a.Domain, _ = address.ParseMailDomain(text)
	}
	if a.Domain == "" || strings.Contains("."+a.Domain, ".xn--") || a.NeedsSMTPUTF8() || strings.Contains(a.Local, `"`) {
		return ""
	}
	return a.Local + "@" + a.Domain
}

// maxFilterTerms is the number of texts of a filter for which an index is asked.
const maxFilterTerms = 16

// clause returns a clause that a message must match for the filter to match, or nil if an index
// does not help.
func (f *MessageFilter) clause() *IndexClause {
	var all IndexClause
	for _, t := range f.texts() {
		if len(t.text) >= minTermBytes && len(all.Children) < maxFilterTerms {
			all.Children = append(all.Children, IndexClause{Term: &IndexTerm{t.kinds, t.text}})
		}
	}
	if len(all.Children) == 0 {
		return nil
	}
	return &all
}

// candidateIDs are the messages that a list examines.
type candidateIDs struct {
	ids       []db.ID                       // ascending
	truncated bool                          // whether there are more in the direction of the list
	statement func(some []any) db.Statement // of db.InListSize ids
}

// inList is the condition of queries for db.InListSize ids.
const inList = `IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

var (
	// candidatesByIDQuery looks up the folder of each message. Otherwise PostgreSQL might read all
	// messages of the folder.
	candidatesByIDQuery = db.SQL(`SELECT ` + candidateColumns + `,
		COALESCE((SELECT 1 FROM folder_message f JOIN folder d ON d.id = f.folder
			WHERE f.message = m.id AND (CAST($18 AS BIGINT) = 0 OR f.folder = $18) LIMIT 1), 0)
		FROM message m WHERE id ` + inList + ` AND mailbox + 0 = $17`)
	receivedByIDQuery = db.SQL(`SELECT ` + receivedColumns + `
		FROM message m WHERE id ` + inList + ` AND account + 0 = $17`)
)

// readPage is a candidateReader.
func (k *candidateIDs) readPage(ctx context.Context, d *db.DB, at db.Page) (chunk []listCandidate, more bool, err error) {
	left := k.ids
	if back := at.After == 0; back {
		from, found := slices.BinarySearch(left, at.Before)
		if found {
			from++
		}
		left = left[from:]
	} else {
		to, _ := slices.BinarySearch(left, at.After)
		left = left[:to]
		left = slices.Clone(left)
		slices.Reverse(left)
	}
	for len(left) > 0 && len(chunk) < at.Limit { // some may be gone meanwhile
		some := left[:min(db.InListSize, len(left))]
		left = left[len(some):]
		args := db.InListArgs(len(some), func(i int) any { return some[i] })
		group, err := db.All(ctx, d, k.statement(args), scanCandidate)
		if err != nil {
			return nil, false, err
		}
		chunk = append(chunk, group...)
	}
	slices.SortFunc(chunk, func(a, b listCandidate) int { return cmp.Compare(b.ID, a.ID) })
	return chunk, len(chunk) > 0 && (len(left) > 0 || k.truncated), nil
}

// messageIDsPage is how many messages of a folder are read at once, as a read transaction must be
// short.
const messageIDsPage = 5_000

// candidatesByFolder returns the next messages of a folder, as many as a page examines.
func (s *Searcher) candidatesByFolder(ctx context.Context, in db.ID, at db.Page) (*candidateIDs, error) {
	var k candidateIDs
	back := at.After == 0
	cut := func() {
		slices.Sort(k.ids)
		k.ids = slices.Compact(k.ids)
		if k.truncated = k.truncated || len(k.ids) > s.MaxScan; !k.truncated {
			return
		}
		if back {
			k.ids = k.ids[:min(s.MaxScan, len(k.ids))]
		} else {
			k.ids = k.ids[max(0, len(k.ids)-s.MaxScan):]
		}
	}
	for last := uint32(0); ; {
		uids, ids, err := s.folders.MessagesAfter(ctx, in, last, messageIDsPage)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if back && id > at.Before || !back && id < at.After {
				k.ids = append(k.ids, id)
			}
		}
		if len(k.ids) > 2*s.MaxScan || len(ids) < messageIDsPage {
			cut()
		}
		if len(ids) < messageIDsPage {
			return &k, nil
		}
		last = uids[len(uids)-1]
	}
}

// candidatesByIndex returns the messages of mailboxes for which the filter may hold, or nil if an
// index can't tell.
func (s *Searcher) candidatesByIndex(ctx context.Context, mailboxes []db.ID, f MessageFilter) (*candidateIDs, error) {
	clause := f.clause()
	if s.index == nil || clause == nil {
		return nil, nil
	}
	var k candidateIDs
	unknown := 0
	for _, box := range mailboxes {
		found, err := s.index.Query(ctx, box, IndexQuery{Clause: *clause, Limit: maxIndexResults - len(k.ids)})
		if err != nil {
			return nil, s.logIndexError(ctx, box, err)
		}
		if found == nil {
			return nil, nil
		}
		k.ids = append(k.ids, found.Messages...)
		if err := s.addUnindexed(ctx, box, found, &k, &unknown); err != nil || unknown > maxUnindexed {
			return nil, err
		}
	}
	slices.Sort(k.ids)
	k.ids = slices.Compact(k.ids)
	return &k, nil
}

var newerMessagesQuery = db.SQL(`SELECT id FROM message WHERE
		{sqlite}mailbox = $1 AND id > $2 ORDER BY id LIMIT $3
		{postgres}(mailbox, id) > ($1, $2) AND mailbox <= $1 ORDER BY mailbox, id LIMIT $3`)

// addUnindexed appends the messages of a mailbox that the index does not know, and counts them,
// until there are more than maxUnindexed.
func (s *Searcher) addUnindexed(ctx context.Context, mailbox db.ID, found *IndexResult, k *candidateIDs, unknown *int) error {
	folders, err := s.folders.List(ctx, mailbox)
	if err != nil {
		return err
	}
	add := func(ids []db.ID) {
		k.ids = append(k.ids, ids...)
		*unknown += len(ids)
	}
	for _, f := range folders {
		if upto := found.IndexedThroughUIDs[f.ID]; f.Messages > 0 && upto+1 < f.UIDNext {
			_, ids, err := s.folders.MessagesAfter(ctx, f.ID, upto, maxUnindexed+1-*unknown)
			if err != nil {
				return err
			}
			if add(ids); *unknown > maxUnindexed {
				return nil
			}
		}
	}
	ids, err := db.All(ctx, s.folders.DB, newerMessagesQuery.With(mailbox, found.IndexedThroughID, maxUnindexed+1-*unknown), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	add(ids)
	return err
}
