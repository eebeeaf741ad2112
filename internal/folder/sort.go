// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// SortField is what messages are sorted by (RFC 5256 §3, RFC 5957).
type SortField uint8

// The fields. An address is the mailbox name of the first one there, its
// display form the name that is shown for it.
const (
	ByArrival SortField = iota // internal date
	BySent                     // Date, or else the internal date
	BySize
	BySubject // base subject
	ByFrom
	ByTo
	ByCc
	ByFromShown
	ByToShown
)

// SortBy is one criterion of an order.
type SortBy struct {
	Field   SortField
	Reverse bool
}

// Bounds of what a sort holds in memory.
const (
	maxSortText  = 1_000     // bytes of one text that count
	maxSortTexts = 256 << 20 // of all texts
)

// column is what is known of all messages for one criterion: numbers or texts.
type column struct {
	SortBy
	numbers []int64
	texts   []string
}

func (c *column) compare(a, b int32) int {
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

// Sort puts the UIDs, which rise, in the order of the criteria; what these
// leave equal stays in the order of the folder. More texts than fit in memory
// are a fault.Limited.
func (v *View) Sort(ctx context.Context, uids []uint32, by []SortBy) error {
	columns, want := newColumns(by, len(uids))
	at, size := 0, 0
	err := v.Fetch(ctx, uids, want, func(r *Row) error {
		for uids[at] != r.UID {
			at++ // it is gone, and sorts as if it were empty
		}
		for i := range columns {
			size += columns[i].take(at, r)
		}
		if size > maxSortTexts {
			return tooMuchToSort()
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

// newColumns makes room for n messages, and returns what must be read of them. A
// field that was named before decides nothing: what it leaves equal stays so.
func newColumns(by []SortBy, n int) (columns []column, want Want) {
	for _, b := range by {
		if slices.ContainsFunc(columns, func(c column) bool { return c.Field == b.Field }) {
			continue
		}
		c := column{SortBy: b}
		want |= c.prepare(n)
		columns = append(columns, c)
	}
	return columns, want
}

func tooMuchToSort() error {
	return fault.New(fault.Limited, "too_much_to_sort", "These are more messages than can be put in order at once.")
}

// prepare makes room for n messages and returns what must be read of them.
func (c *column) prepare(n int) Want {
	switch c.Field {
	case ByArrival:
		c.numbers = make([]int64, n)
		return WantDates
	case BySent:
		c.numbers = make([]int64, n)
		return WantDates | WantEnvelope
	case BySize:
		c.numbers = make([]int64, n)
		return 0
	}
	c.texts = make([]string, n)
	return WantEnvelope
}

// take notes what a message is sorted by, and returns how many bytes that is.
func (c *column) take(at int, r *Row) int {
	switch c.Field {
	case ByArrival:
		c.numbers[at] = r.Date.UnixMicro()
	case BySent:
		c.numbers[at] = sentAt(r)
	case BySize:
		c.numbers[at] = int64(r.Size)
	default:
		c.texts[at] = c.text(r.Envelope)
		return len(c.texts[at])
	}
	return 0
}

func (c *column) text(envelope []byte) string {
	var s string
	switch c.Field {
	case BySubject:
		s, _ = message.BaseSubject(envelopeText(envelope, 1))
	case ByFrom:
		s = firstMailbox(envelope, 2)
	case ByTo:
		s = firstMailbox(envelope, 5)
	case ByCc:
		s = firstMailbox(envelope, 6)
	case ByFromShown:
		s = firstShown(envelope, 2)
	case ByToShown:
		s = firstShown(envelope, 5)
	}
	s = message.Collate(s)
	// Cloned, lest all of a long one be kept.
	return strings.Clone(s[:min(len(s), maxSortText)])
}

// sentAt returns the sent date (RFC 5256 §2.2) in microseconds.
func sentAt(r *Row) int64 {
	if sent, ok := message.ParseDate(envelopeText(r.Envelope, 0)); ok {
		return sent.UnixMicro()
	}
	return r.Date.UnixMicro()
}

// firstMailbox returns the addr-mailbox of the first address of a field.
func firstMailbox(envelope []byte, place int) string {
	_, local, _ := firstAddress(envelope, place)
	return string(local)
}

// firstShown returns what is shown of the first address (RFC 5957 §3).
func firstShown(envelope []byte, place int) string {
	name, local, host := firstAddress(envelope, place)
	if shown := message.DecodeWords(string(name)); shown != "" {
		return shown
	}
	if host != nil {
		return string(local) + "@" + string(host)
	}
	return string(local)
}

func firstAddress(envelope []byte, place int) (name, local, host []byte) {
	r := wireReader{envelope}
	r.accept('(')
	for range place {
		r.skip()
	}
	for range 2 { // of the list and of its first address
		if !r.accept('(') {
			return nil, nil, nil
		}
	}
	name, _, local, host = r.text(), r.text(), r.text(), r.text()
	return name, local, host
}
