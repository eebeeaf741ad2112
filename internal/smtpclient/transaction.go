// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// These end a conversation in which the host contradicts itself.
var (
	errOutOfStep = errors.New("the host accepts a message that it has refused")
	errTooSoon   = errors.New("the host takes a message that it was not sent yet")
)

// window is how many commands may be under way unanswered. It keeps a long
// list of recipients from filling both sides' socket buffers, at which each
// would wait for the other (RFC 2920 section 3.1).
const window = 64

// Result is what became of a message.
type Result struct {
	Outcomes   []Outcome // one for each of Message.To, in its order
	Facts      Facts
	Transcript string
	DSN        bool // the host took over reporting: it knows DSN (RFC 3461)
	// Stale: a connection that had served before broke, or was closed by
	// 421, before the host acknowledged anything of this message. It was not
	// sent, Body is unread, and it may go out on another connection at once.
	Stale bool
	// Took is how many recipients the host had accepted when it hung up at the
	// next one; 0 if it did not.
	Took int
	// Err is the failure of the network, of the caller's context or of Body;
	// nil as long as the host answered everything.
	Err error
}

// ErrBody is the Err of a Result whose Body could not be read, which is no fault
// of the host.
var ErrBody = errors.New("reading the message")

// step is one command of a transaction.
type step struct {
	stage Stage // stageReset, or MAIL to DATA
	rcpt  int
}

const stageReset Stage = "rset"

// transaction is a message on its way over a connection.
type transaction struct {
	m     *Message
	res   *Result
	log   *transcript
	utf8  bool
	steps []step
	wrote int // steps written
	read  int // steps answered

	settled  []bool // per recipient: its outcome stands
	accepted int
	go354    bool
	reused   bool   // the connection had served before
	goodbye  *Reply // a 421 that came on the way
}

func (t *transaction) settle(i int, o Outcome) {
	if !t.settled[i] {
		t.settled[i] = true
		t.res.Outcomes[i] = o
	}
}

func (t *transaction) settleRest(o Outcome) {
	for i := range t.settled {
		t.settle(i, o)
	}
}

// open reports whether any recipient is still undecided.
func (t *transaction) open() bool {
	for _, s := range t.settled {
		if !s {
			return true
		}
	}
	return false
}

// begin checks a message against what the host can take. What cannot work is
// settled here, without a word to the host.
func (c *Conn) begin(m *Message) *transaction {
	t := &transaction{
		m: m, log: newTranscript(c.opts.Now), reused: c.begun > 0,
		res:     &Result{Outcomes: make([]Outcome, len(m.To)), Facts: c.facts, DSN: c.ext.DSN},
		settled: make([]bool, len(m.To)),
	}
	if t.reused {
		t.log.note("connection reused, message %d", c.begun+1)
	}
	if o, ok := c.unfit(m); !ok {
		t.settleRest(o)
	}
	t.utf8 = m.UTF8 || !ascii(m.From)
	n := 0
	for i := range m.To {
		switch addr := m.To[i].Addr; {
		case t.settled[i]:
		case !fitAddress(addr):
			t.settle(i, local(Permanent, StageRcpt, "5.1.3", "the recipient's address is not valid"))
		case !ascii(addr) && !c.ext.UTF8:
			t.settle(i, local(Permanent, StageRcpt, "5.6.7", "the recipient's address needs SMTPUTF8, which "+c.name()+" does not offer"))
		case c.ext.MaxRecipients > 0 && n >= c.ext.MaxRecipients:
			t.settle(i, local(Resend, StageRcpt, "4.5.3", "more recipients than the host takes at once"))
		default:
			t.utf8 = t.utf8 || !ascii(addr)
			n++
		}
	}
	for _, o := range t.res.Outcomes {
		if o.Local {
			t.log.note("%s", o.Reply)
		}
	}
	return t
}

