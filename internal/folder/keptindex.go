// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
)

// A list of messages looks at few of them first. Where these don't fill the page, it
// reads only what the search index, or the folder, names.

// keptText is a text that one of some fields of a message's ENVELOPE must have.
type keptText struct {
	kinds []TextKind
	text  needle
}

func (t *keptText) in(envelope []byte) bool {
	return slices.ContainsFunc(t.kinds, func(k TextKind) bool { return t.text.in(envelopeText(envelope, int(k))) })
}

// texts returns the texts that a message must have for the filter to hold.
func (f *KeptFilter) texts() (all []keptText) {
	for _, text := range append([]string{f.Subject}, f.Words...) {
		if text != "" {
			all = append(all, keptText{[]TextKind{1}, newNeedle(text)})
		}
	}
	if text := plainPerson(f.From); text != "" {
		all = append(all, keptText{[]TextKind{2}, newNeedle(text)})
	}
	if text := plainPerson(f.To); text != "" {
		all = append(all, keptText{[]TextKind{5, 6}, newNeedle(text)})
	}
	return all
}

// plainPerson returns how an ENVELOPE has whoever is meant by an address or a
// domain; "" if it may have that in several ways.
func plainPerson(text string) string {
	var a address.Address
	if strings.Contains(text, "@") {
		a, _ = address.Parse(text)
	} else {
		a.Domain, _ = address.MailDomain(text)
	}
	if a.Domain == "" || strings.Contains("."+a.Domain, ".xn--") || a.IsUTF8() || strings.Contains(a.Local, `"`) {
		return ""
	}
	return a.Local + "@" + a.Domain
}

// maxKeptTexts is how many texts of a filter an index is asked for.
const maxKeptTexts = 16

// clause returns what a message must meet for the filter to hold, or nil if an
// index can't tell.
func (f *KeptFilter) clause() *Clause {
	var all Clause
	for _, t := range f.texts() {
		if len(t.text) >= minSought && len(all.Of) < maxKeptTexts {
			all.Of = append(all.Of, Clause{Sought: &Sought{t.kinds, t.text}})
		}
	}
	if len(all.Of) == 0 {
		return nil
	}
	return &all
}

// keptIDs are the messages that a list goes through.
type keptIDs struct {
	ids  []db.ID // rising
	cut  bool    // there are more in the direction that the list is walked in
	read func(some [keptGroup]any) db.Statement
}

// keptGroup is how many messages are read by one query.
const keptGroup = 16

// keptSome looks for the folder of each message: PostgreSQL might look at all of the folder's otherwise.
var keptSome = db.SQL(`SELECT id, mailbox, account, outbound, thread, verdicts, size, message_id, SUBSTR(envelope, 1, 32768),
		COALESCE((SELECT 1 FROM folder_message f JOIN folder d ON d.id = f.folder
			WHERE f.message = m.id AND (CAST($18 AS BIGINT) = 0 OR f.folder = $18) LIMIT 1), 0)
	FROM message m WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AND mailbox + 0 = $17`)

// page is a keptReader.
func (k *keptIDs) page(ctx context.Context, d *db.DB, at db.Page) (chunk []keptCandidate, more bool, err error) {
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
		some := left[:min(keptGroup, len(left))]
		left = left[len(some):]
		var args [keptGroup]any
		for i := range args {
			args[i] = some[min(i, len(some)-1)]
		}
		group, err := db.All(ctx, d, k.read(args), scanCandidate)
		if err != nil {
			return nil, false, err
		}
		chunk = append(chunk, group...)
	}
	slices.SortFunc(chunk, func(a, b keptCandidate) int { return cmp.Compare(b.ID, a.ID) })
	return chunk, len(chunk) > 0 && (len(left) > 0 || k.cut), nil
}

// keptByFolder returns the next messages of a folder, as many as a page looks at.
func (s *Store) keptByFolder(ctx context.Context, folder db.ID, at db.Page) (*keptIDs, error) {
	var k keptIDs
	back := at.After == 0
	cut := func() {
		slices.Sort(k.ids)
		k.ids = slices.Compact(k.ids)
		if k.cut = k.cut || len(k.ids) > s.Look; !k.cut {
			return
		}
		if back {
			k.ids = k.ids[:min(s.Look, len(k.ids))]
		} else {
			k.ids = k.ids[max(0, len(k.ids)-s.Look):]
		}
	}
	for last := uint32(0); ; {
		n := 0
		err := s.DB.Each(ctx, readIDs.With(folder, last, idsPage), func(r db.Row) error {
			var id db.ID
			if err := r.Scan(&last, &id); err != nil {
				return err
			}
			n++
			if back && id > at.Before || !back && id < at.After {
				k.ids = append(k.ids, id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(k.ids) > 2*s.Look || n < idsPage {
			cut()
		}
		if n < idsPage {
			return &k, nil
		}
	}
}

// keptByIndex returns the messages of mailboxes for which the filter may hold, or
// nil if an index doesn't tell.
func (s *Store) keptByIndex(ctx context.Context, mailboxes []db.ID, f KeptFilter) (*keptIDs, error) {
	clause := f.clause()
	if s.Find == nil || clause == nil {
		return nil, nil
	}
	var k keptIDs
	unknown := 0
	for _, box := range mailboxes {
		found, err := s.Find(ctx, box, Seek{Clause: *clause, Limit: maxFound - len(k.ids)})
		if err != nil {
			return nil, s.without(ctx, box, err)
		}
		if found == nil {
			return nil, nil
		}
		k.ids = append(k.ids, found.Messages...)
		if err := s.unindexed(ctx, box, found, &k, &unknown); err != nil || unknown > maxUnknown {
			return nil, err
		}
	}
	slices.Sort(k.ids)
	k.ids = slices.Compact(k.ids)
	return &k, nil
}

var laterIn = db.SQL(`SELECT id FROM message WHERE
		{sqlite}mailbox = $1 AND id > $2 ORDER BY id LIMIT $3
		{postgres}(mailbox, id) > ($1, $2) AND mailbox <= $1 ORDER BY mailbox, id LIMIT $3`)

// unindexed adds the messages of a mailbox of which the index knows nothing, and
// counts them, until they are more than maxUnknown.
func (s *Store) unindexed(ctx context.Context, mailbox db.ID, found *Found, k *keptIDs, unknown *int) error {
	folders, err := s.Folders(ctx, mailbox)
	if err != nil {
		return err
	}
	add := func(ids []db.ID) {
		k.ids = append(k.ids, ids...)
		*unknown += len(ids)
	}
	for _, f := range folders {
		if upto := found.Folders[f.ID]; f.Messages > 0 && upto+1 < f.UIDNext {
			_, ids, err := s.MessagesAfter(ctx, f.ID, upto, maxUnknown+1-*unknown)
			if err != nil {
				return err
			}
			if add(ids); *unknown > maxUnknown {
				return nil
			}
		}
	}
	ids, err := db.All(ctx, s.DB, laterIn.With(mailbox, found.After, maxUnknown+1-*unknown), func(r db.Row) (id db.ID, err error) { return id, r.Scan(&id) })
	add(ids)
	return err
}
