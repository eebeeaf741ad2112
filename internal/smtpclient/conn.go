// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"crypto/tls"
	"fmt"
	"strings"
)

// Conn is an open connection to a host, ready for messages. It must be used by one goroutine at a
// time.
type Conn struct {
	transport  *transport
	opts       Options
	timeouts   Timeouts
	ext        Extensions
	peer       Peer
	transcript *transcript // transcript of the current transaction, or of the session's start

	mask         *strings.Replacer // hides secrets in replies; nil: no secrets
	preamble     string            // transcript up to the first message
	transactions int               // number of transactions begun
	needsReset   bool              // whether to send RSET first: the host may have an unfinished transaction
	closing      bool              // whether the host sent 421, or the replies make no sense
	closed       bool
}

// Extensions returns the extensions that the host announced, after STARTTLS if that was used.
func (c *Conn) Extensions() Extensions { return c.ext }

// Peer returns the host that the connection leads to.
func (c *Conn) Peer() Peer { return c.peer }

// Transcript returns the transcript up to the first message.
func (c *Conn) Transcript() string { return c.preamble }

// TLS returns the TLS state; false if the connection is in clear.
func (c *Conn) TLS() (tls.ConnectionState, bool) {
	if t, ok := c.transport.nc.(*tls.Conn); ok {
		return t.ConnectionState(), true
	}
	return tls.ConnectionState{}, false
}

// Usable reports whether the connection can send another message.
func (c *Conn) Usable() bool {
	return !c.closed && !c.closing && c.transport.err == nil &&
		(c.ext.MaxMessages == 0 || c.transactions < c.ext.MaxMessages)
}

// Close sends QUIT if the connection works, and closes it. It takes at most Timeouts.Quit. No
// delivery depends on its error.
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
	// Close the TCP connection under TLS: sending close_notify to a peer that does not read would
	// take five seconds, and QUIT has ended the session already.
	if err := c.transport.tcp.Close(); err != nil {
		return fmt.Errorf("closing the connection: %w", err)
	}
	return nil
}

// command sends one line and reads its reply. The transcript gets shown instead of the line, which
// may hold a secret.
func (c *Conn) command(line, shown string) (Reply, error) {
	c.transport.writeTimeout = c.timeouts.Command
	_, _ = c.transport.bw.WriteString(line)
	_, _ = c.transport.bw.WriteString("\r\n")
	c.transcript.addClientLine(shown)
	if err := c.transport.flush(); err != nil {
		return Reply{}, err
	}
	return c.recordReply(c.transport.readReply(c.timeouts.Command))
}

// recordReply adds a reply to the transcript, with secrets hidden.
func (c *Conn) recordReply(r Reply, err error) (Reply, error) {
	if err != nil {
		return r, err
	}
	if c.mask != nil {
		for i, line := range r.Lines {
			r.Lines[i] = c.mask.Replace(line)
		}
	}
	c.transcript.addServerReply(r)
	if r.Code == 421 {
		c.closing = true
	}
	return r, nil
}