// unfit says why the host cannot take a message at all.
func (c *Conn) unfit(m *Message) (Outcome, bool) {
	no := func(enhanced, format string, args ...any) (Outcome, bool) {
		return local(Permanent, StageMail, enhanced, fmt.Sprintf(format, args...)), false
	}
	switch {
	case m.From != "" && !fitAddress(m.From):
		return no("5.1.7", "the sender's address is not valid")
	case c.ext.MaxSize > 0 && m.Size > c.ext.MaxSize:
		return no("5.3.4", "the message has %d octets, and %s takes %d", m.Size, c.name(), c.ext.MaxSize)
	case (m.UTF8 || !ascii(m.From)) && !c.ext.UTF8:
		return no("5.6.7", "the message needs SMTPUTF8, which %s does not offer", c.name())
	case m.EightBit && !c.ext.EightBit:
		return no("5.6.3", "the message needs 8BITMIME, which %s does not offer", c.name())
	case m.RequireTLS && (c.facts.TLS == "" || !c.facts.Verified || !c.ext.RequireTLS):
		return no("5.7.30", "the message requires TLS all the way, which %s does not offer", c.name())
	}
	return Outcome{}, true
}

// name is what to call the host in words.
func (c *Conn) name() string {
	if c.facts.Host != "" {
		return c.facts.Host
	}
	return c.facts.Addr.Addr().String()
}

// plan lists the commands of a transaction.
func (c *Conn) plan(t *transaction) {
	t.steps = make([]step, 0, len(t.settled)+3)
	if c.reset {
		t.steps = append(t.steps, step{stage: stageReset})
		c.reset = false
	}
	t.steps = append(t.steps, step{stage: StageMail})
	for i := range t.settled {
		if !t.settled[i] {
			t.steps = append(t.steps, step{stage: StageRcpt, rcpt: i})
		}
	}
	t.steps = append(t.steps, step{stage: StageData})
	c.begun++
}

// sendCommands buffers the next commands: one without PIPELINING, else as
// many as the window takes, DATA as the last of its group.
func (c *Conn) sendCommands(t *transaction) {
	c.w.write = c.times.Command
	for t.wrote < len(t.steps) {
		if n := t.wrote - t.read; n >= window || n > 0 && !c.ext.Pipelining {
			return
		}
		s := t.steps[t.wrote]
		b := c.w.bw.AvailableBuffer()
		switch s.stage {
		case stageReset:
			b = append(b, "RSET"...)
		case StageMail:
			b = mailCommand(b, t.m, &c.ext, t.utf8)
		case StageRcpt:
			b = rcptCommand(b, &t.m.To[s.rcpt], &c.ext)
		case StageData:
			b = append(b, "DATA"...)
		}
		t.log.client(string(b))
		_, _ = c.w.bw.Write(append(b, '\r', '\n'))
		t.wrote++
	}
}

// converse leads a transaction up to the reply to DATA. It returns whether
// the host now waits for the message.
func (c *Conn) converse(t *transaction) bool {
	c.log = t.log
	for {
		if err := c.w.flush(); err != nil {
			c.lost(t, err)
			return false
		}
		for t.read < t.wrote {
			s := t.steps[t.read]
			wait := c.times.Command
			if s.stage == StageData {
				wait = c.times.DataInit
			}
			r, err := c.heard(c.w.reply(wait))
			if err != nil {
				c.lost(t, err)
				return false
			}
			t.read++
			c.answered(t, s, r)
		}
		if t.wrote == len(t.steps) {
			if t.go354 && t.accepted > 0 && !t.open() {
				// It refused RSET or MAIL, and goes on all the same: what it
				// got now it would get once more.
				c.cut(t, errOutOfStep)
				return false
			}
			if ahead, _ := c.w.br.Peek(min(c.w.br.Buffered(), 1)); t.go354 && string(ahead) == "2" {
				// It would pass for the reply to the final dot. A refusal is
				// one, however soon it comes.
				c.lost(t, c.w.fail(errTooSoon))
				return false
			}
			return t.go354
		}
		if c.over(t) {
			c.reset = true
			return false
		}
		c.sendCommands(t)
	}
}

// over reports whether the commands that are left would be in vain.
func (c *Conn) over(t *transaction) bool {
	return c.closing || !t.open() || t.steps[t.wrote].stage == StageData && t.accepted == 0
}

