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

// bufferSize is how much of a message is read at once, in octets.
const bufferSize = 32 << 10

// job is a consignment on its way, in as many transactions as the hosts make
// of it.
type job struct {
	c        *queue.Consignment
	mail     *queue.Mail     // as it goes out: that of c, or its SevenBit
	outcomes []queue.Outcome // per recipient
	open     []int           // recipients without an outcome

	body   *body
	trail  strings.Builder // conversations that came to nothing
	began  time.Time       // the last transaction
	breaks int             // conversations with this host that broke early
	last   queue.Outcome   // of such a one
}

func newJob(c *queue.Consignment) *job {
	j := &job{c: c, mail: c.Mail, outcomes: make([]queue.Outcome, len(c.To)), open: make([]int, len(c.To))}
	for i := range j.open {
		j.open[i] = i
	}
	return j
}

// partial reports whether some recipients have their outcome.
func (j *job) partial() bool { return len(j.open) < len(j.outcomes) }

// message makes the transaction for the recipients that are open, or as many of
// them as the host takes before it hangs up.
func (j *job) message(s *shift) *smtpclient.Message {
	mail := j.mail
	j.body = &body{s: s, c: j.c, open: mail.Body}
	j.began = s.c.o.Now()
	now := j.open[:s.visit.recipients(len(j.open))]
	m := &smtpclient.Message{
		From: j.c.From, To: make([]smtpclient.Rcpt, len(now)),
		Size: mail.Size, UTF8: mail.UTF8, EightBit: mail.EightBit, RequireTLS: mail.RequireTLS,
		Ret: mail.Ret, EnvID: mail.EnvID, Prefix: mail.Head, Body: j.body,
	}
	for i, n := range now {
		to := j.c.To[n]
		m.To[i] = smtpclient.Rcpt{Addr: to.Recipient, Notify: to.Notify, Original: to.Original}
		if mail.Notify != 0 {
			m.To[i].Notify = mail.Notify
		}
	}
	return m
}

// close ends the reading of the message.
func (j *job) close() {
	if j.body != nil {
		j.body.close()
		j.body = nil
	}
}

// settle takes the outcomes of a transaction. What the host wants to have in a
// transaction of its own stays open, as does what it was not asked yet.
func (j *job) settle(r *smtpclient.Result, via string) {
	var left []int
	for i, n := range j.open[:len(r.Outcomes)] {
		if r.Outcomes[i].Class == smtpclient.Resend {
			left = append(left, n)
			continue
		}
		o := outcome(r.Outcomes[i], r, via)
		if j.trail.Len() > 0 {
			o.Transcript = j.trail.String() + o.Transcript
		}
		j.outcomes[n] = o
	}
	j.open = append(left, j.open[len(r.Outcomes):]...)
	j.breaks = 0
}

// deferred reports whether every recipient is to be tried again.
func (j *job) deferred() bool {
	return !slices.ContainsFunc(j.outcomes, func(o queue.Outcome) bool { return o.State != queue.Deferred })
}

// rest settles what is open.
func (j *job) rest(o queue.Outcome) {
	o.Transcript = j.trail.String()
	for _, n := range j.open {
		j.outcomes[n] = o
	}
	j.open = nil
}

// outcome says in the queue's words what became of one recipient.
func outcome(o smtpclient.Outcome, r *smtpclient.Result, via string) queue.Outcome {
	q := queue.Outcome{
		State: queue.Deferred, Code: o.Reply.Code, Enhanced: o.Reply.Enhanced, Reply: o.Reply.Text(),
		Stage: string(o.Stage), Via: via, Host: r.Facts.Host, IP: r.Facts.Addr.Addr().String(), TLS: r.Facts.TLS,
		Transcript: r.Transcript,
	}
	if o.Local && o.Reply.Enhanced == lacks8Bit {
		q.Reply += "; it can't be encoded for that host without breaking a signature in it"
	}
	switch o.Class {
	case smtpclient.Delivered:
		q.State, q.DSN = queue.Delivered, r.DSN
	case smtpclient.Permanent:
		q.State = queue.Bounced
	}
	return q
}

// body opens a message when its first octet is wanted: one that is refused
// before DATA is never read. It ends with an error if the message is no longer
// ours to send, so that the final dot is never written.
type body struct {
	s    *shift
	c    *queue.Consignment
	open func(context.Context) (io.ReadCloser, error)
	r    io.ReadCloser
}

func (b *body) ready() (err error) {
	if b.r == nil {
		b.r, err = b.open(b.s.ctx)
	}
	return err
}

// errTaken ends a message that another node has taken over.
var errTaken = errors.New("another node carries the message now")

func (b *body) ours() error {
	if !b.s.run.Ours(b.c) {
		return errTaken
	}
	return nil
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if err := b.ready(); err != nil {
		return 0, err
	}
	n, err := b.r.Read(p)
	if errors.Is(err, io.EOF) {
		if taken := b.ours(); taken != nil {
			err = taken
		}
	}
	return n, err
}

// WriteTo implements io.WriterTo: one buffer serves all messages of a run.
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
	if err := b.ready(); err != nil {
		return 0, err
	}
	if all, ok := b.r.(io.WriterTo); ok {
		n, err = all.WriteTo(w)
	} else {
		if b.s.buf == nil {
			b.s.buf = make([]byte, bufferSize)
		}
		n, err = io.CopyBuffer(w, b.r, b.s.buf)
	}
	return n, errors.Join(err, b.ours())
}

func (b *body) close() {
	if b.r != nil {
		_ = b.r.Close() // only read
		b.r = nil
	}
}
