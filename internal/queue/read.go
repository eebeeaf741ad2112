// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// DeliveryStatus is a delivery as the API shows it.
type DeliveryStatus struct {
	N         int
	Recipient string
	Kind      string
	State     State // Sending while it is leased
	Held      bool  // whether an operator holds it
	DueAt     time.Time
	ExpiresAt time.Time
	Attempts  int
	Code      int
	Enhanced  string
	Reply     string
	Remote    string
	UpdatedAt time.Time
}

// Attempt is one attempt of a delivery, or a later remark about it (AddRemark).
type Attempt struct {
	N          int // index of the delivery
	Number     int // 1…; 0 for a remark
	StartedAt  time.Time
	Duration   time.Duration
	Outcome    State
	Host       string
	IP         string
	TLS        string
	Stage      string
	Code       int
	Enhanced   string
	Reply      string
	Transcript string
}

var (
	deliveriesQuery = db.SQL(`SELECT n, recipient, kind, state, due_at, expires_at, COALESCE(lease, 0), hold > 0, attempts,
			code, enhanced, reply, remote_host, updated_at, message
		FROM delivery WHERE message = $1 ORDER BY n`)
	// The query returns the last 100 attempts of each delivery: a customer who retries all the time
	// can make any number. Their latest transcripts share 6.4 MB, in equal parts per delivery,
	// which is at least one transcript: a remote host may fill all of them. CROSS makes SQLite, and
	// + 0 makes PostgreSQL, look up attempts by key. Otherwise both read all attempts of the
	// message, PostgreSQL once per delivery.
	attemptsQuery = db.SQL(`SELECT a.n, a.attempt, a.started_at, a.duration_us, a.outcome, a.host, a.ip, a.tls, a.stage, a.code, a.enhanced, a.reply,
			CASE WHEN SUM(LENGTH(a.transcript)) OVER (PARTITION BY a.n ORDER BY a.attempt DESC) <= 6553600 / (SELECT COUNT(*) FROM delivery WHERE message = $1)
				THEN a.transcript ELSE '' END
		FROM delivery AS d CROSS JOIN attempt AS a
		WHERE d.message = $1 AND a.message = d.message + 0 AND a.n = d.n AND a.attempt > d.attempts - 100
		UNION ALL
		SELECT n, 0, at, 0, outcome, remote_host, '', '', stage, code, enhanced, reply, ''
		FROM remark WHERE message = $1
		ORDER BY 1, 3, 2`)
)

// Deliveries returns the deliveries of a message in the order of recipients, and none for a message
// that does not exist.
func (q *Queue) Deliveries(ctx context.Context, message db.ID) ([]DeliveryStatus, error) {
	rows, err := db.All(ctx, q.o.DB, deliveriesQuery.With(message), scanDeliveryRow)
	if err != nil {
		return nil, err
	}
	return q.groupRows(rows)[message], nil
}

// ReadDeliveries is Deliveries without a queue: every delivery that a node has leased is Sending.
func ReadDeliveries(ctx context.Context, r db.Reader, message db.ID) ([]DeliveryStatus, error) {
	rows, err := db.All(ctx, r, deliveriesQuery.With(message), scanDeliveryRow)
	list := make([]DeliveryStatus, len(rows))
	for i, row := range rows {
		if row.lease > 0 && !row.State.Final() && row.State != Scheduled {
			row.State = Sending
		}
		list[i] = row.DeliveryStatus
	}
	return list, err
}

// deliveryRow is a row of the delivery table.
type deliveryRow struct {
	DeliveryStatus
	message, lease db.ID
}

func scanDeliveryRow(row db.Row) (r deliveryRow, err error) {
	var due, expires, updated int64
	err = row.Scan(&r.N, &r.Recipient, &r.Kind, (*string)(&r.State), &due, &expires, &r.lease, &r.Held, &r.Attempts,
		&r.Code, &r.Enhanced, &r.Reply, &r.Remote, &updated, &r.message)
	r.DueAt, r.ExpiresAt, r.UpdatedAt = db.Time(due), db.Time(expires), db.Time(updated)
	return r, err
}

// groupRows groups deliveries by message, and sets Sending where it applies.
func (q *Queue) groupRows(rows []deliveryRow) map[db.ID][]DeliveryStatus {
	own, _ := q.o.Node.Lease()
	of := map[db.ID][]DeliveryStatus{}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range rows {
		if r.lease != 0 && !r.State.Final() && r.State != Scheduled {
			// This node knows whether its own deliveries are in an attempt.
			if d := q.dispatch.Find(deliveryKey{Message: r.message, N: r.N}); r.lease != own || d != nil && d.InAttempt() {
				r.State = Sending
			}
		}
		of[r.message] = append(of[r.message], r.DeliveryStatus)
	}
	return of
}

// Attempts returns the attempts of a message and the later remarks, sorted by delivery and time.
func (q *Queue) Attempts(ctx context.Context, message db.ID) ([]Attempt, error) {
	return ReadAttempts(ctx, q.o.DB, message)
}

// ReadAttempts is Attempts without a queue.
func ReadAttempts(ctx context.Context, d db.Reader, message db.ID) ([]Attempt, error) {
	return db.All(ctx, d, attemptsQuery.With(message), func(r db.Row) (a Attempt, err error) {
		var started, micros int64
		err = r.Scan(&a.N, &a.Number, &started, &micros, (*string)(&a.Outcome), &a.Host, &a.IP, &a.TLS, &a.Stage,
			&a.Code, &a.Enhanced, &a.Reply, &a.Transcript)
		a.StartedAt, a.Duration = db.Time(started), time.Duration(micros)*time.Microsecond
		return a, err
	})
}

// MessageState derives a message's state from the states of its deliveries: the first of sending,
// deferred, queued and scheduled that a delivery has, otherwise the first of failed, bounced,
// complained, suppressed, cancelled and delivered. It is "" for none.
func MessageState(deliveries []State) State {
	for _, s := range []State{
		Sending, Deferred, Queued, Scheduled,
		Failed, Bounced, Complained, Suppressed, Cancelled, Delivered,
	} {
		if slices.Contains(deliveries, s) {
			return s
		}
	}
	return ""
}
