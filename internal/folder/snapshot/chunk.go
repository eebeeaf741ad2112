// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
)

const (
	chunkBits = 10
	chunkMask = 1<<chunkBits - 1
)

// chunk holds messages in packed columns, mostly 3 to 8 bytes for each message. It never changes.
// Besides the columns it holds summaries, so that a search can accept or skip all of its messages
// at once.
type chunk struct {
	count              int
	MaxModSeq          uint64       // the highest mod-sequence, so that changes are found without reading the columns
	AnyFlags, AllFlags Flags        // flags that any message has, and flags that all have
	lowUIDs            packedColumn // UID & chunkMask, ascending
	flags              packedColumn
	size               packedColumn
	modseq             packedColumn
	keywords           packedColumn
}

// Len returns the number of messages.
func (c *chunk) Len() int { return c.count }

func (c *chunk) columns() [5]*packedColumn {
	return [...]*packedColumn{&c.lowUIDs, &c.flags, &c.size, &c.modseq, &c.keywords}
}

// packedColumn is a column of numbers. Number i is base + i·step plus element i of data, which has
// width bytes for each element.
type packedColumn struct {
	base, step uint64
	width      int
	data       []byte
}

func (c *packedColumn) at(i int) uint64 {
	v := c.base + c.step*uint64(i)
	switch c.width {
	case 0:
		return v
	case 1:
		return v + uint64(c.data[i])
	case 2:
		return v + uint64(binary.LittleEndian.Uint16(c.data[2*i:]))
	case 3:
		d := c.data[3*i:]
		return v + (uint64(d[0]) | uint64(d[1])<<8 | uint64(d[2])<<16)
	case 4:
		return v + uint64(binary.LittleEndian.Uint32(c.data[4*i:]))
	}
	return v + binary.LittleEndian.Uint64(c.data[8*i:])
}

// eachAbove calls f with the index of each of the first n numbers that is higher than limit.
func (c *packedColumn) eachAbove(limit uint64, n int, f func(i int)) {
	if c.width == 0 || limit < c.base {
		for i := range n {
			if c.at(i) > limit {
				f(i)
			}
		}
		return
	}
	limit -= c.base // step is 0
	switch data := c.data[:n*c.width]; c.width {
	case 1:
		for i, d := range data {
			if uint64(d) > limit {
				f(i)
			}
		}
	case 2:
		for i := 0; len(data) >= 2; i, data = i+1, data[2:] {
			if uint64(data[0])|uint64(data[1])<<8 > limit {
				f(i)
			}
		}
	case 3:
		for i := 0; len(data) >= 3; i, data = i+1, data[3:] {
			if uint64(data[0])|uint64(data[1])<<8|uint64(data[2])<<16 > limit {
				f(i)
			}
		}
	default:
		for i := range n {
			if c.at(i)-c.base > limit {
				f(i)
			}
		}
	}
}

// set stores base + v as number i of a column with data. v must fit the width.
func (c *packedColumn) set(i int, v uint64) {
	switch c.width {
	case 1:
		c.data[i] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(c.data[2*i:], uint16(v))
	case 3:
		c.data[3*i], c.data[3*i+1], c.data[3*i+2] = byte(v), byte(v>>8), byte(v>>16)
	case 4:
		binary.LittleEndian.PutUint32(c.data[4*i:], uint32(v))
	case 8:
		binary.LittleEndian.PutUint64(c.data[8*i:], v)
	}
}

// pack packs numbers, at least one. Evenly ascending numbers need no data, as the UIDs and
// mod-sequences of unchanged mail.
func pack(numbers []uint64) packedColumn {
	first := numbers[0]
	least, most, last := first, first, first
	step, even := uint64(0), true
	if len(numbers) > 1 {
		step = numbers[1] - first
	}
	for _, v := range numbers[1:] {
		even = even && v-last == step
		least, most, last = min(least, v), max(most, v), v
	}
	if even {
		return packedColumn{base: first, step: step}
	}
	c := packedColumn{base: least, width: (bits.Len64(most-least) + 7) / 8}
	if c.width > 4 {
		c.width = 8
	}
	c.data = make([]byte, len(numbers)*c.width)
	for i, v := range numbers {
		c.set(i, v-least)
	}
	return c
}

// withValues returns the column of n numbers with the numbers at some places replaced. It returns
// the same column if nothing changes.
func (c packedColumn) withValues(n int, places []int, of func(k int) uint64) packedColumn {
	same, fits := true, c.width > 0
	for k, i := range places {
		v := of(k)
		same = same && v == c.at(i)
		fits = fits && v >= c.base && v-c.base <= 1<<(8*c.width)-1
	}
	switch {
	case same:
		return c
	case fits:
		c.data = slices.Clone(c.data)
		for k, i := range places {
			c.set(i, of(k)-c.base)
		}
		return c
	}
	var numbers [chunkMask + 1]uint64
	for i := range n {
		numbers[i] = c.at(i)
	}
	for k, i := range places {
		numbers[i] = of(k)
	}
	return pack(numbers[:n])
}