// answered takes the reply to one command.
func (c *Conn) answered(t *transaction, s step, r Reply) {
	if r.Code == 421 && t.goodbye == nil {
		t.goodbye = &r
		if s.stage == StageRcpt {
			t.res.Took = t.accepted
		}
	}
	switch s.stage {
	case stageReset:
		if !r.positive() {
			c.closing = true
			t.res.Stale = t.reused
			t.settleRest(Outcome{Class: Temporary, Stage: StageMail, Reply: r})
		}
	case StageMail:
		if !r.positive() {
			c.reset = true
			t.res.Stale = t.reused && r.Code == 421
			t.settleRest(c.judge(StageMail, r))
		}
	case StageRcpt:
		switch {
		case r.positive():
			t.accepted++
		case t.accepted > 0 && tooManyRecipients(r):
			t.settle(s.rcpt, Outcome{Class: Resend, Stage: StageRcpt, Reply: r})
		default:
			t.settle(s.rcpt, c.judge(StageRcpt, r))
		}
	case StageData:
		t.go354 = r.Code/100 == 3
		if !t.go354 {
			c.reset = true
			t.settleRest(c.judge(StageData, r))
		}
	}
}

// judge makes the outcome of a reply that is not the hoped-for one.
func (c *Conn) judge(stage Stage, r Reply) Outcome {
	if code := r.Code / 100; code != 4 && code != 5 {
		// A 2xx or 3xx out of place: we and the host are out of step.
		c.closing = true
		return Outcome{Class: Temporary, Stage: stage, Reply: r}
	}
	return Outcome{Class: Classify(stage, r), Stage: stage, Reply: r}
}

// lost settles what is open when the connection has failed.
func (c *Conn) lost(t *transaction, err error) {
	stage := StageFinal
	if t.read < len(t.steps) {
		stage = t.steps[t.read].stage
		if stage == stageReset {
			stage = StageMail
		}
	}
	t.res.Err = err
	if stage == StageRcpt && t.goodbye == nil {
		t.res.Took = t.accepted
	}
	text := clean([]byte(err.Error()))
	t.log.note("connection lost: %s", text)
	nothing := t.read == 0 || t.read == 1 && t.steps[0].stage == stageReset
	t.res.Stale = t.res.Stale || t.reused && nothing && c.w.ctx.Err() == nil
	if t.goodbye != nil {
		t.settleRest(Outcome{Class: Temporary, Stage: stage, Reply: *t.goodbye})
		return
	}
	t.settleRest(local(Temporary, stage, "4.4.2", "connection lost: "+text))
}

// sendBody writes the message and its final dot, and flushes. A failure of
// Body leaves the message without its dot and ends the connection. It returns
// whether a reply is to be waited for.
func (c *Conn) sendBody(t *transaction) bool {
	c.w.write = c.times.DataBlock
	d := dotWriter{w: c.w.bw}
	if t.accepted > 0 {
		_, err := d.Write(t.m.Prefix)
		if err == nil && t.m.Body != nil {
			_, err = io.Copy(&d, t.m.Body)
		}
		if err != nil && d.err == nil {
			c.cut(t, fmt.Errorf("%w: %w", ErrBody, err))
			return false
		}
	}
	// With no recipient accepted a lone dot answers the 354 (RFC 2920
	// section 3.1): the host has nobody to give an empty message to.
	err := d.finish()
	if err == nil {
		err = c.w.flush()
	}
	if err != nil {
		c.refusedHalfWay(t, c.w.fail(c.w.reason(err)))
		return false
	}
	t.log.note("%d octets of message sent", d.n)
	return true
}

// cut breaks the connection off inside a message.
func (c *Conn) cut(t *transaction, err error) {
	_ = c.w.fail(err)
	_ = c.w.tcp.Close()
	t.res.Err = err
	t.log.note("%s", clean([]byte(err.Error())))
	t.settleRest(local(Temporary, StageFinal, "4.3.0", "the message could not be read"))
}

// refusedHalfWay looks for the reply of a host that stopped taking the
// message.
func (c *Conn) refusedHalfWay(t *transaction, err error) {
	if c.w.ctx.Err() == nil {
		r, rerr := c.heard(c.w.replyAfterFailure(min(5*time.Second, c.times.Final)))
		if rerr == nil && (r.Code/100 == 4 || r.Code/100 == 5) {
			t.res.Err = err
			t.settleRest(c.judge(StageFinal, r))
			return
		}
	}
	c.lost(t, err)
}

// finish reads the reply to the final dot, also when the commands of the
// following message could not be written any more.
func (c *Conn) finish(t *transaction) {
	r, err := c.heard(c.w.replyAfterFailure(c.times.Final))
	if err != nil {
		c.lost(t, err)
		return
	}
	if r.positive() {
		t.settleRest(Outcome{Class: Delivered, Stage: StageFinal, Reply: r})
		return
	}
	t.settleRest(c.judge(StageFinal, r))
}
