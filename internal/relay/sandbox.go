// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"sync/atomic"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Sandbox is the courier of the local sandbox. It sends all mail to a receiver of
// its own, over SMTP through a pipe, which takes it and keeps it for the outbox:
// nothing leaves the machine.
type Sandbox struct {
	DB        *db.DB
	Blobs     *blob.Store
	LocalName string // our name for EHLO
	Log       *slog.Logger

	captureCount atomic.Int64
}

var _ queue.Agent = (*Sandbox)(nil)

// MaxCapturedMessages is how many messages the outbox of an account keeps, about: the
// oldest go first.
const MaxCapturedMessages = 1000

// pruneInterval is after how many messages it is looked for those beyond that.
const pruneInterval = 50

// waitingPerSession is how many messages that wait make another run worth while, so
// that the commits of several come together.
const waitingPerSession, maxSandboxSessions = 4, 16

// Concurrency is that of queue.Agent.
func (c *Sandbox) Concurrency(waiting int) int {
	return min(1+waiting/waitingPerSession, maxSandboxSessions)
}

// Deliver sends what waits over a connection of its own.
func (c *Sandbox) Deliver(ctx context.Context, r *queue.Session) {
	// What has begun is carried through: an end in between could have it kept
	// and not noted as delivered.
	ctx = context.WithoutCancel(ctx)
	var line *sandboxConn
	defer func() { line.close() }()
	for m := r.Next(); m != nil; m = r.Next() {
		if line == nil || !line.conn.Usable() {
			line.close()
			var err error
			if line, err = c.connect(ctx); err != nil {
				c.Log.Error("the sandbox's receiver does not answer", "error", err)
				line.close()
				line = nil
				r.Finish(m, queue.Outcome{State: queue.Deferred, Enhanced: "4.4.1", Reply: "the sandbox's receiver does not answer", Stage: "connect", Remote: "sandbox"})
				continue
			}
		}
		r.Finish(m, line.send(ctx, m)...)
	}
}

// sandboxConn is a connection to the sandbox's receiver.
type sandboxConn struct {
	conn       *smtpclient.Conn
	current    *queue.Transaction // what is being sent: a pipe knows no account
	serverDone chan struct{}      // closed once the receiver has ended
}

func (c *Sandbox) connect(ctx context.Context) (*sandboxConn, error) {
	here, there := net.Pipe()
	l := &sandboxConn{serverDone: make(chan struct{})}
	go func() {
		defer close(l.serverDone)
		host := &sandboxServer{store: func(content io.Reader) error {
			err := c.Store(ctx, l.current, content)
			if err != nil {
				c.Log.Error("a message could not be captured", "message", l.current.Mail.ID, "error", err)
			}
			return err
		}}
		if err := host.serve(there); err != nil { // our side of it is told by the outcome
			c.Log.Warn("a conversation with the sandbox's receiver broke off", "error", err)
		}
	}()
	var err error
	l.conn, err = smtpclient.Open(ctx, here, smtpclient.Options{Host: "sandbox", LocalName: c.LocalName, TLS: smtpclient.Never})
	return l, err
}

// send sends a consignment, and returns what became of each recipient.
func (l *sandboxConn) send(ctx context.Context, m *queue.Transaction) []queue.Outcome {
	mail := m.Mail
	message := &smtpclient.Message{
		From: m.From, To: make([]smtpclient.Rcpt, len(m.Deliveries)), Size: mail.Size, UTF8: mail.UTF8, EightBit: mail.EightBit, Prefix: mail.Head,
	}
	for i, to := range m.Deliveries {
		message.To[i].Addr = to.Recipient
	}
	outcomes := make([]queue.Outcome, len(m.Deliveries))
	body, err := mail.Body(ctx)
	if err != nil {
		for i := range outcomes {
			outcomes[i] = queue.Outcome{State: queue.Deferred, Enhanced: "4.3.0", Reply: "the message can't be read: " + err.Error(), Stage: "local"}
		}
		return outcomes
	}
	defer body.Close() //nolint:errcheck // only read
	message.Body, l.current = body, m
	result := l.conn.Send(ctx, message)
	for i := range outcomes {
		outcomes[i] = queueOutcome(result.Outcomes[i], result, "")
		outcomes[i].Remote, outcomes[i].IP = "sandbox", ""
	}
	return outcomes
}

// close ends the conversation, and waits for the receiver.
func (l *sandboxConn) close() {
	if l == nil {
		return
	}
	if l.conn != nil {
		_ = l.conn.Close() // nothing depends on it
	}
	<-l.serverDone
}

var insertCapturedQuery = db.SQL(`INSERT INTO captured (id, account, domain, message, sender, recipients, blob, size, structure)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)

// Store stores a consignment for the outbox, with the text that came for it.
func (c *Sandbox) Store(ctx context.Context, m *queue.Transaction, content io.Reader) error {
	w := c.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	if _, err := io.Copy(io.MultiWriter(w, &scan), content); err != nil {
		return err
	}
	b, err := w.Finish()
	if err != nil {
		return err
	}
	structure, err := scan.Finish().MarshalBinary()
	if err != nil {
		return err
	}
	to := make([]string, len(m.Deliveries))
	for i, d := range m.Deliveries {
		to[i] = d.Recipient
	}
	recipients, err := json.Marshal(to)
	if err != nil {
		return err
	}
	insert := insertCapturedQuery.With(c.DB.NewID(), m.Mail.Account, m.Mail.Domain, m.Mail.ID, m.From, string(recipients), b.ID, b.Size, structure)
	err = c.DB.Write(ctx, m.Mail.Account, &db.Mutation{Apply: func(q *db.Batch) {
		q.Queue(b.InsertStatement())
		q.Queue(insert)
	}})
	if err == nil && c.captureCount.Add(1)%pruneInterval == 0 {
		// The message is kept: to try again would keep it twice.
		if err := c.prune(ctx, m.Mail.Account); err != nil {
			c.Log.Error("pruning the sandbox's outbox failed", "account", m.Mail.Account, "error", err)
		}
	}
	return err
}
