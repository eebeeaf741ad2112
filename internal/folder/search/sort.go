// SPDX-License-Identifier: Apache-2.0

package search

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

// SortField is what messages are sorted by (RFC 5256 §3, RFC 5957).
type SortField uint8

// The fields. An address is represented by the mailbox name of the first address, a display field
// by its display name.
const (
	ByArrival SortField = iota // internal date
	BySent                     // Date, or else the internal date
	BySize
	BySubject // base subject
	ByFrom
	ByTo
	ByCc
	ByDisplayFrom
	ByDisplayTo
)

// SortBy is one criterion of a sort order.
type SortBy struct {
	Field   SortField
	Reverse bool
}

// Memory limits of a sort.
const (
	maxSortText  = 1_000     // significant bytes of one text
	maxSortTexts = 256 << 20 // of all texts
)

// sortColumn holds the values of all messages for one criterion: numbers or texts.
type sortColumn struct {
	SortBy
	numbers []int64
	texts   []string
}

func (c *sortColumn) compare(a, b int32) int {
	var n int
	if c.texts != nil {
		n = strings.Compare(c.texts[a], c.texts[b])
	} else {
		n = cmp.Compare(c.numbers[a], c.numbers[b])
	}
	if c.Reverse {
		return -n
	}
	return n
}

// Sort sorts the UIDs, which ascend, by the criteria. Equal messages stay in the order of the
// folder. It returns a fault.RateLimited if the texts don't fit in memory.
func Sort(ctx context.Context, v *folder.View, uids []uint32, by []SortBy) error {
	columns, want := newSortColumns(by, len(uids))
	at, size := 0, 0
	err := v.Fetch(ctx, uids, want, func(r *folder.MessageRow) error {
		for uids[at] != r.UID {
			at++ // gone; it sorts as if it were empty
		}
		for i := range columns {
			size += columns[i].add(at, r)
		}
		if size > maxSortTexts {
			return sortLimitError()
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	order := make([]int32, len(uids))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		for i := range columns {
			if n := columns[i].compare(a, b); n != 0 {
				return n
			}
		}
		return cmp.Compare(a, b)
	})
	before := slices.Clone(uids)
	for i, from := range order {
		uids[i] = before[from]
	}
	return nil
}

// newSortColumns allocates columns for n messages, and returns the fields to read. A repeated field
// is ignored, because its first occurrence has already decided.
func newSortColumns(by []SortBy, n int) (columns []sortColumn, want folder.FetchFields) {
	for _, b := range by {
		if slices.ContainsFunc(columns, func(c sortColumn) bool { return c.Field == b.Field }) {
			continue
		}
		c := sortColumn{SortBy: b}
		want |= c.allocate(n)
		columns = append(columns, c)
	}
	return columns, want
}

func sortLimitError() error {
	return fault.New(fault.RateLimited, "too_much_to_sort", "These are more messages than can be put in order at once.")
}

// allocate allocates the column for n messages and returns the fields to read.
func (c *sortColumn) allocate(n int) folder.FetchFields {
	switch c.Field {
	case ByArrival:
		c.numbers = make([]int64, n)
		return folder.FetchDates
	case BySent:
		c.numbers = make([]int64, n)
		return folder.FetchDates | folder.FetchEnvelope
	case BySize:
		c.numbers = make([]int64, n)
		return 0
	}
	c.texts = make([]string, n)
	return folder.FetchEnvelope
}

// add stores the value of a message, and returns its size in bytes.
func (c *sortColumn) add(at int, r *folder.MessageRow) int {
	switch c.Field {
	case ByArrival:
		c.numbers[at] = r.Date.UnixMicro()
	case BySent:
		c.numbers[at] = sentMicros(r)
	case BySize:
		c.numbers[at] = int64(r.Size)
	default:
		c.texts[at] = c.sortText(r.Envelope)
		return len(c.texts[at])
	}
	return 0
}

// sortedAddress is the field whose first address a SortField takes.
var sortedAddress = [...]message.EnvelopeField{
	ByFrom: message.EnvelopeFrom, ByTo: message.EnvelopeTo, ByCc: message.EnvelopeCc,
	ByDisplayFrom: message.EnvelopeFrom, ByDisplayTo: message.EnvelopeTo,
}

func (c *sortColumn) sortText(envelope []byte) string {
	var s string
	if c.Field == BySubject {
		s, _ = message.BaseSubject(message.EnvelopeText(envelope, message.EnvelopeSubject))
	} else {
		name, local, host := message.FirstEnvelopeAddress(envelope, sortedAddress[c.Field])
		s = string(local)
		if c.Field == ByDisplayFrom || c.Field == ByDisplayTo {
			s = displayName(name, s, host)
		}
	}
	s = message.CollationKey(s)
	// Cloned, so that not all of a long text stays in memory.
	return strings.Clone(s[:min(len(s), maxSortText)])
}

// sentMicros returns the sent date (RFC 5256 §2.2) in microseconds.
func sentMicros(r *folder.MessageRow) int64 {
	if sent, ok := message.ParseDate(message.EnvelopeText(r.Envelope, message.EnvelopeDate)); ok {
		return sent.UnixMicro()
	}
	return r.Date.UnixMicro()
}

// displayName returns the name by which an address is shown (RFC 5957 §3).
func displayName(name []byte, local string, host []byte) string {
	if shown := message.DecodeWords(string(name)); shown != "" {
		return shown
	}
	if host != nil {
		return local + "@" + string(host)
	}
	return local
}
