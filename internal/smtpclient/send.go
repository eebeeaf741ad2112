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
	c.Each(ctx, next, func(_ *Message, r *Result) { res = r })
	return res
}

// Each sends messages as next hands them out, until it returns nil or the
// connection can take no more. Every message handed out is reported once, in
// order; both functions are called on this goroutine. next must not wait for
// work that is yet to come: the reply to the message before is read after it.
//
// With PIPELINING a message costs one round trip: MAIL, RCPT and DATA go out
// in one group behind the bytes of the message before (RFC 2920 section 3.1).
func (c *Conn) Each(ctx context.Context, next func() *Message, report func(*Message, *Result)) {
	release := c.w.use(ctx)
	defer release()
	cur := c.start(next, report)
	for cur != nil {
		c.w.end = time.Now().Add(c.times.Transaction)
		var following *transaction
		if c.converse(cur) && c.sendBody(cur) {
			if c.ext.Pipelining {
				following = c.start(next, report)
				_ = c.w.flush() // its failure shows when following is led
			}
			c.finish(cur)
		}
		c.conclude(cur)
		report(cur.m, cur.res)
		if following == nil {
			following = c.start(next, report)
		}
		cur = following
	}
}

// start takes the next message that the host can be asked to take, and
// buffers its first commands. It returns nil when there is none, or when the
// connection can take no more.
func (c *Conn) start(next func() *Message, report func(*Message, *Result)) *transaction {
	for c.Usable() {
		m := next()
		if m == nil {
			return nil
		}
		t := c.begin(m)
		if t.open() {
			c.plan(t)
			c.sendCommands(t)
			return t
		}
		c.conclude(t)
		report(t.m, t.res)
	}
	return nil
}

// conclude completes a transaction's result.
func (c *Conn) conclude(t *transaction) {
	if t.goodbye != nil {
		t.settleRest(Outcome{Class: Temporary, Stage: StageRcpt, Reply: *t.goodbye})
	}
	t.settleRest(local(Temporary, StageRcpt, "4.4.2", "the host closed the conversation"))
	t.res.Transcript = c.preamble + t.log.text()
}
