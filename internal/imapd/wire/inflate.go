// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"io"
)

var errInflate = errors.New("the compressed stream is damaged")

// Inflater reads what a client has compressed (RFC 4978, RFC 1951). Unlike
// compress/flate it gives out all that can be decoded of what has come, also
// after a Z_PARTIAL_FLUSH, which some clients send, and an error of the source,
// such as an interrupted wait, does it no harm: it goes on at the next Read.
//
// It makes no more than Read asks for, so however much a few bytes stand for,
// a Reader on top of it meets its limits first. It holds what it needs of the
// last 32 KiB: less as long as the client has sent less.
type Inflater struct {
	src    *bufio.Reader
	hold   uint64 // bits that are not used yet, the next one lowest
	bits   uint   // how many
	state  inflateState
	final  bool // the block is the last
	window []byte
	at     int // where in window the next byte goes
	left   int // bytes left of a stored block, or of a copy
	back   int // how far back the copy begins

	lens    [maxLitCodes + maxDistCodes]uint8 // of the block's codes, as they are read
	n       int                               // how many were read
	lits    int                               // of the codes: literals and lengths
	dists   int                               // and distances
	lenLens int
	lit     prefixCode
	dist    prefixCode
}

// NewInflater returns an Inflater on src, of which it takes no more than it
// needs to go on.
func NewInflater(src *bufio.Reader) *Inflater { return &Inflater{src: src} }

const (
	windowSize   = 32 << 10
	maxLitCodes  = 286
	maxDistCodes = 30
	endOfBlock   = 256
)

type inflateState uint8

const (
	atBlock    inflateState = iota // before the head of a block
	atStored                       // before the length of a stored block
	inStored                       // within its bytes
	atCodes                        // before the numbers of codes
	atLenLens                      // before the lengths of the code that the lengths are in
	atLens                         // before the lengths
	atSymbol                       // before a literal or a length with its distance
	inCopy                         // within what these stand for
	inflateEnd                     // behind the last block
)

// Read decodes at least one byte, waiting for the source only if nothing can be
// decoded otherwise. It returns io.EOF behind the last block.
func (f *Inflater) Read(p []byte) (n int, err error) {
	for n < len(p) {
		for f.bits <= 56 && f.src.Buffered() > 0 {
			c, _ := f.src.ReadByte() //nolint:errcheck // it is there
			f.push(c)
		}
		wrote, more, err := f.step(p[n:])
		n += wrote
		switch {
		case err != nil && n > 0:
			return n, nil // the next Read comes to the same
		case err != nil:
			return 0, err
		case !more:
			continue
		case f.src.Buffered() > 0:
			return n, errInflate // no step needs more bits than there is room for
		case n > 0:
			return n, nil
		}
		c, err := f.src.ReadByte()
		if err != nil {
			return 0, err
		}
		f.push(c)
	}
	return n, nil
}

func (f *Inflater) push(c byte) {
	f.hold |= uint64(c) << f.bits
	f.bits += 8
}

// take uses up bits that are there.
func (f *Inflater) take(n uint) (v int) {
	v = int(f.hold & (1<<n - 1))
	f.hold >>= n
	f.bits -= n
	return v
}

// step goes on by one step. It says if it needs more bits, and has then changed
// nothing.
func (f *Inflater) step(p []byte) (n int, more bool, err error) {
	switch f.state {
	case atBlock:
		if more = f.bits < 3; !more {
			err = f.block()
		}
	case atStored:
		if more = f.bits < f.bits%8+32; !more {
			err = f.stored()
		}
	case inStored:
		return f.literally(p)
	case atCodes:
		if more = f.bits < 14; !more {
			err = f.codes()
		}
	case atLenLens:
		if more = f.bits < 3; !more {
			err = f.lenLen()
		}
	case atLens:
		more, err = f.nextLen()
	case atSymbol:
		return f.symbol(p)
	case inCopy:
		for n < len(p) && f.left > 0 {
			p[n] = f.window[(f.at-f.back)&(windowSize-1)]
			f.put(p[n])
			n++
			f.left--
		}
		if f.left == 0 {
			f.state = atSymbol
		}
	case inflateEnd:
		err = io.EOF
	}
	return n, more, err
}

// put adds a byte to the window.
func (f *Inflater) put(c byte) {
	switch {
	case len(f.window) == windowSize:
		f.window[f.at] = c
	case len(f.window) == cap(f.window): // append would go beyond the size
		grown := make([]byte, len(f.window), max(1<<10, min(2*cap(f.window), windowSize)))
		copy(grown, f.window)
		f.window = append(grown, c)
	default:
		f.window = append(f.window, c)
	}
	f.at = (f.at + 1) & (windowSize - 1)
}

func (f *Inflater) block() error {
	f.final = f.take(1) == 1
	switch f.take(2) {
	case 0:
		f.state = atStored
	case 1:
		f.fixedCodes()
		f.state = atSymbol
	case 2:
		f.state = atCodes
	default:
		return f.damaged()
	}
	return nil
}

// damaged makes every later Read fail too.
func (f *Inflater) damaged() error {
	f.state, f.final, f.hold, f.bits = atBlock, false, 6, 64 // a block of no kind
	return errInflate
}

func (f *Inflater) endBlock() {
	f.state = atBlock
	if f.final {
		f.state = inflateEnd
	}
}

func (f *Inflater) stored() error {
	f.take(f.bits % 8)
	f.left = f.take(16)
	if f.take(16) != f.left^0xffff {
		return f.damaged()
	}
	if f.state = inStored; f.left == 0 {
		f.endBlock()
	}
	return nil
}

func (f *Inflater) literally(p []byte) (n int, more bool, err error) {
	for n < len(p) && f.left > 0 && f.bits >= 8 {
		p[n] = byte(f.take(8))
		f.put(p[n])
		n++
		f.left--
	}
	if f.left == 0 {
		f.endBlock()
	}
	return n, n == 0 && f.left > 0, nil
}

// symbol decodes a literal, or a length with its distance.
func (f *Inflater) symbol(p []byte) (n int, more bool, err error) {
	hold, bits := f.hold, f.bits
	s, err := f.lit.decode(f)
	switch {
	case s == needBits:
	case err != nil:
		return 0, false, f.damaged()
	case s < endOfBlock:
		p[0] = byte(s)
		f.put(p[0])
		return 1, false, nil
	case s == endOfBlock:
		f.endBlock()
		return 0, false, nil
	default:
		if s -= endOfBlock + 1; s >= len(lengthBase) {
			return 0, false, f.damaged()
		}
		if extra := uint(lengthExtra[s]); f.bits >= extra {
			f.left = int(lengthBase[s]) + f.take(extra)
			d, err := f.dist.decode(f)
			if err != nil || d >= maxDistCodes {
				return 0, false, f.damaged()
			}
			if d != needBits && f.bits >= uint(distExtra[d]) {
				f.back = int(distBase[d]) + f.take(uint(distExtra[d]))
				if f.back > len(f.window) {
					return 0, false, f.damaged()
				}
				f.state = inCopy
				return 0, false, nil
			}
		}
	}
	f.hold, f.bits = hold, bits
	return 0, true, nil
}
