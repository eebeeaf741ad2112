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

// data handles DATA (RFC 5321 §4.1.1.4).
func (c *conn) data(ctx context.Context, arg string) reply {
	if arg != "" {
		return reply{501, "5.5.4", "DATA has no argument"}
	}
	if r := c.checkTransaction(); r.code != 0 {
		return r
	}
	c.writeReply(reply{354, "", "Go on; end with a dot on a line of its own"})
	return c.receiveMessage(ctx, &dotReader{c: c, lineStart: true})
}

// checkTransaction returns a rejection if a message can't come yet, else the zero reply.
func (c *conn) checkTransaction() reply {
	switch {
	case c.tx == nil:
		return reply{503, "5.5.1", "Say MAIL first"}
	case len(c.tx.accepted) == 0:
		return reply{554, "5.5.1", "No recipient was accepted"}
	}
	return reply{}
}

// messageSource is the source of a message's octets: DATA or BDAT.
type messageSource interface {
	io.Reader
	// drain skips everything up to the next command.
	drain() error
}

// messageReader reads a message from its source, within the size limit, and remembers why the
// source ended.
type messageReader struct {
	messageSource
	c    *conn
	size int64
	err  error // io.EOF at the message's end
}

var errTooLarge = fault.New(fault.TooLarge, "message_too_large", "The message is too large")

// Read implements io.Reader.
func (m *messageReader) Read(p []byte) (int, error) {
	if m.err != nil {
		return 0, m.err
	}
	n, err := m.messageSource.Read(p)
	m.size += int64(n)
	m.c.messageDeadline = m.c.messageDeadline.Add(time.Duration(n) * time.Second / minMessageRate)
	if m.size > m.c.srv.maxSize() {
		err = errTooLarge
	}
	m.err = err
	return n, err
}

// receiveMessage receives the message of the current transaction, and ends the transaction.
func (c *conn) receiveMessage(ctx context.Context, src messageSource) reply {
	defer c.resetTransaction()
	c.messageDeadline = time.Now().Add(messageTimeout)
	in := &messageReader{messageSource: src, c: c}
	id, err := c.passToBackend(ctx, in)
	if in.err != io.EOF {
		if r, over := c.abortMessage(in, err); over {
			return r
		}
	}
	if err != nil {
		r := c.errorReply(err)
		c.log.Info("message refused", "code", r.code, "enhanced", r.enhanced, "error", err, "size", in.size, "helo", c.helo)
		return r
	}
	c.idleCommands = 0
	c.logAccepted(id, in.size)
	return reply{250, "2.0.0", "Accepted as " + id.String()}
}

// passToBackend passes the message to the backend.
func (c *conn) passToBackend(ctx context.Context, in *messageReader) (db.ID, error) {
	var r io.Reader = in
	if c.srv.Mode == MX {
		r = message.RejectBareLineEnds(in) // on submission, outbound corrects the line ends
	}
	if c.body == nil {
		c.body = bufio.NewReaderSize(r, readBufferSize)
	} else {
		c.body.Reset(r)
	}
	header, err := message.ReadHeader(c.body)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if header.Count("Received") >= maxReceivedFields {
		return 0, fault.New(fault.Denied, codeLoop, "The message goes round in circles: it was received too many times")
	}
	// The struct hides WriteTo, which would allocate a buffer for each message.
	whole := struct{ io.Reader }{io.MultiReader(bytes.NewReader(header), c.body, loginCheckReader{c, ctx})}
	return c.tx.ReceiveMessage(ctx, c.receivedField(), whole)
}

// loginCheckReader is the end of a message, which may have begun long ago. It returns an error if
// the login has been revoked since.
type loginCheckReader struct {
	c   *conn
	ctx context.Context
}

// Read implements io.Reader.
func (l loginCheckReader) Read([]byte) (int, error) {
	if l.c.user != nil {
		if r := l.c.checkLogin(l.ctx); r.code != 0 {
			return 0, replyError{r}
		}
	}
	return 0, io.EOF
}

// abortMessage handles a message that was rejected, or failed, before its end. It skips the rest,
// so that the session can continue, or returns the last reply and true.
func (c *conn) abortMessage(in *messageReader, err error) (r reply, over bool) {
	var f *fault.Error
	switch {
	case errors.Is(in.err, errClientReset):
		return replyOK, true
	case in.err != nil && !errors.As(in.err, &f):
		c.closing = true
		c.handleReadError(in.err)
		return reply{}, true
	}
	if in.drain() == nil {
		return reply{}, false
	}
	c.closing = true
	r = c.errorReply(err)
	if r.code < 500 {
		r.code = 421
	}
	return r, true
}

// receivedField returns the data of the Received field for the current message. For submission it
// omits the client's address and name, for privacy.
func (c *conn) receivedField() message.ReceivedField {
	r := message.ReceivedField{By: c.srv.Host, With: c.protocol()}
	if c.tls != nil {
		r.TLS = tls.VersionName(c.tls.Version) + " " + tls.CipherSuiteName(c.tls.CipherSuite)
	}
	if c.srv.Mode == MX {
		r.Helo, r.Addr = c.helo, c.ip
		if len(c.tx.accepted) == 1 && !strings.ContainsAny(c.tx.accepted[0], "\"\\ ") {
			r.For = c.tx.accepted[0]
		}
	}
	return r
}

// protocol returns the Received field's protocol name (RFC 3848, RFC 6531 §4.3).
func (c *conn) protocol() string {
	if !c.esmtp {
		return "SMTP"
	}
	name := "ESMTP"
	if c.tx.utf8 {
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
