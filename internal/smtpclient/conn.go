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
	transport  *transport
	opts       Options
	timeouts   Timeouts
	ext        Extensions
	peer       Peer
	transcript *transcript // of the transaction in hand; while dialling, of that

	mask         *strings.Replacer // hides secrets in replies; nil: there are none
	preamble     string            // transcript up to the first message
	transactions int               // transactions begun
	needsReset   bool              // the host may hold half a transaction: RSET goes first
	closing      bool              // the host said 421, or we do not understand it
	closed       bool
}

// Extensions returns what the host announced, after TLS if there is TLS.
func (c *Conn) Extensions() Extensions { return c.ext }

// Peer returns with whom we speak.
func (c *Conn) Peer() Peer { return c.peer }

// Transcript returns the conversation before the first message.
func (c *Conn) Transcript() string { return c.preamble }

// TLS returns the state of TLS; false when the connection is in clear.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	if t, ok := c.transport.nc.(*tls.Conn); ok {
		return t.ConnectionState(), true
	}
	return tls.ConnectionState{}, false
}

// Usable reports whether the connection can take another message.
func (c *Conn) Usable() bool {
	return !c.closed && !c.closing && c.transport.err == nil &&
		(c.ext.MaxMessages == 0 || c.transactions < c.ext.MaxMessages)
}

// Close says QUIT if the connection is sound, and closes it. It takes
// Timeouts.Quit at the most. No delivery depends on its error.
func (c *Conn) Close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	if c.transport.err == nil && !c.closing {
		c.transport.writeTimeout = c.timeouts.Quit
		_, _ = c.transport.bw.WriteString("QUIT\r\n")
		if c.transport.flush() == nil {
			_, _ = c.transport.readReply(c.timeouts.Quit)
		}
	}
	// Closing the TCP connection under TLS: close_notify to a peer that does
	// not read would cost five seconds, and QUIT has ended the session.
	if err := c.transport.tcp.Close(); err != nil {
		return fmt.Errorf("closing the connection: %w", err)
	}
	return nil
}

// command sends one line and reads its reply. shown replaces the line in the
// transcript where it holds a secret.
func (c *Conn) command(line, shown string) (Reply, error) {
	c.transport.writeTimeout = c.timeouts.Command
	_, _ = c.transport.bw.WriteString(line)
	_, _ = c.transport.bw.WriteString("\r\n")
	c.transcript.client(shown)
	if err := c.transport.flush(); err != nil {
		return Reply{}, err
	}
	return c.recordReply(c.transport.readReply(c.timeouts.Command))
}

// recordReply records a reply.
func (c *Conn) recordReply(r Reply, err error) (Reply, error) {
	if err != nil {
		return r, err
	}
	if c.mask != nil {
		for i, line := range r.Lines {
			r.Lines[i] = c.mask.Replace(line)
		}
	}
	c.transcript.server(r)
	if r.Code == 421 {
		c.closing = true
	}
	return r, nil
}
