// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// Errors for hosts whose replies contradict each other.
var (
	errInconsistentReplies = errors.New("the host accepts a message that it has refused")
	errPrematureReply      = errors.New("the host takes a message that it was not sent yet")
)

// pipelineWindow is the maximum number of unanswered commands. It keeps a long list of recipients
// from filling the socket buffers of both sides, which would then wait for each other (RFC 2920
// section 3.1).
const pipelineWindow = 64

// Result is the result of sending a message.
type Result struct {
	Outcomes   []Outcome // one for each of Message.To, in order
	Peer       Peer
	Transcript string
	RemoteDSN  bool // whether the host sends the DSNs, as it supports DSN (RFC 3461)
	// StaleConn is set if a reused connection broke, or was closed by 421, before the host
	// acknowledged anything of this message. The message was not sent, Body is unread, and the
	// message may be sent over another connection at once.
	StaleConn bool
	// RcptsBeforeHangup is how many recipients the host had accepted when it hung up at the next
	// one; 0 if it did not.
	RcptsBeforeHangup int
	// Err is the error of the network, of the caller's context or of Body; nil if the host answered
	// everything.
	Err error
}

// ErrReadBody is the Err of a Result whose Body could not be read. That is not the host's fault.
var ErrReadBody = errors.New("reading the message")

// command is one command of a transaction.
type command struct {
	stage     Stage // stageReset, or StageMail to StageData
	rcptIndex int
}

const stageReset Stage = "rset"

// transaction is a message being sent over a connection.
type transaction struct {
	msg        *Message
	result     *Result
	transcript *transcript
	utf8       bool
	commands   []command
	written    int // number of commands written
	answered   int // number of commands answered

	decided      []bool // for each recipient: whether its outcome is set
	accepted     int
	dataAccepted bool
	connReused   bool   // whether the connection has been used for a message before
	closingReply *Reply // the 421 reply, if one came during the commands
}

func (t *transaction) setOutcome(i int, o Outcome) {
	if !t.decided[i] {
		t.decided[i] = true
		t.result.Outcomes[i] = o
	}
}

func (t *transaction) setRemainingOutcomes(o Outcome) {
	for i := range t.decided {
		t.setOutcome(i, o)
	}
}

// hasPending reports whether any recipient has no outcome yet.
func (t *transaction) hasPending() bool { return slices.Contains(t.decided, false) }

// newTransaction checks a message against what the host supports. It sets the outcomes of what
// can't work, without asking the host.
func (c *Conn) newTransaction(m *Message) *transaction {
	t := &transaction{
		msg: m, transcript: newTranscript(c.opts.Now), connReused: c.transactions > 0,
		result:  &Result{Outcomes: make([]Outcome, len(m.To)), Peer: c.peer, RemoteDSN: c.ext.DSN},
		decided: make([]bool, len(m.To)),
	}
	if t.connReused {
		t.transcript.note("connection reused, message %d", c.transactions+1)
	}
	if o, ok := c.checkMessage(m); !ok {
		t.setRemainingOutcomes(o)
	}
	t.utf8 = m.UTF8 || !isASCII(m.From)
	n := 0
	for i := range m.To {
		switch addr := m.To[i].Addr; {
		case t.decided[i]:
		case !validAddress(addr):
			t.setOutcome(i, localOutcome(Permanent, StageRcpt, "5.1.3", "the recipient's address is not valid"))
		case !isASCII(addr) && !c.ext.UTF8:
			t.setOutcome(i, localOutcome(Permanent, StageRcpt, "5.6.7", "the recipient's address needs SMTPUTF8, which "+c.hostName()+" does not offer"))
		case c.ext.MaxRecipients > 0 && n >= c.ext.MaxRecipients:
			t.setOutcome(i, localOutcome(NextTransaction, StageRcpt, "4.5.3", "more recipients than the host takes at once"))
		default:
			t.utf8 = t.utf8 || !isASCII(addr)
			n++
		}
	}
	for _, o := range t.result.Outcomes {
		if o.Local {
			t.transcript.note("%s", o.Reply)
		}
	}
	return t
}

// checkMessage reports whether the host can accept a message at all, and returns the outcome if
// not.
func (c *Conn) checkMessage(m *Message) (Outcome, bool) {
	no := func(enhanced, format string, args ...any) (Outcome, bool) {
		return localOutcome(Permanent, StageMail, enhanced, fmt.Sprintf(format, args...)), false
	}
	switch {
	case m.From != "" && !validAddress(m.From):
		return no("5.1.7", "the sender's address is not valid")
	case c.ext.MaxSize > 0 && m.Size > c.ext.MaxSize:
		return no("5.3.4", "the message has %d octets, and %s takes %d", m.Size, c.hostName(), c.ext.MaxSize)
	case (m.UTF8 || !isASCII(m.From)) && !c.ext.UTF8:
		return no("5.6.7", "the message needs SMTPUTF8, which %s does not offer", c.hostName())
	case m.EightBit && !c.ext.EightBit:
		return no("5.6.3", "the message needs 8BITMIME, which %s does not offer", c.hostName())
	case m.RequireTLS && (c.peer.TLS == "" || !c.peer.Verified || !c.ext.RequireTLS):
		return no("5.7.30", "the message requires TLS all the way, which %s does not offer", c.hostName())
	}
	return Outcome{}, true
}

