// SPDX-License-Identifier: Apache-2.0

package wire

// Lengths and distances of copies, with how many bits come behind (RFC 1951
// §3.2.5).
var (
	lengthBase = [...]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195,
		227, 258}
	lengthExtra = [...]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase    = [maxDistCodes]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049,
		3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distExtra = [maxDistCodes]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
	// lenOrder is in which order the lengths of the lengths' code come.
	lenOrder = [...]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}
)

const (
	maxCodeBits = 15
	// needBits is what decode returns while a symbol is not there in full.
	needBits = -1
)

// prefixCode is a Huffman code in canonical form.
type prefixCode struct {
	count   [maxCodeBits + 1]uint16 // codes of each length
	symbols [maxLitCodes + 2]uint16 // in the order of their codes
}

// set makes the code from the lengths of its symbols, 0 for those it has not.
// It reports whether that is a code in which every sequence of bits means
// something; a single symbol of one bit is one too.
func (c *prefixCode) set(lens []uint8) bool {
	c.count = [maxCodeBits + 1]uint16{}
	for _, n := range lens {
		c.count[n]++
	}
	used := len(lens) - int(c.count[0])
	c.count[0] = 0
	free := 1
	var next [maxCodeBits + 2]uint16
	for n := 1; n <= maxCodeBits; n++ {
		if free = 2*free - int(c.count[n]); free < 0 {
			return false
		}
		next[n+1] = next[n] + c.count[n]
	}
	for s, n := range lens {
		if n > 0 {
			c.symbols[next[n]] = uint16(s)
			next[n]++
		}
	}
	return free == 0 || used == int(c.count[1])
}

// decode takes the next symbol, or returns needBits; then bits may be gone.
func (c *prefixCode) decode(f *Inflater) (int, error) {
	code, first, index := 0, 0, 0
	for n := uint(1); n <= maxCodeBits; n++ {
		if n > f.bitCount {
			return needBits, nil
		}
		code |= int(f.bitBuffer >> (n - 1) & 1)
		count := int(c.count[n])
		if code < first+count {
			f.takeBits(n)
			return int(c.symbols[index+code-first]), nil
		}
		index += count
		first = (first + count) << 1
		code <<= 1
	}
	return 0, errCorrupt
}

// fixedCodes are those of a block that brings none (RFC 1951 §3.2.6).
func (f *Inflater) fixedCodes() {
	var lens [maxLitCodes + 2]uint8
	for s := range lens {
		switch {
		case s < 144 || s >= 280:
			lens[s] = 8
		case s < 256:
			lens[s] = 9
		default:
			lens[s] = 7
		}
	}
	f.lit.set(lens[:])
	for s := range maxDistCodes + 2 {
		lens[s] = 5
	}
	f.dist.set(lens[:maxDistCodes+2])
}

func (f *Inflater) codeCounts() error {
	f.litCount, f.distCount, f.lenLenCount = f.takeBits(5)+257, f.takeBits(5)+1, f.takeBits(4)+4
	if f.litCount > maxLitCodes || f.distCount > maxDistCodes {
		return f.corruptError()
	}
	f.lenCount, f.lens = 0, [maxLitCodes + maxDistCodes]uint8{}
	f.state = stateLenLens
	return nil
}

func (f *Inflater) lenLen() error {
	f.lens[lenOrder[f.lenCount]] = uint8(f.takeBits(3))
	if f.lenCount++; f.lenCount < f.lenLenCount {
		return nil
	}
	if !f.lit.set(f.lens[:len(lenOrder)]) {
		return f.corruptError()
	}
	f.lenCount, f.lens = 0, [maxLitCodes + maxDistCodes]uint8{}
	f.state = stateLens
	return nil
}

// nextLen takes a code length, or how often one is repeated.
func (f *Inflater) nextLen() (more bool, err error) {
	hold, bits := f.bitBuffer, f.bitCount
	s, err := f.lit.decode(f)
	if err != nil {
		return false, f.corruptError()
	}
	var extra uint
	var least int
	switch s {
	case 16:
		extra, least = 2, 3
	case 17:
		extra, least = 3, 3
	case 18:
		extra, least = 7, 11
	}
	if s == needBits || f.bitCount < extra {
		f.bitBuffer, f.bitCount = hold, bits
		return true, nil
	}
	length, times := uint8(s), 1
	if extra > 0 {
		length, times = 0, least+f.takeBits(extra)
		if s == 16 {
			if f.lenCount == 0 {
				return false, f.corruptError()
			}
			length = f.lens[f.lenCount-1]
		}
	}
	if f.lenCount+times > f.litCount+f.distCount {
		return false, f.corruptError()
	}
	for range times {
		f.lens[f.lenCount] = length
		f.lenCount++
	}
	if f.lenCount < f.litCount+f.distCount {
		return false, nil
	}
	if f.lens[endOfBlock] == 0 || !f.lit.set(f.lens[:f.litCount]) || !f.dist.set(f.lens[f.litCount:f.lenCount]) {
		return false, f.corruptError()
	}
	f.state = stateSymbol
	return false, nil
}
