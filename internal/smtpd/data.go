// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// data is DATA (RFC 5321 §4.1.1.4).
func (c *conn) data(ctx context.Context, arg string) reply {
	if arg != "" {
		return reply{501, "5.5.4", "DATA has no argument"}
	}
	if r := c.ready(); r.code != 0 {
		return r
	}
	c.write(reply{354, "", "Go on; end with a dot on a line of its own"})
	return c.receive(ctx, &dotReader{c: c, start: true})
}

// ready says what is missing before a message may come.
func (c *conn) ready() reply {
	switch {
	case c.letter == nil:
		return reply{503, "5.5.1", "Say MAIL first"}
	case len(c.letter.rcpts) == 0:
		return reply{554, "5.5.1", "No recipient was accepted"}
	}
	return reply{}
}

// source is where a message's octets come from: DATA or BDAT.
type source interface {
	io.Reader
	// drain reads on to where the next command begins.
	drain() error
}

// content reads a message from its source, within the limit of size, and
// remembers why the source ended.
type content struct {
	source
	c    *conn
	size int64
	err  error // io.EOF at the message's end
}

var errTooLarge = fault.New(fault.TooLarge, "message_too_large", "The message is too large")

// Read is that of io.Reader.
func (m *content) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.source.Read(p)
	m.size += int64(n)
	m.c.until = m.c.until.Add(time.Duration(n) * time.Second / messageRate)
	if m.size > m.c.srv.maxSize() {
		err = errTooLarge
	}
	m.err = err
	return n, err
}

// receive takes the message of the transaction in hand, which ends with it.
func (c *conn) receive(ctx context.Context, src source) reply {
	defer c.end()
	c.until = time.Now().Add(messageTime)
	in := &content{source: src, c: c}
	id, err := c.hand(ctx, in)
	if in.err != io.EOF {
		if r, over := c.broken(in, err); over {
			return r
		}
	}
	if err != nil {
		r := c.translate(err)
		c.log.Info("message refused", "code", r.code, "enhanced", r.enhanced, "error", err, "size", in.size, "helo", c.helo)
		return r
	}
	c.dull = 0
	c.accepted(id, in.size)
	return reply{250, "2.0.0", "Accepted as " + id.String()}
}

// hand gives the message to the receiver.
func (c *conn) hand(ctx context.Context, in *content) (db.ID, error) {
	var r io.Reader = in
	if c.srv.Mode == MX {
		r = message.RefuseBare(in) // outbound mends what our users send
	}
	if c.body == nil {
		c.body = bufio.NewReaderSize(r, readBuffer)
	} else {
		c.body.Reset(r)
	}
	header, err := message.ReadHeader(c.body)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if header.Count("Received") >= maxReceived {
		return 0, fault.New(fault.Denied, codeLoop, "The message goes round in circles: it was received too many times")
	}
	// The struct hides WriteTo, which would make a buffer for each message.
	whole := struct{ io.Reader }{io.MultiReader(bytes.NewReader(header), c.body, last{c, ctx})}
	return c.letter.Message(ctx, c.received(), whole)
}

// last is the end of a message. Its user may have begun it long ago: if the log-in
// has ended since, it does not end well.
type last struct {
	c   *conn
	ctx context.Context
}

// Read is that of io.Reader.
func (l last) Read([]byte) (int, error) {
	if l.c.user != nil {
		if r := l.c.current(l.ctx); r.code != 0 {
			return 0, replyError{r}
		}
	}
	return 0, io.EOF
}

// broken is called when the message was refused, or failed, before its end. It
// skips the rest, so that the dialog can go on, or says with what it ends.
func (c *conn) broken(in *content, err error) (r reply, over bool) {
	var f *fault.Error
	switch {
	case errors.Is(in.err, errReset):
		return ok, true
	case in.err != nil && !errors.As(in.err, &f):
		c.closing = true
		c.lost(in.err)
		return reply{}, true
	}
	if in.drain() == nil {
		return reply{}, false
	}
	c.closing = true
	r = c.translate(err)
	if r.code < 500 {
		r.code = 421
	}
	return r, true
}

// received is what our Received field says of the message in hand. Of our own
// users it does not tell where they are.
func (c *conn) received() message.Received {
	r := message.Received{By: c.srv.Host, With: c.protocol()}
	if c.tls != nil {
		r.TLS = tls.VersionName(c.tls.Version) + " " + tls.CipherSuiteName(c.tls.CipherSuite)
	}
	if c.srv.Mode == MX {
		r.Helo, r.Addr = c.helo, c.ip
		if len(c.letter.rcpts) == 1 && !strings.ContainsAny(c.letter.rcpts[0], "\"\\ ") {
			r.For = c.letter.rcpts[0]
		}
	}
	return r
}

// protocol names how the message came (RFC 3848, RFC 6531 §4.3).
func (c *conn) protocol() string {
	if !c.extended {
		return "SMTP"
	}
	name := "ESMTP"
	if c.letter.utf8 {
		name = "UTF8SMTP"
	}
	if c.tls != nil {
		name += "S"
	}
	if c.user != nil {
		name += "A"
	}
	return name
}
