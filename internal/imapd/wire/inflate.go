// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"io"
)

var errCorrupt = errors.New("the compressed stream is damaged")

// Inflater reads what a client has compressed (RFC 4978, RFC 1951). Unlike
// compress/flate it gives out all that can be decoded of what has come, also
// after a Z_PARTIAL_FLUSH, which some clients send, and an error of the source,
// such as an interrupted wait, does it no harm: it goes on at the next Read.
//
// It makes no more than Read asks for, so however much a few bytes stand for,
// a Reader on top of it meets its limits first. It holds what it needs of the
// last 32 KiB: less as long as the client has sent less.
type Inflater struct {
	src       *bufio.Reader
	bitBuffer uint64 // bits that are not used yet, the next one lowest
	bitCount  uint   // how many
	state     inflateState
	final     bool // the block is the last
	window    []byte
	windowPos int // where in window the next byte goes
	remaining int // bytes left of a stored block, or of a copy
	distance  int // how far back the copy begins

	lens        [maxLitCodes + maxDistCodes]uint8 // of the block's codes, as they are read
	lenCount    int                               // how many were read
	litCount    int                               // of the codes: literals and lengths
	distCount   int                               // and distances
	lenLenCount int
	lit         prefixCode
	dist        prefixCode
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
	stateBlock        inflateState = iota // before the head of a block
	stateStoredLength                     // before the length of a stored block
	stateStored                           // within its bytes
	stateCodeCounts                       // before the numbers of codes
	stateLenLens                          // before the lengths of the code that the lengths are in
	stateLens                             // before the lengths
	stateSymbol                           // before a literal or a length with its distance
	stateCopy                             // within what these stand for
	stateEnd                              // behind the last block
)

// Read decodes at least one byte, waiting for the source only if nothing can be
// decoded otherwise. It returns io.EOF behind the last block.
func (f *Inflater) Read(p []byte) (n int, err error) {
	for n < len(p) {
		for f.bitCount <= 56 && f.src.Buffered() > 0 {
			c, _ := f.src.ReadByte() //nolint:errcheck // it is there
			f.pushByte(c)
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
			return n, errCorrupt // no step needs more bits than there is room for
		case n > 0:
			return n, nil
		}
		c, err := f.src.ReadByte()
		if err != nil {
			return 0, err
		}
		f.pushByte(c)
	}
	return n, nil
}

func (f *Inflater) pushByte(c byte) {
	f.bitBuffer |= uint64(c) << f.bitCount
	f.bitCount += 8
}

// takeBits uses up bits that are there.
func (f *Inflater) takeBits(n uint) (v int) {
	v = int(f.bitBuffer & (1<<n - 1))
	f.bitBuffer >>= n
	f.bitCount -= n
	return v
}

// step goes on by one step. It says if it needs more bits, and has then changed
// nothing.
func (f *Inflater) step(p []byte) (n int, more bool, err error) {
	switch f.state {
	case stateBlock:
		if more = f.bitCount < 3; !more {
			err = f.blockHeader()
		}
	case stateStoredLength:
		if more = f.bitCount < f.bitCount%8+32; !more {
			err = f.storedLength()
		}
	case stateStored:
		return f.copyStored(p)
	case stateCodeCounts:
		if more = f.bitCount < 14; !more {
			err = f.codeCounts()
		}
	case stateLenLens:
		if more = f.bitCount < 3; !more {
			err = f.lenLen()
		}
	case stateLens:
		more, err = f.nextLen()
	case stateSymbol:
		return f.symbol(p)
	case stateCopy:
		for n < len(p) && f.remaining > 0 {
			p[n] = f.window[(f.windowPos-f.distance)&(windowSize-1)]
			f.putByte(p[n])
			n++
			f.remaining--
		}
		if f.remaining == 0 {
			f.state = stateSymbol
		}
	case stateEnd:
		err = io.EOF
	}
	return n, more, err
}

// putByte adds a byte to the window.
func (f *Inflater) putByte(c byte) {
	switch {
	case len(f.window) == windowSize:
		f.window[f.windowPos] = c
	case len(f.window) == cap(f.window): // append would go beyond the size
		grown := make([]byte, len(f.window), max(1<<10, min(2*cap(f.window), windowSize)))
		copy(grown, f.window)
		f.window = append(grown, c)
	default:
		f.window = append(f.window, c)
	}
	f.windowPos = (f.windowPos + 1) & (windowSize - 1)
}

func (f *Inflater) blockHeader() error {
	f.final = f.takeBits(1) == 1
	switch f.takeBits(2) {
	case 0:
		f.state = stateStoredLength
	case 1:
		f.fixedCodes()
		f.state = stateSymbol
	case 2:
		f.state = stateCodeCounts
	default:
		return f.corruptError()
	}
	return nil
}

// corruptError makes every later Read fail too.
func (f *Inflater) corruptError() error {
	f.state, f.final, f.bitBuffer, f.bitCount = stateBlock, false, 6, 64 // a block of no kind
	return errCorrupt
}

func (f *Inflater) endBlock() {
	f.state = stateBlock
	if f.final {
		f.state = stateEnd
	}
}

func (f *Inflater) storedLength() error {
	f.takeBits(f.bitCount % 8)
	f.remaining = f.takeBits(16)
	if f.takeBits(16) != f.remaining^0xffff {
		return f.corruptError()
	}
	if f.state = stateStored; f.remaining == 0 {
		f.endBlock()
	}
	return nil
}

func (f *Inflater) copyStored(p []byte) (n int, more bool, err error) {
	for n < len(p) && f.remaining > 0 && f.bitCount >= 8 {
		p[n] = byte(f.takeBits(8))
		f.putByte(p[n])
		n++
		f.remaining--
	}
	if f.remaining == 0 {
		f.endBlock()
	}
	return n, n == 0 && f.remaining > 0, nil
}

// symbol decodes a literal, or a length with its distance.
func (f *Inflater) symbol(p []byte) (n int, more bool, err error) {
	hold, bits := f.bitBuffer, f.bitCount
	s, err := f.lit.decode(f)
	switch {
	case s == needBits:
	case err != nil:
		return 0, false, f.corruptError()
	case s < endOfBlock:
		p[0] = byte(s)
		f.putByte(p[0])
		return 1, false, nil
	case s == endOfBlock:
		f.endBlock()
		return 0, false, nil
	default:
		if s -= endOfBlock + 1; s >= len(lengthBase) {
			return 0, false, f.corruptError()
		}
		if extra := uint(lengthExtra[s]); f.bitCount >= extra {
			f.remaining = int(lengthBase[s]) + f.takeBits(extra)
			d, err := f.dist.decode(f)
			if err != nil || d >= maxDistCodes {
				return 0, false, f.corruptError()
			}
			if d != needBits && f.bitCount >= uint(distExtra[d]) {
				f.distance = int(distBase[d]) + f.takeBits(uint(distExtra[d]))
				if f.distance > len(f.window) {
					return 0, false, f.corruptError()
				}
				f.state = stateCopy
				return 0, false, nil
			}
		}
	}
	f.bitBuffer, f.bitCount = hold, bits
	return 0, true, nil
}
