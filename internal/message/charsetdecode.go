// SPDX-License-Identifier: Apache-2.0

package message

import (
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/transform"
)

// singleByte decodes a charset with one byte per character.
type singleByte struct {
	transform.NopResetter
	runes [256]rune
}

// newSingleByte returns the decoder for a table of all bytes, or of those above 127.
func newSingleByte(table string) *singleByte {
	s := &singleByte{}
	list := []rune(table)
	for n := range s.runes[:256-len(list)] {
		s.runes[n] = rune(n)
	}
	copy(s.runes[256-len(list):], list)
	return s
}

// Transform implements transform.Transformer.
func (s *singleByte) Transform(dst, src []byte, _ bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		r := s.runes[src[nSrc]]
		if nDst+utf8.RuneLen(r) > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		nDst += utf8.EncodeRune(dst[nDst:], r)
		nSrc++
	}
	return nDst, nSrc, nil
}

// characterSet is a character set that an ISO 2022 escape designates.
type characterSet byte

const (
	setASCII characterSet = iota
	setRoman
	setKatakana
	setLatin1
	setGreek
	setJapanese // JIS X 0208, and the part of JIS X 0213 that is in it
	setJapanese2
	setKorean
	setChinese
	setUnknown // with two bytes per character
)

// iso2022 decodes encodings that designate character sets by escapes: RFC 1468, RFC 1554, RFC 1557,
// RFC 1922 and similar ones.
type iso2022 struct {
	g0, g1, g2 characterSet
	shifted    bool         // by SO: g1 is active
	start      characterSet // initial g1
}

// Reset implements transform.Transformer.
func (d *iso2022) Reset() { *d = iso2022{g1: d.start, start: d.start} }

// Transform implements transform.Transformer.
func (d *iso2022) Transform(dst, src []byte, atEOF bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		r, size := d.next(src[nSrc:])
		if size == 0 && !atEOF {
			return nDst, nSrc, transform.ErrShortSrc
		}
		if size == 0 { // incomplete
			r, size = utf8.RuneError, len(src)-nSrc
		}
		if r >= 0 {
			if nDst+utf8.RuneLen(r) > len(dst) {
				return nDst, nSrc, transform.ErrShortDst
			}
			nDst += utf8.EncodeRune(dst[nDst:], r)
		}
		nSrc += size
	}
	return nDst, nSrc, nil
}

// next decodes the start of b. r is negative if there is no character, and size is 0 if b is
// incomplete.
func (d *iso2022) next(b []byte) (r rune, size int) {
	const noCharacter = -1
	switch c := b[0]; {
	case c == 0x1b:
		return d.escape(b)
	case c == 0x0e, c == 0x0f:
		d.shifted = c == 0x0e
		return noCharacter, 1
	case c == '\n':
		d.shifted = false // RFC 1557 §2
		return rune(c), 1
	case c <= ' ' || c == 0x7f:
		return rune(c), 1
	case c > 0x7f:
		return utf8.RuneError, 1
	}
	set := d.g0
	if d.shifted {
		set = d.g1
	}
	return set.character(b)
}

// escape processes an escape sequence.
func (d *iso2022) escape(b []byte) (r rune, size int) {
	const noCharacter = -1
	n := 1
	for n < len(b) && n < 4 && b[n] >= ' ' && b[n] <= '/' {
		n++
	}
	if n == len(b) && n < 4 {
		return 0, 0
	}
	if n == len(b) || n == 4 {
		return utf8.RuneError, 1
	}
	kind, final := string(b[1:n]), b[n]
	switch kind {
	case "":
		if final != 'N' { // no character of G2 follows
			return utf8.RuneError, 1
		}
		if len(b) < 3 {
			return 0, 0
		}
		r, size = d.g2.character(b[2:])
		if size == 0 {
			return 0, 0
		}
		return r, size + 2
	case "(":
		d.g0 = map[byte]characterSet{'J': setRoman, 'I': setKatakana}[final]
	case "$", "$(":
		d.g0 = doubleByteSet(final)
	case ")":
		d.g1 = map[byte]characterSet{'J': setRoman, 'I': setKatakana}[final]
	case "$)":
		d.g1 = doubleByteSet(final)
	case ".":
		d.g2 = map[byte]characterSet{'A': setLatin1, 'F': setGreek}[final]
	case "$*":
		d.g2 = setUnknown
	}
	return noCharacter, n + 1
}