// newChunk packs messages, at least one, with ascending UIDs.
func newChunk(list []Entry) *chunk {
	c := &chunk{count: len(list), AllFlags: math.MaxUint8}
	for i := range list {
		c.MaxModSeq = max(c.MaxModSeq, list[i].ModSeq)
		c.AnyFlags |= list[i].Flags
		c.AllFlags &= list[i].Flags
	}
	var numbers [chunkMask + 1]uint64
	column := func(of func(e *Entry) uint64) packedColumn {
		for i := range list {
			numbers[i] = of(&list[i])
		}
		return pack(numbers[:len(list)])
	}
	c.lowUIDs = column(func(e *Entry) uint64 { return uint64(e.UID & chunkMask) })
	c.flags = column(func(e *Entry) uint64 { return uint64(e.Flags) })
	c.size = column(func(e *Entry) uint64 { return uint64(e.Size) })
	c.modseq = column(func(e *Entry) uint64 { return e.ModSeq })
	c.keywords = column(func(e *Entry) uint64 { return uint64(e.Keywords) })
	return c
}

// withReplaced returns the chunk with the messages of put in place of those with the same UIDs,
// which ascend. It returns nil if a UID is missing. Flag changes use it, so it copies only the
// columns that change.
func (c *chunk) withReplaced(put []Entry) *chunk {
	places := make([]int, len(put))
	from, newest := 0, c.MaxModSeq
	for k := range put {
		i, found := c.searchUID(from, put[k].UID&chunkMask)
		if !found {
			return nil
		}
		places[k], from = i, i+1
		newest = max(newest, put[k].ModSeq)
	}
	made := &chunk{count: c.count, MaxModSeq: newest, AllFlags: math.MaxUint8, lowUIDs: c.lowUIDs}
	made.flags = c.flags.withValues(c.count, places, func(k int) uint64 { return uint64(put[k].Flags) })
	made.size = c.size.withValues(c.count, places, func(k int) uint64 { return uint64(put[k].Size) })
	made.modseq = c.modseq.withValues(c.count, places, func(k int) uint64 { return put[k].ModSeq })
	made.keywords = c.keywords.withValues(c.count, places, func(k int) uint64 { return uint64(put[k].Keywords) })
	for i := range c.count {
		f := Flags(made.flags.at(i))
		made.AnyFlags |= f
		made.AllFlags &= f
	}
	return made
}

// searchUID returns the index of a UID's low bits, or where they would be, starting at index from.
func (c *chunk) searchUID(from int, low uint32) (int, bool) {
	if c.lowUIDs.width == 0 && c.lowUIDs.step == 1 { // no gaps
		at := min(max(from, int(low)-int(c.lowUIDs.base)), c.count)
		return at, at < c.count && uint32(c.lowUIDs.at(at)) == low
	}
	lo, hi := from, c.count
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); uint32(c.lowUIDs.at(mid)) < low {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < c.count && uint32(c.lowUIDs.at(lo)) == low
}

// KeywordSet returns the keyword set of all messages if they have the same one.
func (c *chunk) KeywordSet() (set uint32, all bool) {
	return uint32(c.keywords.base), c.keywords.width == 0 && c.keywords.step == 0
}

// memoryBytes returns approximately how many bytes of memory the chunk takes.
func (c *chunk) memoryBytes() int {
	sum := 320 // the struct and its slot
	for _, col := range c.columns() {
		sum += len(col.data)
	}
	return sum
}

// appendBinary appends the chunk in its stored form.
func (c *chunk) appendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.count))
	b = binary.AppendUvarint(b, c.MaxModSeq)
	b = append(b, byte(c.AnyFlags), byte(c.AllFlags))
	for _, col := range c.columns() {
		b = binary.AppendUvarint(b, col.base)
		b = binary.AppendUvarint(b, col.step)
		b = append(b, byte(col.width))
		b = append(b, col.data...)
	}
	return b
}

var errBadChunk = errors.New("what is stored of a folder's view can't be read")

// decodeChunk decodes what appendBinary wrote, and returns the remaining bytes. The chunk retains
// b.
func decodeChunk(b []byte) (*chunk, []byte, error) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			b = nil
			return 0
		}
		b = b[n:]
		return v
	}
	c := &chunk{}
	n := number()
	c.MaxModSeq = number()
	if n == 0 || n > chunkMask+1 || len(b) < 2 {
		return nil, nil, errBadChunk
	}
	c.count, c.AnyFlags, c.AllFlags = int(n), Flags(b[0]), Flags(b[1])
	b = b[2:]
	for _, col := range c.columns() {
		col.base, col.step = number(), number()
		if len(b) == 0 {
			return nil, nil, errBadChunk
		}
		col.width = int(b[0])
		if b = b[1:]; !slices.Contains([]int{0, 1, 2, 3, 4, 8}, col.width) || len(b) < col.width*c.count || col.width > 0 && col.step > 0 {
			return nil, nil, errBadChunk
		}
		end := col.width * c.count
		col.data, b = b[:end:end], b[end:]
	}
	return c, b, c.validate()
}

// validate reports whether the UIDs ascend, so that damaged data can't mislead other code.
func (c *chunk) validate() error {
	if c.lowUIDs.width == 0 && c.lowUIDs.step == 1 && c.lowUIDs.base+uint64(c.count) <= chunkMask+1 {
		return nil // no gaps
	}
	for i := range c.count {
		if low := c.lowUIDs.at(i); low > chunkMask || i > 0 && low <= c.lowUIDs.at(i-1) {
			return errBadChunk
		}
	}
	return nil
}
