// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"slices"

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
func (n *PrefilterResult) lacks(term, at int) bool {
	return n != nil && term >= 0 && at >= 0 && n.MayContain[term][at/64]&(1<<(at%64)) == 0
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

// prefilter asks the index about the open messages. It appends those that it decides to hits, and
// leaves the others open.
func (r *folderSearch) prefilter(ctx context.Context) error {
	if r.index == nil || len(r.open) < minPrefilter {
		return nil
	}
	terms := r.criterion.collectTerms(nil)
	if len(terms) == 0 {
		return nil
	}
	ids, err := r.view.IDsByUID(ctx, r.open)
	if err != nil {
		return err
	}
	among := slices.DeleteFunc(slices.Clone(ids), func(id db.ID) bool { return id == 0 })
	slices.Sort(among)
	mailbox := r.view.Folder().Mailbox
	if r.prefiltered, err = r.index.Prefilter(ctx, mailbox, among, terms); err != nil {
		r.prefiltered = nil
		return r.logIndexError(ctx, mailbox, err)
	}
	open := r.open
	r.open = open[:0]
	r.scratch.prefilter = r.prefiltered
	for i, uid := range open {
		if err := ctx.Err(); err != nil {
			return err
		}
		e, _ := r.snap.ByUID(uid)
		r.scratch.position = r.prefiltered.position(ids[i])
		r.classify(e)
	}
	return nil
}
