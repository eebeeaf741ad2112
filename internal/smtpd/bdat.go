// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
)

// bdat handles BDAT (RFC 3030 §2): the message comes in chunks of a given size.
func (c *conn) bdat(ctx context.Context, arg string) reply {
	size, last, good := parseBDAT(arg)
	if !good {
		// The start of the next command is unknown.
		c.closing = true
		return reply{501, "5.5.4", "The syntax is BDAT size [LAST]"}
	}
	if r := c.checkTransaction(); r.code != 0 {
		return c.skipChunk(size, r)
	}
	return c.receiveMessage(ctx, &bdatReader{c: c, remaining: size, lastChunk: last})
}

func parseBDAT(arg string) (size int64, last, good bool) {
	number, rest, more := strings.Cut(arg, " ")
	if more && !strings.EqualFold(strings.TrimSpace(rest), "LAST") {
		return 0, false, false
	}
	n, err := strconv.ParseUint(number, 10, 62)
	return int64(n), more, err == nil
}

// skipChunk discards a rejected chunk, and returns the reply r.
func (c *conn) skipChunk(size int64, r reply) reply {
	if size > 2*c.srv.maxSize() {
		c.closing = true
		return r
	}
	if err := c.discard(size); err != nil {
		c.handleReadError(err)
		c.closing = true
		return reply{}
	}
	return r
}

var (
	errClientReset = errors.New("the client gave the message up")
	errClientQuit  = errors.New("the client left in the middle of a message")
)

// bdatReader reads a message from successive BDAT chunks. It handles the commands between them.
type bdatReader struct {
	c         *conn
	remaining int64 // octets left of the chunk
	lastChunk bool  // whether it is the last chunk
	total     int64 // octets of all chunks so far
}

// Read implements io.Reader.
func (k *bdatReader) Read(p []byte) (int, error) {
	for k.remaining == 0 {
		if k.lastChunk {
			return 0, io.EOF
		}
		k.c.writeReply(k.c.enforceLimits(reply{250, "2.0.0", strconv.FormatInt(k.total, 10) + " octets so far"}))
		if err := k.nextChunk(); err != nil {
			return 0, err
		}
	}
	if err := k.c.setBlockDeadline(); err != nil {
		return 0, err
	}
	n, err := k.c.br.Read(p[:min(int64(len(p)), k.remaining)])
	k.remaining -= int64(n)
	k.total += int64(n)
	return n, unexpectedEOF(err)
}

// nextChunk reads commands until the next chunk begins.
func (k *bdatReader) nextChunk() error {
	for !k.c.closing {
		line, err := k.c.readLine()
		if err != nil && !errors.Is(err, errBadLine) {
			return unexpectedEOF(err)
		}
		r := reply{503, "5.5.1", "Only BDAT, NOOP, RSET and QUIT are possible now"}
		verb, arg, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "BDAT":
			size, last, good := parseBDAT(strings.Trim(arg, " "))
			if good {
				k.remaining, k.lastChunk = size, last
				return nil
			}
			k.c.closing = true
			r = reply{501, "5.5.4", "The syntax is BDAT size [LAST]"}
		case "NOOP":
			k.c.idleCommands++
			r = replyOK
		case "RSET":
			k.c.idleCommands++
			return errClientReset
		case "QUIT":
			k.c.closing = true
			r = reply{221, "2.0.0", "Goodbye"}
		}
		k.c.writeReply(k.c.enforceLimits(r))
	}
	return errClientQuit
}

// drain skips the rest of the chunk. Later chunks then find no transaction.
func (k *bdatReader) drain() error {
	if k.remaining > 2*k.c.srv.maxSize() {
		return errTooMuchData
	}
	return k.c.discard(k.remaining)
}
