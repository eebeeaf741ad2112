// SPDX-License-Identifier: Apache-2.0

package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// indexVersion is the first byte of a stored index. If it differs, the message is scanned again.
const indexVersion = 1

// errIndex is the error of UnmarshalBinary for invalid bytes.
var errIndex = errors.New("not a stored index of this version")

// AppendBinary appends the stored form of the index.
func (ix *Structure) AppendBinary(dst []byte) ([]byte, error) {
	dst = append(dst, indexVersion)
	dst = binary.AppendUvarint(dst, uint64(ix.Size))
	dst = binary.AppendUvarint(dst, uint64(len(ix.Parts)))
	before := int64(0)
	for i := range ix.Parts {
		p := &ix.Parts[i]
		dst = append(dst, byte(p.Kind), byte(p.Traits))
		for _, n := range [...]int64{
			int64(i - 1 - p.Parent), p.Header.Start - before, p.Header.Len, p.Body.Start - p.Header.End(), p.Body.Len, p.Lines,
		} {
			dst = binary.AppendUvarint(dst, uint64(n))
		}
		before = p.Header.Start
		for _, s := range p.strings() {
			dst = appendStructureString(dst, *s)
		}
		dst = appendStructureParams(dst, p.Params)
		dst = appendStructureParams(dst, p.DispositionParams)
		dst = binary.AppendUvarint(dst, uint64(len(p.Languages)))
		for _, l := range p.Languages {
			dst = appendStructureString(dst, l)
		}
		dst = binary.AppendUvarint(dst, uint64(len(p.Envelope)))
		dst = append(dst, p.Envelope...)
	}
	return dst, nil
}

// MarshalBinary returns the stored form of the index.
func (ix *Structure) MarshalBinary() ([]byte, error) { return ix.AppendBinary(nil) }

// DecodeStructure decodes the stored index of a message of size octets. It returns nil if the index
// is invalid or has another size; scan the message again then.
func DecodeStructure(b []byte, size int64) *Structure {
	ix := &Structure{}
	if ix.UnmarshalBinary(b) != nil || ix.Size != size {
		return nil
	}
	return ix
}

// LoadStructure decodes the stored index of a message of size octets. If that fails, it scans the
// message, which it reads from r.
func LoadStructure(b []byte, size int64, r io.Reader) (*Structure, error) {
	if ix := DecodeStructure(b, size); ix != nil {
		return ix, nil
	}
	ix, _, err := ScanReader(r)
	return ix, err
}

// UnmarshalBinary decodes the output of MarshalBinary. Invalid bytes or another version are an
// error; scan the message again then.
func (ix *Structure) UnmarshalBinary(b []byte) error {
	if len(b) == 0 || b[0] != indexVersion {
		return errIndex
	}
	r := structureReader{b: b[1:]}
	got := Structure{Size: r.int()}
	n := r.int()
	if n < 1 || n > MaxParts || n > int64(len(b)) {
		return errIndex
	}
	got.Parts = make([]Part, n)
	before := int64(0)
	for i := range got.Parts {
		p := &got.Parts[i]
		r.part(p, i, before)
		before = p.Header.Start
		if r.bad || p.Parent < -1 || (p.Parent == -1) != (i == 0) || p.Body.End() > got.Size {
			return fmt.Errorf("part %d: %w", i, errIndex)
		}
	}
	if err := got.check(); err != nil || len(r.b) > 0 {
		return errIndex
	}
	*ix = got
	return nil
}

// check makes sure that containers have the children that other code relies on.
func (ix *Structure) check() error {
	for i := range ix.Parts {
		p := &ix.Parts[i]
		hasChild := i+1 < len(ix.Parts) && ix.Parts[i+1].Parent == i
		if p.Kind > Embedded || hasChild != (p.Kind != Leaf) {
			return errIndex
		}
		depth := 0
		for j := i; j >= 0; j = ix.Parts[j].Parent {
			if depth++; depth > MaxDepth {
				return errIndex
			}
		}
	}
	return nil
}

func (p *Part) strings() [8]*string {
	return [...]*string{
		&p.Type, &p.Subtype, &p.Encoding, &p.ID, &p.Description, &p.MD5, &p.Disposition, &p.Location,
	}
}

// appendStructureString appends a string: the position of a common string as an odd number, or
// twice the length and the bytes.
func appendStructureString(dst []byte, s string) []byte {
	if len(s) <= 16 {
		for i, w := range commonStrings {
			if w == s {
				return binary.AppendUvarint(dst, uint64(i)<<1|1)
			}
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(s))<<1)
	return append(dst, s...)
}

func appendStructureParams(dst []byte, params []Param) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(params)))
	for _, p := range params {
		dst = appendStructureString(dst, p.Name)
		dst = appendStructureString(dst, p.Value)
	}
	return dst
}

// structureReader decodes a stored index. After an error, bad stays set and all reads return zeros.
type structureReader struct {
	b   []byte
	bad bool
}

func (r *structureReader) part(p *Part, i int, before int64) {
	if len(r.b) < 2 {
		r.bad = true
		return
	}
	p.Kind, p.Traits = Kind(r.b[0]), Traits(r.b[1])
	r.b = r.b[2:]
	p.Parent = i - 1 - int(r.int())
	p.Header.Start = before + r.int()
	p.Header.Len = r.int()
	p.Body.Start = p.Header.End() + r.int()
	p.Body.Len = r.int()
	p.Lines = r.int()
	for _, s := range p.strings() {
		*s = r.structureString()
	}
	p.Params = r.params()
	p.DispositionParams = r.params()
	for range r.count() {
		p.Languages = append(p.Languages, r.structureString())
	}
	if n := r.int(); n > 0 {
		p.Envelope = append([]byte(nil), r.bytes(n)...)
	}
	r.bad = r.bad || p.Kind == Embedded && !IsEnvelope(p.Envelope)
}

// int reads a number in the range of offsets; sums of a few do not overflow.
func (r *structureReader) int() int64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > 1<<48 {
		r.bad = true
		r.b = nil
		return 0
	}
	r.b = r.b[n:]
	return int64(v)
}

// count reads the number of items that follow, each of at least one byte.
func (r *structureReader) count() int {
	n := r.int()
	if n > maxParams {
		r.bad = true
		return 0
	}
	return int(n)
}

func (r *structureReader) bytes(n int64) []byte {
	if n > int64(len(r.b)) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *structureReader) structureString() string {
	v := r.int()
	if v&1 == 0 {
		return string(r.bytes(v >> 1))
	}
	if v >>= 1; v < int64(len(commonStrings)) {
		return commonStrings[v]
	}
	r.bad = true
	return ""
}

func (r *structureReader) params() []Param {
	n := r.count()
	if n == 0 {
		return nil
	}
	params := make([]Param, n)
	for i := range params {
		params[i] = Param{r.structureString(), r.structureString()}
	}
	return params
}
