// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Simulator is the delivery agent for suppression.SimulatorDomain, whose addresses simulate remote
// hosts. Attempts, outcomes and events are real, but there is no SMTP session:
//
//   - delivered@ accepts mail
//   - bounced@ has no mailbox; API mail lists it as suppressed, for inspection only
//   - deferred@ accepts mail at the second attempt
//   - complained@ accepts mail and complains a second later; API mail lists it, too
//   - suppressed@ accepts what suppression does not stop before: mail that mailboxes submit
type Simulator struct {
	opts SimulatorOptions
	wake chan struct{} // signals a scheduled complaint
}

// SimulatorOptions configure a Simulator.
type SimulatorOptions struct {
	DB    *db.DB
	Queue *queue.Queue
	Now   func() time.Time
	Log   *slog.Logger
}

var _ queue.Agent = (*Simulator)(nil)

// NewSimulator returns a Simulator. Its Run method sends the complaints.
func NewSimulator(o SimulatorOptions) *Simulator {
	return &Simulator{opts: o, wake: make(chan struct{}, 1)}
}

// Concurrency returns one.
func (*Simulator) Concurrency(int) int { return 1 }

// Deliver reports an outcome for every waiting delivery.
func (s *Simulator) Deliver(ctx context.Context, r *queue.Session) {
	for c := r.Next(); c != nil; c = r.Next() {
		outcomes := make([]queue.Outcome, len(c.Deliveries))
		for i, d := range c.Deliveries {
			outcomes[i] = s.simulate(ctx, d)
			outcomes[i].Host = "simulator"
		}
		r.Finish(c, outcomes...)
	}
}

func (s *Simulator) simulate(ctx context.Context, d *queue.Delivery) queue.Outcome {
	taken := queue.Outcome{State: queue.Delivered, Code: 250, Enhanced: "2.0.0", Stage: "final", Reply: "simulated: the message was taken"}
	a, err := address.Parse(d.Recipient)
	if err != nil {
		return unknownMailbox
	}
	switch suppression.SimulatedBehavior(a) {
	case suppression.BehaviorDelivered:
		return taken
	case suppression.BehaviorSuppressed:
		taken.Reply = "simulated: the message was taken; only mail of the API is suppressed"
		return taken
	case suppression.BehaviorDeferred:
		if d.Attempts > 0 {
			return taken
		}
		return queue.Outcome{State: queue.Deferred, Code: 451, Enhanced: "4.7.1", Stage: "rcpt", Reply: "simulated: try again later"}
	case suppression.BehaviorComplained:
		if err := s.scheduleComplaint(ctx, d); err != nil {
			s.opts.Log.Error("a simulated complaint could not be noted", "message", d.Message, "n", d.N, "error", err)
			return queue.Outcome{State: queue.Deferred, Code: 451, Enhanced: "4.3.0", Stage: "final", Reply: "simulated: trouble of our own"}
		}
		taken.Reply = "simulated: the message was taken; a complaint will follow"
		return taken
	}
	return unknownMailbox
}

// unknownMailbox is the outcome for bounced@ and for addresses that simulate nothing.
var unknownMailbox = queue.Outcome{State: queue.Bounced, Code: 550, Enhanced: "5.1.1", Stage: "rcpt", Reply: "simulated: there is no such mailbox"}

const (
	complaintDelay      = time.Second
	complaintRetryDelay = time.Second // while the delivery's outcome is not yet written
	complaintTimeout    = time.Hour
	complaintBatchSize  = 100
	// complaintPollInterval is how often a node looks for complaints that another node left.
	complaintPollInterval = 30 * time.Second
)

var (
	insertComplaintQuery = db.SQL(`INSERT INTO simulated_complaint (message, n, due_at, until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (message, n) DO UPDATE SET due_at = excluded.due_at, until = excluded.until`)
	dueComplaintsQuery     = db.SQL(`SELECT message, n, until FROM simulated_complaint WHERE due_at <= $1 ORDER BY due_at LIMIT $2`)
	nextComplaintQuery     = db.SQL(`SELECT due_at FROM simulated_complaint WHERE due_at > 0 ORDER BY due_at LIMIT 1`)
	postponeComplaintQuery = db.SQL(`UPDATE simulated_complaint SET due_at = $3 WHERE message = $1 AND n = $2`)
	deleteComplaintQuery   = db.SQL(`DELETE FROM simulated_complaint WHERE message = $1 AND n = $2`)
)

// scheduleComplaint stores a delivery's future complaint before its outcome. After a crash in
// between, the complaint is either sent or belongs to an attempt that is repeated.
func (s *Simulator) scheduleComplaint(ctx context.Context, d *queue.Delivery) error {
	now := s.opts.Now()
	err := s.opts.DB.Write(ctx, d.Message, &db.Mutation{Apply: func(b *db.Batch) {
		b.Queue(insertComplaintQuery.With(d.Message, d.N, db.Micros(now.Add(complaintDelay)), db.Micros(now.Add(complaintTimeout))))
	}})
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return err
}

// Run sends due complaints until ctx ends, including those scheduled before a restart or by a node
// that stopped.
func (s *Simulator) Run(ctx context.Context) error {
	notify.Repeat(ctx, s.wake, s.sendDueComplaints, func(err error) { s.opts.Log.Error("simulated complaints could not be made", "error", err) })
	return nil
}

// sendDueComplaints sends the due complaints, and returns when to check again.
func (s *Simulator) sendDueComplaints(ctx context.Context) (again time.Duration, err error) {
	type complaint struct {
		message db.ID
		n       int
		until   int64
	}
	due, err := db.All(ctx, s.opts.DB, dueComplaintsQuery.With(db.Micros(s.opts.Now()), complaintBatchSize), func(r db.Row) (c complaint, err error) {
		return c, r.Scan(&c.message, &c.n, &c.until)
	})
	if err != nil {
		return complaintRetryDelay, err
	}
	for _, c := range due {
		done, err := s.sendComplaint(ctx, c.message, c.n)
		if err != nil {
			return complaintRetryDelay, err
		}
		after := deleteComplaintQuery.With(c.message, c.n)
		if now := s.opts.Now(); !done && now.Before(db.Time(c.until)) {
			after = postponeComplaintQuery.With(c.message, c.n, db.Micros(now.Add(complaintRetryDelay)))
		}
		if _, err := s.opts.DB.Exec(ctx, after); err != nil {
			return complaintRetryDelay, err
		}
	}
	var next int64
	err = s.opts.DB.One(ctx, nextComplaintQuery.With(), &next)
	if errors.Is(err, db.ErrNoRow) {
		return complaintPollInterval, nil
	}
	return min(max(0, db.Time(next).Sub(s.opts.Now())), complaintPollInterval), err
}

// sendComplaint records a complaint about a delivery. done is false while the delivery may still
// become delivered.
func (s *Simulator) sendComplaint(ctx context.Context, message db.ID, n int) (done bool, err error) {
	changed, err := s.opts.Queue.RecordComplaint(ctx, message, n, queue.Report{Text: "abuse", Remote: "simulator"})
	if changed || fault.Is(err, fault.NotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	all, err := s.opts.Queue.Deliveries(ctx, message)
	for _, d := range all {
		if d.N == n {
			// RecordComplaint may have run just before it was delivered.
			return d.State.Final() && d.State != queue.Delivered, err
		}
	}
	return true, err
}
