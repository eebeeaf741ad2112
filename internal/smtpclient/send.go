// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"time"
)

// Send sends one message and returns what became of it. The connection may be
// used again if Usable says so.
func (c *Conn) Send(ctx context.Context, m *Message) *Result {
	var res *Result
	next := func() *Message {
		one := m
		m = nil
		return one
	}
	c.SendAll(ctx, next, func(_ *Message, r *Result) { res = r })
	return res
}

// SendAll sends messages as next hands them out, until it returns nil or the
// connection can take no more. Every message handed out is reported once, in
// order; both functions are called on this goroutine. next must not wait for
// work that is yet to come: the reply to the message before is read after it.
//
// With PIPELINING a message costs one round trip: MAIL, RCPT and DATA go out
// in one group behind the bytes of the message before (RFC 2920 section 3.1).
func (c *Conn) SendAll(ctx context.Context, next func() *Message, report func(*Message, *Result)) {
	release := c.transport.bindContext(ctx)
	defer release()
	cur := c.startTransaction(next, report)
	for cur != nil {
		c.transport.txDeadline = time.Now().Add(c.timeouts.Transaction)
		var following *transaction
		if c.runCommands(cur) && c.sendBody(cur) {
			if c.ext.Pipelining {
				following = c.startTransaction(next, report)
				_ = c.transport.flush() // its failure shows when following is led
			}
			c.readFinalReply(cur)
		}
		c.completeResult(cur)
		report(cur.msg, cur.result)
		if following == nil {
			following = c.startTransaction(next, report)
		}
		cur = following
	}
}

// startTransaction takes the next message that the host can be asked to take, and
// buffers its first commands. It returns nil when there is none, or when the
// connection can take no more.
func (c *Conn) startTransaction(next func() *Message, report func(*Message, *Result)) *transaction {
	for c.Usable() {
		m := next()
		if m == nil {
			return nil
		}
		t := c.newTransaction(m)
		if t.hasPending() {
			c.planCommands(t)
			c.sendCommands(t)
			return t
		}
		c.completeResult(t)
		report(t.msg, t.result)
	}
	return nil
}

// completeResult completes a transaction's result.
func (c *Conn) completeResult(t *transaction) {
	if t.closingReply != nil {
		t.setRemainingOutcomes(Outcome{Class: Temporary, Stage: StageRcpt, Reply: *t.closingReply})
	}
	t.setRemainingOutcomes(localOutcome(Temporary, StageRcpt, "4.4.2", "the host closed the conversation"))
	t.result.Transcript = c.preamble + t.transcript.text()
}
