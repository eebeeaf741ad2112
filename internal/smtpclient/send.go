// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"context"
	"time"
)

// Send sends one message and returns its result. The connection can be used again if Usable returns
// true.
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

// SendAll sends the messages that next returns, until that returns nil or the connection can send
// no more. It reports every message once, in order, and calls both functions on the caller's
// goroutine. next must not wait for future work: the reply to the previous message is read only
// after it returns.
//
// With PIPELINING a message costs one round trip: MAIL, RCPT and DATA are sent in one group after
// the bytes of the previous message (RFC 2920 section 3.1).
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
				_ = c.transport.flush() // a failure shows when following runs
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

// startTransaction fetches the next message that the host can accept, and buffers its first
// commands. It returns nil if there is none, or if the connection can send no more.
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

// completeResult sets the remaining outcomes and the transcript of a transaction's result.
func (c *Conn) completeResult(t *transaction) {
	if t.closingReply != nil {
		t.setRemainingOutcomes(Outcome{Class: Temporary, Stage: StageRcpt, Reply: *t.closingReply})
	}
	t.setRemainingOutcomes(localOutcome(Temporary, StageRcpt, "4.4.2", "the host closed the conversation"))
	t.result.Transcript = c.preamble + t.transcript.text()
}
