// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
)

// bdat is BDAT (RFC 3030 §2): the message in chunks of a given size.
func (c *conn) bdat(ctx context.Context, arg string) reply {
	size, last, good := readChunk(arg)
	if !good {
		// Where the next command begins can't be known.
		c.closing = true
		return reply{501, "5.5.4", "The syntax is BDAT size [LAST]"}
	}
	if r := c.ready(); r.code != 0 {
		return c.skip(size, r)
	}
	return c.receive(ctx, &chunks{c: c, left: size, last: last})
}

func readChunk(arg string) (size int64, last, good bool) {
	number, rest, more := strings.Cut(arg, " ")
	if more && !strings.EqualFold(strings.TrimSpace(rest), "LAST") {
		return 0, false, false
	}
	n, err := strconv.ParseUint(number, 10, 62)
	return int64(n), more, err == nil
}

// skip drops a chunk that can't be taken, and replies why.
func (c *conn) skip(size int64, r reply) reply {
	if size > 2*c.srv.maxSize() {
		c.closing = true
		return r
	}
	if err := c.discard(size); err != nil {
		c.lost(err)
		c.closing = true
		return reply{}
	}
	return r
}

var (
	errReset = errors.New("the client gave the message up")
	errQuit  = errors.New("the client left in the middle of a message")
)

// chunks reads a message from one BDAT after another. The commands between
// them are carried out here.
type chunks struct {
	c    *conn
	left int64 // of the chunk
	last bool  // it is the last one
	done int64 // octets of all chunks so far
}

// Read is that of io.Reader.
func (k *chunks) Read(p []byte) (int, error) {
	for k.left == 0 {
		if k.last {
			return 0, io.EOF
		}
		k.c.write(k.c.count(reply{250, "2.0.0", strconv.FormatInt(k.done, 10) + " octets so far"}))
		if err := k.next(); err != nil {
			return 0, err
		}
	}
	if err := k.c.armBlock(); err != nil {
		return 0, err
	}
	n, err := k.c.br.Read(p[:min(int64(len(p)), k.left)])
	k.left -= int64(n)
	k.done += int64(n)
	return n, noEOF(err)
}

// next reads commands until the next chunk begins.
func (k *chunks) next() error {
	for !k.c.closing {
		line, err := k.c.readLine()
		if err != nil && !errors.Is(err, errLine) {
			return noEOF(err)
		}
		r := reply{503, "5.5.1", "Only BDAT, NOOP, RSET and QUIT are possible now"}
		verb, arg, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "BDAT":
			size, last, good := readChunk(strings.Trim(arg, " "))
			if good {
				k.left, k.last = size, last
				return nil
			}
			k.c.closing = true
			r = reply{501, "5.5.4", "The syntax is BDAT size [LAST]"}
		case "NOOP":
			k.c.dull++
			r = ok
		case "RSET":
			k.c.dull++
			return errReset
		case "QUIT":
			k.c.closing = true
			r = reply{221, "2.0.0", "Goodbye"}
		}
		k.c.write(k.c.count(r))
	}
	return errQuit
}

// drain skips the rest of the chunk. Chunks that follow find no transaction.
func (k *chunks) drain() error {
	if k.left > 2*k.c.srv.maxSize() {
		return errFlood
	}
	return k.c.discard(k.left)
}
