// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"io"
	"strconv"
	"time"
)

// FetchResponse writes one * n FETCH (…): items one by one, then End.
type FetchResponse struct {
	w        *Writer
	hasItems bool
}

// Fetch begins the row of the message with this sequence number.
func (w *Writer) Fetch(seq uint32) FetchResponse {
	b := append(w.reserve(), "* "...)
	b = strconv.AppendUint(b, uint64(seq), 10)
	w.buf = append(b, " FETCH ("...)
	return FetchResponse{w: w}
}

// End ends the row.
func (f *FetchResponse) End() { f.w.Raw(")\r\n") }

// beginItem writes an item's name, with a space before it if it is not the first.
func (f *FetchResponse) beginItem(s string) *Writer {
	b := f.w.reserve()
	if f.hasItems {
		b = append(b, ' ')
	}
	f.hasItems = true
	f.w.buf = append(b, s...)
	return f.w
}

// UID writes the UID.
func (f *FetchResponse) UID(uid uint32) {
	w := f.beginItem("UID ")
	w.buf = strconv.AppendUint(w.buf, uint64(uid), 10)
}

// Flags writes the flags.
func (f *FetchResponse) Flags(flags Flags) {
	w := f.beginItem("FLAGS ")
	w.buf = appendFlags(w.buf, flags)
}

// InternalDate writes the internal date, in t's own zone.
func (f *FetchResponse) InternalDate(t time.Time) { f.beginItem("INTERNALDATE ").DateTime(t) }

// Size writes RFC822.SIZE, in bytes.
func (f *FetchResponse) Size(n int64) { f.beginItem("RFC822.SIZE ").Number(uint64(n)) }

// ModSeq writes the mod-sequence.
func (f *FetchResponse) ModSeq(n uint64) { f.beginItem("MODSEQ (").Number(n).Raw(")") }

// EmailID writes the EMAILID (RFC 8474).
func (f *FetchResponse) EmailID(id string) { f.beginItem("EMAILID (").Raw(id).Raw(")") }

// ThreadID writes the THREADID, NIL if empty.
func (f *FetchResponse) ThreadID(id string) {
	if id == "" {
		f.beginItem("THREADID NIL")
		return
	}
	f.beginItem("THREADID (").Raw(id).Raw(")")
}

// SaveDate writes the save date (RFC 8514), NIL if zero.
func (f *FetchResponse) SaveDate(t time.Time) {
	if t.IsZero() {
		f.beginItem("SAVEDATE NIL")
		return
	}
	f.beginItem("SAVEDATE ").DateTime(t)
}

// Preview writes the preview (RFC 8970), NIL if it is not at hand.
func (f *FetchResponse) Preview(s string, there bool) { f.beginItem("PREVIEW ").NString(s, there) }

// Raw writes an item whose value is in wire form already, such as a
// stored ENVELOPE or BODYSTRUCTURE.
func (f *FetchResponse) Raw(name string, value []byte) { f.beginItem(name).SP().RawBytes(value) }

// Section writes the size bytes of a section from src, which must be those of
// s.Bounds if it is partial. The Writer fails if src ends early (ErrShortLiteral).
func (f *FetchResponse) Section(s *Section, size int64, src io.Reader) {
	f.sectionName(s).Literal(size, src)
}

// SectionBytes is Section for bytes in memory.
func (f *FetchResponse) SectionBytes(s *Section, b []byte) { f.sectionName(s).LiteralBytes(b) }

// SectionBinary is Section for decoded bytes: a literal8 if they hold NUL (RFC
// 3516 §4.3).
func (f *FetchResponse) SectionBinary(s *Section, size int64, nul bool, src io.Reader) {
	w := f.sectionName(s)
	if nul {
		w.Raw("~")
	}
	w.Literal(size, src)
}

// SectionNil says that the message has no such part.
func (f *FetchResponse) SectionNil(s *Section) { f.sectionName(s).Raw("NIL") }

// SectionSize answers BINARY.SIZE, in bytes.
func (f *FetchResponse) SectionSize(s *Section, n int64) { f.sectionName(s).Number(uint64(n)) }

func (f *FetchResponse) sectionName(s *Section) *Writer {
	w := f.beginItem("")
	w.buf = appendSection(w.buf, s)
	return w.SP()
}