func doubleByteSet(final byte) characterSet {
	switch final {
	case '@', 'B', 'O', 'Q':
		return setJapanese
	case 'D':
		return setJapanese2
	case 'C':
		return setKorean
	case 'A':
		return setChinese
	}
	return setUnknown
}

// character decodes one character of the set. size is 0 if b is incomplete.
func (set characterSet) character(b []byte) (r rune, size int) {
	c := b[0] & 0x7f
	switch set {
	case setASCII:
		return rune(c), 1
	case setRoman:
		switch c {
		case '\\':
			return '¥', 1
		case '~':
			return '‾', 1
		}
		return rune(c), 1
	case setKatakana:
		if c < 0x21 || c > 0x5f {
			return utf8.RuneError, 1
		}
		return 0xff61 + rune(c-0x21), 1
	case setLatin1:
		return rune(c | 0x80), 1
	case setGreek:
		return charmap.ISO8859_7.DecodeByte(c | 0x80), 1
	}
	if len(b) < 2 {
		return 0, 0
	}
	if second := b[1] & 0x7f; c < 0x21 || second < 0x21 || second > 0x7e {
		return utf8.RuneError, 1
	}
	code := []byte{c | 0x80, b[1] | 0x80}
	var enc encoding.Encoding
	switch set {
	case setJapanese:
		enc = japanese.EUCJP
	case setJapanese2:
		enc, code = japanese.EUCJP, append([]byte{0x8f}, code...)
	case setKorean:
		enc = korean.EUCKR
	case setChinese:
		enc = simplifiedchinese.GBK
	default:
		return utf8.RuneError, 2
	}
	var out [2 * utf8.UTFMax]byte
	n, _, _ := enc.NewDecoder().Transform(out[:], code, true)
	r, _ = utf8.DecodeRune(out[:n])
	return r, 2
}

// utf7Decoder decodes UTF-7 (RFC 2152).
type utf7Decoder struct {
	encoded bool // after "+"
	empty   bool // whether nothing followed the "+" yet
	bits    uint32
	n       uint // number of unused bits
	high    rune // high surrogate
}

// Reset implements transform.Transformer.
func (d *utf7Decoder) Reset() { *d = utf7Decoder{} }

// Transform implements transform.Transformer.
func (d *utf7Decoder) Transform(dst, src []byte, _ bool) (nDst, nSrc int, err error) {
	for nSrc < len(src) {
		if nDst+2*utf8.UTFMax > len(dst) {
			return nDst, nSrc, transform.ErrShortDst
		}
		out := d.next(dst[nDst:nDst], src[nSrc])
		nDst += len(out)
		nSrc++
	}
	return nDst, nSrc, nil
}

// next appends the characters that c completes, at most two.
func (d *utf7Decoder) next(out []byte, c byte) []byte {
	if !d.encoded {
		if d.encoded = c == '+'; d.encoded {
			*d = utf7Decoder{encoded: true, empty: true}
			return out
		}
		if c >= utf8.RuneSelf {
			return utf8.AppendRune(out, utf8.RuneError)
		}
		return append(out, c)
	}
	v := base64Value(c)
	if v < 0 {
		if d.high != 0 {
			out = utf8.AppendRune(out, utf8.RuneError)
		}
		switch {
		case c == '-' && d.empty:
			out = append(out, '+')
		case c == '-':
		case c >= utf8.RuneSelf:
			out = utf8.AppendRune(out, utf8.RuneError)
		default:
			out = append(out, c)
		}
		*d = utf7Decoder{}
		return out
	}
	d.empty = false
	d.bits, d.n = d.bits<<6|uint32(v), d.n+6
	if d.n < 16 {
		return out
	}
	d.n -= 16
	unit := rune(d.bits >> d.n & 0xffff)
	if d.high != 0 {
		full := utf16.DecodeRune(d.high, unit)
		d.high = 0
		if out = utf8.AppendRune(out, full); full != utf8.RuneError {
			return out
		}
	}
	if unit >= 0xd800 && unit < 0xdc00 {
		d.high = unit
		return out
	}
	return utf8.AppendRune(out, unit)
}
