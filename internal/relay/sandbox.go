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

// Sandbox is the delivery agent of the local sandbox. It sends all mail by SMTP through a pipe to
// its own server, which stores it for the outbox. No mail leaves the machine.
type Sandbox struct {
	DB        *db.DB
	Blobs     *blob.Store
	LocalName string // host name for EHLO
	Log       *slog.Logger

	captureCount atomic.Int64
}

var _ queue.Agent = (*Sandbox)(nil)

// MaxCapturedMessages is roughly how many messages an account's outbox keeps. The oldest are
// deleted first.
const MaxCapturedMessages = 1000

// pruneInterval is the number of captured messages between two checks of that limit.
const pruneInterval = 50

// waitingPerSession is how many waiting messages justify a further session; several sessions share
// their commits.
const waitingPerSession, maxSandboxSessions = 4, 16

// Concurrency implements queue.Agent.
func (c *Sandbox) Concurrency(waiting int) int {
	return min(1+waiting/waitingPerSession, maxSandboxSessions)
}

// Deliver sends the waiting messages over a connection of its own.
func (c *Sandbox) Deliver(ctx context.Context, r *queue.Session) {
	// Finish what has begun: an abort could leave a message stored but not recorded as delivered.
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

// sandboxConn is a connection to the sandbox's server.
type sandboxConn struct {
	conn       *smtpclient.Conn
	current    *queue.Transaction // transaction being sent: SMTP does not carry its account
	serverDone chan struct{}      // closed once the server has stopped
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
		if err := host.serve(there); err != nil { // the outcome tells the client's side
			c.Log.Warn("a conversation with the sandbox's receiver broke off", "error", err)
		}
	}()
	var err error
	l.conn, err = smtpclient.Open(ctx, here, smtpclient.Options{Host: "sandbox", LocalName: c.LocalName, TLS: smtpclient.TLSNever})
	return l, err
}

// send sends a transaction, and returns one outcome for each recipient.
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

// close closes the connection, and waits for the server to stop.
func (l *sandboxConn) close() {
	if l == nil {
		return
	}
	if l.conn != nil {
		_ = l.conn.Close() // nothing depends on it
	}
	<-l.serverDone
}

var insertCapturedQuery = db.SQL(`INSERT INTO captured_message (id, account, domain, message, sender, recipients, blob, size, structure)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)

// Store stores a transaction and its message content for the outbox.
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
		// The message is stored: a retry would store it twice.
		if err := c.prune(ctx, m.Mail.Account); err != nil {
			c.Log.Error("pruning the sandbox's outbox failed", "account", m.Mail.Account, "error", err)
		}
	}
	return err
}