// hostName returns the host's name for texts, or its address if it has none.
func (c *Conn) hostName() string {
	if c.peer.Host != "" {
		return c.peer.Host
	}
	return c.peer.Addr.Addr().String()
}

// planCommands lists the commands of a transaction.
func (c *Conn) planCommands(t *transaction) {
	t.commands = make([]command, 0, len(t.decided)+3)
	if c.needsReset {
		t.commands = append(t.commands, command{stage: stageReset})
		c.needsReset = false
	}
	t.commands = append(t.commands, command{stage: StageMail})
	for i := range t.decided {
		if !t.decided[i] {
			t.commands = append(t.commands, command{stage: StageRcpt, rcptIndex: i})
		}
	}
	t.commands = append(t.commands, command{stage: StageData})
	c.transactions++
}

// sendCommands buffers the next commands: one without PIPELINING, else as many as pipelineWindow
// allows, with DATA as the last of its group.
func (c *Conn) sendCommands(t *transaction) {
	c.transport.writeTimeout = c.timeouts.Command
	for t.written < len(t.commands) {
		if n := t.written - t.answered; n >= pipelineWindow || n > 0 && !c.ext.Pipelining {
			return
		}
		s := t.commands[t.written]
		b := c.transport.bw.AvailableBuffer()
		switch s.stage {
		case stageReset:
			b = append(b, "RSET"...)
		case StageMail:
			b = mailCommand(b, t.msg, &c.ext, t.utf8)
		case StageRcpt:
			b = rcptCommand(b, &t.msg.To[s.rcptIndex], &c.ext)
		case StageData:
			b = append(b, "DATA"...)
		}
		t.transcript.addClientLine(string(b))
		_, _ = c.transport.bw.Write(append(b, '\r', '\n'))
		t.written++
	}
}

// runCommands runs a transaction up to the reply to DATA. It reports whether the host now waits for
// the message.
func (c *Conn) runCommands(t *transaction) bool {
	c.transcript = t.transcript
	for {
		if err := c.transport.flush(); err != nil {
			c.failTransaction(t, err)
			return false
		}
		for t.answered < t.written {
			s := t.commands[t.answered]
			wait := c.timeouts.Command
			if s.stage == StageData {
				wait = c.timeouts.DataInit
			}
			r, err := c.recordReply(c.transport.readReply(wait))
			if err != nil {
				c.failTransaction(t, err)
				return false
			}
			t.answered++
			c.handleReply(t, s, r)
		}
		if t.written == len(t.commands) {
			if t.dataAccepted && t.accepted > 0 && !t.hasPending() {
				// The host rejected RSET or MAIL but continues all the same. If it got the message
				// now, it would get it twice.
				c.abort(t, errInconsistentReplies)
				return false
			}
			if ahead, _ := c.transport.br.Peek(min(c.transport.br.Buffered(), 1)); t.dataAccepted && string(ahead) == "2" {
				// This would be read as the reply to the final dot. A rejection counts as one,
				// however early it comes.
				c.failTransaction(t, c.transport.fail(errPrematureReply))
				return false
			}
			return t.dataAccepted
		}
		if c.commandsDone(t) {
			c.needsReset = true
			return false
		}
		c.sendCommands(t)
	}
}

// commandsDone reports whether the remaining commands would be pointless.
func (c *Conn) commandsDone(t *transaction) bool {
	return c.closing || !t.hasPending() || t.commands[t.written].stage == StageData && t.accepted == 0
}

// handleReply handles the reply to one command.
func (c *Conn) handleReply(t *transaction, s command, r Reply) {
	if r.Code == 421 && t.closingReply == nil {
		t.closingReply = &r
		if s.stage == StageRcpt {
			t.result.RcptsBeforeHangup = t.accepted
		}
	}
	switch s.stage {
	case stageReset:
		if !r.positive() {
			c.closing = true
			t.result.StaleConn = t.connReused
			t.setRemainingOutcomes(Outcome{Class: Temporary, Stage: StageMail, Reply: r})
		}
	case StageMail:
		if !r.positive() {
			c.needsReset = true
			t.result.StaleConn = t.connReused && r.Code == 421
			t.setRemainingOutcomes(c.failureOutcome(StageMail, r))
		}
	case StageRcpt:
		switch {
		case r.positive():
			t.accepted++
		case t.accepted > 0 && tooManyRecipients(r):
			t.setOutcome(s.rcptIndex, Outcome{Class: NextTransaction, Stage: StageRcpt, Reply: r})
		default:
			t.setOutcome(s.rcptIndex, c.failureOutcome(StageRcpt, r))
		}
	case StageData:
		t.dataAccepted = r.Code/100 == 3
		if !t.dataAccepted {
			c.needsReset = true
			t.setRemainingOutcomes(c.failureOutcome(StageData, r))
		}
	}
}

