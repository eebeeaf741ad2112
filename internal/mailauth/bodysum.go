// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"math"
)

// bodySum is the hash of a body in one of its canonical forms, whole or of so
// many octets as a signature's l= says.
type bodySum struct {
	simple  bool
	length  int64 // -1: the whole body
	in      *cutHash
	relaxed bodyHash
	plain   plainHash
	digest  []byte // once finished
}

func newBodySum(simple bool, length int64) *bodySum {
	b := &bodySum{simple: simple, length: length, in: &cutHash{Hash: sha256.New(), left: math.MaxInt64}}
	if length >= 0 {
		b.in.left = length
	}
	if simple {
		b.plain.h = b.in
	} else {
		b.relaxed = bodyHash{h: b.in, buf: make([]byte, 0, 4<<10)}
	}
	return b
}

func (b *bodySum) write(p []byte) {
	if b.simple {
		b.plain.write(p)
	} else {
		b.relaxed.write(p)
	}
}

// finish ends the body. It returns the digest and how long the canonical body
// is.
func (b *bodySum) finish() (digest []byte, size int64) {
	if b.digest == nil {
		if b.simple {
			b.plain.finish()
		} else {
			b.relaxed.sum()
		}
		b.digest = b.in.Sum(nil)
	}
	return b.digest, b.in.size
}

// cutHash hashes the first octets of what it is given, and counts all.
type cutHash struct {
	hash.Hash
	left, size int64
}

// Write is that of io.Writer.
func (c *cutHash) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	part := p[:min(int64(len(p)), c.left)]
	c.left -= int64(len(part))
	_, _ = c.Hash.Write(part)
	return len(p), nil
}

// plainHash hashes a body in simple form (RFC 6376 §3.4.3): but for empty
// lines at its end it is as it came. Bare CR and LF count as CRLF.
type plainHash struct {
	h       hash.Hash
	pending int64 // line ends that count only if something follows
	cr      bool  // the last byte was a CR
}

func (p *plainHash) write(b []byte) {
	for len(b) > 0 {
		n := bytes.IndexAny(b, "\r\n")
		if n < 0 {
			n = len(b)
		}
		if n > 0 {
			for ; p.pending > 0; p.pending-- {
				_, _ = p.h.Write([]byte("\r\n"))
			}
			_, _ = p.h.Write(b[:n])
			p.cr = false
			b = b[n:]
			continue
		}
		if b[0] == '\r' || !p.cr {
			p.pending++
		}
		p.cr = b[0] == '\r'
		b = b[1:]
	}
}

// finish ends the body, in one line end even if it has nothing else.
func (p *plainHash) finish() { _, _ = p.h.Write([]byte("\r\n")) }
