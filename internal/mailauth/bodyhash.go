// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"math"
)

// bodyHasher hashes a body in one canonical form: all of it, or the octets that a signature's l=
// covers.
type bodyHasher struct {
	isSimple bool
	length   int64 // -1: the whole body
	limited  *limitedHash
	relaxed  relaxedHash
	simple   simpleHash
	digest   []byte // set by finish
}

func newBodyHasher(simple bool, length int64) *bodyHasher {
	b := &bodyHasher{isSimple: simple, length: length, limited: &limitedHash{Hash: sha256.New(), left: math.MaxInt64}}
	if length >= 0 {
		b.limited.left = length
	}
	if simple {
		b.simple.h = b.limited
	} else {
		b.relaxed = relaxedHash{h: b.limited, buf: make([]byte, 0, 4<<10)}
	}
	return b
}

func (b *bodyHasher) write(p []byte) {
	if b.isSimple {
		b.simple.write(p)
	} else {
		b.relaxed.write(p)
	}
}

// finish ends the body. It returns the digest and the length of the canonical body.
func (b *bodyHasher) finish() (digest []byte, size int64) {
	if b.digest == nil {
		if b.isSimple {
			b.simple.finish()
		} else {
			b.relaxed.sum()
		}
		b.digest = b.limited.Sum(nil)
	}
	return b.digest, b.limited.size
}

// limitedHash hashes the first left octets written to it, and counts all.
type limitedHash struct {
	hash.Hash
	left, size int64
}

// Write implements io.Writer.
func (c *limitedHash) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	part := p[:min(int64(len(p)), c.left)]
	c.left -= int64(len(part))
	_, _ = c.Hash.Write(part)
	return len(p), nil
}

// simpleHash hashes a body in simple form (RFC 6376 §3.4.3): unchanged except for empty lines at
// its end. Bare CR and LF count as CRLF.
type simpleHash struct {
	h       hash.Hash
	pending int64 // line ends that are written only if more follows
	cr      bool  // the last byte was a CR
}

func (p *simpleHash) write(b []byte) {
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

// finish ends the body with one line end, even if the body is empty.
func (p *simpleHash) finish() { _, _ = p.h.Write([]byte("\r\n")) }