// failureOutcome returns the outcome for a reply other than the expected one.
func (c *Conn) failureOutcome(stage Stage, r Reply) Outcome {
	if code := r.Code / 100; code != 4 && code != 5 {
		// An unexpected 2xx or 3xx: we and the host are out of step.
		c.closing = true
		return Outcome{Class: Temporary, Stage: stage, Reply: r}
	}
	return Outcome{Class: Classify(stage, r), Stage: stage, Reply: r}
}

// failTransaction sets the remaining outcomes after the connection has failed.
func (c *Conn) failTransaction(t *transaction, err error) {
	stage := StageFinal
	if t.answered < len(t.commands) {
		stage = t.commands[t.answered].stage
		if stage == stageReset {
			stage = StageMail
		}
	}
	t.result.Err = err
	if stage == StageRcpt && t.closingReply == nil {
		t.result.RcptsBeforeHangup = t.accepted
	}
	text := sanitize([]byte(err.Error()))
	t.transcript.note("connection lost: %s", text)
	nothing := t.answered == 0 || t.answered == 1 && t.commands[0].stage == stageReset
	t.result.StaleConn = t.result.StaleConn || t.connReused && nothing && c.transport.ctx.Err() == nil
	if t.closingReply != nil {
		t.setRemainingOutcomes(Outcome{Class: Temporary, Stage: stage, Reply: *t.closingReply})
		return
	}
	t.setRemainingOutcomes(localOutcome(Temporary, stage, "4.4.2", "connection lost: "+text))
}

// sendBody writes the message and its final dot, and flushes. If reading Body fails, it sends no
// dot and closes the connection. It reports whether a reply is to be read.
func (c *Conn) sendBody(t *transaction) bool {
	c.transport.writeTimeout = c.timeouts.DataBlock
	d := dotWriter{w: c.transport.bw}
	if t.accepted > 0 {
		_, err := d.Write(t.msg.Prefix)
		if err == nil && t.msg.Body != nil {
			_, err = io.Copy(&d, t.msg.Body)
		}
		if err != nil && d.err == nil {
			c.abort(t, fmt.Errorf("%w: %w", ErrReadBody, err))
			return false
		}
	}
	// If no recipient was accepted, a lone dot answers the 354 (RFC 2920 section 3.1): the host
	// can't deliver the empty message to anybody.
	err := d.finish()
	if err == nil {
		err = c.transport.flush()
	}
	if err != nil {
		c.readEarlyRejection(t, c.transport.fail(c.transport.translateError(err)))
		return false
	}
	t.transcript.note("%d octets of message sent", d.n)
	return true
}

// abort closes the connection inside a message.
func (c *Conn) abort(t *transaction, err error) {
	_ = c.transport.fail(err)
	_ = c.transport.tcp.Close()
	t.result.Err = err
	t.transcript.note("%s", sanitize([]byte(err.Error())))
	t.setRemainingOutcomes(localOutcome(Temporary, StageFinal, "4.3.0", "the message could not be read"))
}

// readEarlyRejection reads the reply of a host that stopped reading the message.
func (c *Conn) readEarlyRejection(t *transaction, err error) {
	if c.transport.ctx.Err() == nil {
		r, rerr := c.recordReply(c.transport.readReplyAfterFailure(min(5*time.Second, c.timeouts.Final)))
		if rerr == nil && (r.Code/100 == 4 || r.Code/100 == 5) {
			t.result.Err = err
			t.setRemainingOutcomes(c.failureOutcome(StageFinal, r))
			return
		}
	}
	c.failTransaction(t, err)
}

// readFinalReply reads the reply to the final dot, even if the commands of the following message
// could not be written.
func (c *Conn) readFinalReply(t *transaction) {
	r, err := c.recordReply(c.transport.readReplyAfterFailure(c.timeouts.Final))
	if err != nil {
		c.failTransaction(t, err)
		return
	}
	if r.positive() {
		t.setRemainingOutcomes(Outcome{Class: Delivered, Stage: StageFinal, Reply: r})
		return
	}
	t.setRemainingOutcomes(c.failureOutcome(StageFinal, r))
}
