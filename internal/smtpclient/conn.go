// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// Conn is one connection, greeted and ready for messages. It serves one
// goroutine at a time.
type Conn struct {
	w     *wire
	opts  Options
	times Timeouts
	ext   Extensions
	facts Facts
	log   *transcript // of the transaction in hand; while dialling, of that

	mask     *strings.Replacer // hides secrets in replies; nil: there are none
	preamble string            // transcript up to the first message
	begun    int               // transactions begun
	reset    bool              // the host may hold half a transaction: RSET goes first
	closing  bool              // the host said 421, or we do not understand it
	closed   bool
}

// Extensions returns what the host announced, after TLS if there is TLS.
func (c *Conn) Extensions() Extensions { return c.ext }

// Facts returns with whom we speak.
func (c *Conn) Facts() Facts { return c.facts }

// Transcript returns the conversation before the first message.
func (c *Conn) Transcript() string { return c.preamble }

// TLS returns the state of TLS; false when the connection is in clear.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	if t, ok := c.w.nc.(*tls.Conn); ok {
		return t.ConnectionState(), true
	}
	return tls.ConnectionState{}, false
}

// Usable reports whether the connection can take another message.
func (c *Conn) Usable() bool {
	return !c.closed && !c.closing && c.w.err == nil &&
		(c.ext.MaxMessages == 0 || c.begun < c.ext.MaxMessages)
}

// Close says QUIT if the connection is sound, and closes it. It takes
// Timeouts.Quit at the most. No delivery depends on its error.
func (c *Conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	if c.w.err == nil && !c.closing {
		c.w.write = c.times.Quit
		_, _ = c.w.bw.WriteString("QUIT\r\n")
		if c.w.flush() == nil {
			_, _ = c.w.reply(c.times.Quit)
		}
	}
	// Closing the TCP connection under TLS: close_notify to a peer that does
	// not read would cost five seconds, and QUIT has ended the session.
	if err := c.w.tcp.Close(); err != nil {
		return fmt.Errorf("closing the connection: %w", err)
	}
	return nil
}

// command sends one line and reads its reply. shown replaces the line in the
// transcript where it holds a secret.
func (c *Conn) command(line, shown string) (Reply, error) {
	c.w.write = c.times.Command
	_, _ = c.w.bw.WriteString(line)
	_, _ = c.w.bw.WriteString("\r\n")
	c.log.client(shown)
	if err := c.w.flush(); err != nil {
		return Reply{}, err
	}
	return c.heard(c.w.reply(c.times.Command))
}

// heard records a reply.
func (c *Conn) heard(r Reply, err error) (Reply, error) {
	if err != nil {
		return r, err
	}
	if c.mask != nil {
		for i, line := range r.Lines {
			r.Lines[i] = c.mask.Replace(line)
		}
	}
	c.log.server(r)
	if r.Code == 421 {
		c.closing = true
	}
	return r, nil
}
