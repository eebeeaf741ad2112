// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// bufferSize is the size of the buffer for reading messages, in octets.
const bufferSize = 32 << 10

// job is one queue.Transaction being sent, in as many SMTP transactions as the hosts require.
type job struct {
	tx           *queue.Transaction
	message      *queue.OutboundMessage // the message to send: tx.Mail, or its 7-bit form
	outcomes     []queue.Outcome        // one for each recipient
	pendingRcpts []int                  // indexes of the recipients without an outcome

	body       *body
	transcript strings.Builder // failed SMTP sessions so far
	startedAt  time.Time       // start of the last SMTP transaction
	breakCount int             // number of early disconnects by this host
}

func newJob(c *queue.Transaction) *job {
	j := &job{tx: c, message: c.Mail, outcomes: make([]queue.Outcome, len(c.Deliveries)), pendingRcpts: make([]int, len(c.Deliveries))}
	for i := range j.pendingRcpts {
		j.pendingRcpts[i] = i
	}
	return j
}

// isPartial reports whether some recipients have an outcome.
func (j *job) isPartial() bool { return len(j.pendingRcpts) < len(j.outcomes) }

// newMessage builds an SMTP transaction for the pending recipients, or for as many of them as the
// host accepts before it hangs up.
func (j *job) newMessage(x *exchange) *smtpclient.Message {
	mail := j.message
	j.body = &body{session: x.deliverySession, tx: j.tx, open: mail.Body}
	j.startedAt = x.agent.opts.Now()
	now := j.pendingRcpts[:x.slot.maxRecipients(len(j.pendingRcpts))]
	m := &smtpclient.Message{
		From: j.tx.From, To: make([]smtpclient.Rcpt, len(now)),
		Size: mail.Size, UTF8: mail.UTF8, EightBit: mail.EightBit, RequireTLS: mail.RequireTLS,
		Ret: mail.Ret, EnvID: mail.EnvID, Prefix: mail.Head, Body: j.body,
	}
	for i, n := range now {
		to := j.tx.Deliveries[n]
		m.To[i] = smtpclient.Rcpt{Addr: to.Recipient, Notify: to.Notify, ORCPT: to.Original}
		if mail.Notify != 0 {
			m.To[i].Notify = mail.Notify
		}
	}
	return m
}

// close closes the message's body.
func (j *job) close() {
	if j.body != nil {
		j.body.close()
		j.body = nil
	}
}

// recordResult records the outcomes of an SMTP transaction. Recipients that the host wants in a
// transaction of their own stay pending, as do those that it has not been sent yet.
func (j *job) recordResult(r *smtpclient.Result, via string) {
	var left []int
	for i, n := range j.pendingRcpts[:len(r.Outcomes)] {
		if r.Outcomes[i].Class == smtpclient.NextTransaction {
			left = append(left, n)
			continue
		}
		o := queueOutcome(r.Outcomes[i], r, via)
		if j.transcript.Len() > 0 {
			o.Transcript = j.transcript.String() + o.Transcript
		}
		j.outcomes[n] = o
	}
	j.pendingRcpts = append(left, j.pendingRcpts[len(r.Outcomes):]...)
	j.breakCount = 0
}

// isDeferred reports whether every recipient is deferred.
func (j *job) isDeferred() bool {
	return !slices.ContainsFunc(j.outcomes, func(o queue.Outcome) bool { return o.State != queue.Deferred })
}

// setRemaining sets the outcome of all pending recipients.
func (j *job) setRemaining(o queue.Outcome) {
	o.Transcript = j.transcript.String()
	for _, n := range j.pendingRcpts {
		j.outcomes[n] = o
	}
	j.pendingRcpts = nil
}

// queueOutcome converts one recipient's SMTP outcome into the queue's form.
func queueOutcome(o smtpclient.Outcome, r *smtpclient.Result, via string) queue.Outcome {
	q := queue.Outcome{
		State: queue.Deferred, Code: o.Reply.Code, Enhanced: o.Reply.Enhanced, Reply: o.Reply.Text(),
		Stage: string(o.Stage), Via: via, Host: r.Peer.Host, IP: r.Peer.Addr.Addr().String(), TLS: r.Peer.TLS,
		Transcript: r.Transcript,
	}
	if o.Local && o.Reply.Enhanced == codeNo8BitMIME {
		q.Reply += "; it can't be encoded for that host without breaking a signature in it"
	}
	switch o.Class {
	case smtpclient.Delivered:
		q.State, q.RemoteDSN = queue.Delivered, r.RemoteDSN
	case smtpclient.Permanent:
		q.State = queue.Bounced
	}
	return q
}

// body reads a message, and opens it at the first read: a message that the host rejects before DATA
// is never read. Reading fails at the end if the node has lost the message's lease, so that the
// final dot is never sent.
type body struct {
	session *deliverySession
	tx      *queue.Transaction
	open    func(context.Context) (io.ReadCloser, error)
	r       io.ReadCloser
}

func (b *body) ensureOpen() (err error) {
	if b.r == nil {
		b.r, err = b.open(b.session.ctx)
	}
	return err
}

// errLeaseLost aborts a message that another node has taken over.
var errLeaseLost = errors.New("another node has leased the message")

func (b *body) checkLease() error {
	if !b.session.queueSession.Owns(b.tx) {
		return errLeaseLost
	}
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.ensureOpen(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		if taken := b.checkLease(); taken != nil {
			err = taken
		}
	}
	return n, err
}

// WriteTo implements io.WriterTo. All messages of a session share one buffer.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	if err := b.ensureOpen(); err != nil {
		return 0, err
	}
	if all, ok := b.r.(io.WriterTo); ok {
		n, err = all.WriteTo(w)
	} else {
		if b.session.buf == nil {
			b.session.buf = make([]byte, bufferSize)
		}
		n, err = io.CopyBuffer(w, b.r, b.session.buf)
	}
	return n, errors.Join(err, b.checkLease())
}

func (b *body) close() {
	if b.r != nil {
		_ = b.r.Close() // only read
		b.r = nil
	}
}
