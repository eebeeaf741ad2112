// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/suppression"
)

// deliveryAgent is a delivery agent whose outcomes come from a function. A nil slice means that the whole
// destination failed.
type deliveryAgent struct {
	parallel int
	answer   func(ctx context.Context, c *queue.Transaction) []queue.Outcome
}

func (c *deliveryAgent) Concurrency(int) int { return c.parallel }

func (c *deliveryAgent) Deliver(ctx context.Context, r *queue.Session) {
	for {
		got := r.Next()
		if got == nil {
			return
		}
		answers := c.answer(ctx, got)
		if answers == nil {
			r.FailDestination(got, queue.Outcome{Reply: "connection refused", Host: "mx." + r.Destination(), Stage: "connect"})
			return
		}
		r.Finish(got, answers...)
	}
}

var (
	delivered = queue.Outcome{State: queue.Delivered, Code: 250, Enhanced: "2.0.0", Reply: "ok", Host: "mx.test", Stage: "final"}
	deferred  = queue.Outcome{State: queue.Deferred, Code: 451, Enhanced: "4.7.1", Reply: "greylisted", Host: "mx.test", Stage: "rcpt"}
	bounced   = queue.Outcome{State: queue.Bounced, Code: 550, Enhanced: "5.1.1", Reply: "no such user", Host: "mx.test", Stage: "rcpt"}
)

// settled is a delivery that left the memory.
type settled struct {
	message db.ID
	state   queue.State
}

// logLines receives the queue's log lines, for tests that wait for one.
type logLines chan string

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

// await waits for a line that contains one of the texts, in any case.
func (l logLines) await(t testing.TB, texts ...string) {
	t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		select {
		case line := <-l:
			line = strings.ToLower(line)
			if slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) }) {
				return
			}
		case <-limit.C:
			t.Fatalf("%q was never logged", texts)
		}
	}
}

// fixture is a queue with its dependencies.
type fixture struct {
	t       testing.TB
	db      *db.DB
	node    *lease.Node
	clock   *testkit.Clock
	hub     *notify.Hub
	queue   *queue.Queue
	account db.ID
	key     *secret.Key
	settled chan settled
	log     logLines

	submits  bool // mail submitted by a mailbox
	mu       sync.Mutex
	prepared map[db.ID]int
	denied   map[db.ID]error
	stop     context.CancelFunc
	ended    chan error
}

func newFixture(t testing.TB, d *db.DB, n *lease.Node, c queue.Agent, set ...func(*queue.Options)) *fixture {
	h := &fixture{t: t, log: make(logLines, 10_000), db: d, node: n, hub: &notify.Hub{}, account: d.NewID(),
		clock: testkit.NewClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
		key:   testkit.Key(t), settled: make(chan settled, 100_000), prepared: map[db.ID]int{}, denied: map[db.ID]error{}}
	o := queue.Options{
		DB: d, Node: n, Hub: h.hub, Now: h.clock.Now, Key: h.key,
		Suppressions: &suppression.List{DB: d, Now: h.clock.Now},
		Log:          slog.New(slog.NewTextHandler(h.log, nil)),
		Events:       &event.Log{DB: d, Node: n, Hub: h.hub, Now: h.clock.Now},
		Prepare:      h.prepare,
		Describe:     func(_ context.Context, id db.ID) (queue.MessageInfo, error) { return h.about(id), nil },
		ChooseAgent:  func(context.Context, string) (queue.Agent, error) { return c, nil },
	}
	for _, f := range set {
		f(&o)
	}
	h.queue = queue.New(o)
	h.queue.OnSettled(func(d *queue.Delivery) { h.settled <- settled{d.Message, queue.StateOf(d)} })
	return h
}

func eachFixture(t *testing.T, c queue.Agent, f func(t *testing.T, h *fixture), set ...func(*queue.Options)) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, n := leasetest.Open(t, url)
		f(t, newFixture(t, d, n, c, set...))
	})
}

func (h *fixture) about(id db.ID) queue.MessageInfo {
	return queue.MessageInfo{Account: h.account, API: !h.submits, MessageID: "<" + id.String() + "@from.test>", ThreadID: "thread",
		Metadata: json.RawMessage(`{"order":7}`), Tags: "receipt shop"}
}

func (h *fixture) prepare(_ context.Context, id db.ID) (*queue.OutboundMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prepared[id]++
	if err := h.denied[id]; err != nil {
		return nil, err
	}
	return &queue.OutboundMessage{
		MessageInfo: h.about(id), ID: id, ReturnDomain: "from.test", Size: 3,
		Body: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("a\r\n")), nil },
	}, nil
}

// run starts the queue; it ends with the test.
func (h *fixture) run() *fixture {
	ctx, cancel := context.WithCancel(context.Background())
	h.stop, h.ended = cancel, make(chan error, 1)
	go func() { h.ended <- h.queue.Run(ctx) }()
	kept, release := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() { left <- h.node.MaintainLease(kept) }()
	h.t.Cleanup(func() {
		h.end()
		release()
		if err := <-left; err != nil {
			h.t.Errorf("leaving: %v", err)
		}
	})
	return h
}

// end stops the queue and waits until it has drained.
func (h *fixture) end() {
	h.stop()
	err := <-h.ended
	if err != nil {
		h.t.Errorf("the queue ended with %v", err)
	}
	h.ended <- err // for another call of end
}

// to returns recipients with the addresses.
func to(addresses ...string) (rcpts []queue.Recipient) {
	for _, a := range addresses {
		_, domain, _ := strings.Cut(a, "@")
		rcpts = append(rcpts, queue.Recipient{Address: a, Kind: "to", Destination: domain})
	}
	return rcpts
}

func (h *fixture) message() queue.Message {
	id := h.db.NewID()
	return queue.Message{ID: id, MessageInfo: h.about(id), ExpiresAt: h.clock.Now().Add(72 * time.Hour)}
}

func (h *fixture) accept(m queue.Message, rcpts []queue.Recipient) db.ID {
	h.t.Helper()
	if err := h.try(m, rcpts); err != nil {
		h.t.Fatal(err)
	}
	return m.ID
}

func (h *fixture) try(m queue.Message, rcpts []queue.Recipient) error {
	p := h.queue.Reserve(m, rcpts)
	err := h.db.Write(context.Background(), m.Account, &db.Mutation{Apply: p.AddStatements, AfterCommit: p.Dispatch})
	if err != nil {
		p.Abandon()
	}
	return err
}

func (h *fixture) send(addresses ...string) db.ID {
	h.t.Helper()
	return h.accept(h.message(), to(addresses...))
}

// await waits until n deliveries have left the memory.
func (h *fixture) await(n int) {
	h.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for range n {
		select {
		case <-h.settled:
		case <-limit.C:
			h.t.Fatalf("waited in vain for %d deliveries; %+v", n, h.queue.Stats())
		}
	}
}

// later advances the clock and makes the queue poll.
func (h *fixture) later(d time.Duration) {
	h.clock.Add(d)
	h.hub.Wake(notify.Key{Kind: notify.Queue})
}

func (h *fixture) states(message db.ID) string {
	h.t.Helper()
	all, err := h.queue.Deliveries(context.Background(), message)
	if err != nil {
		h.t.Fatal(err)
	}
	var s []string
	for _, r := range all {
		s = append(s, string(r.State))
	}
	return strings.Join(s, " ")
}

func (h *fixture) wantStates(message db.ID, want string) {
	h.t.Helper()
	if got := h.states(message); got != want {
		h.t.Errorf("states %q, want %q", got, want)
	}
}

var eventsOf = db.SQL(`SELECT kind, data FROM event WHERE message = $1 ORDER BY id`)

// events lists a message's events, as "kind sequence status-or-type".
func (h *fixture) events(message db.ID) string {
	h.t.Helper()
	var s []string
	err := h.db.Each(context.Background(), eventsOf.With(message), func(r db.Row) error {
		var kind, data string
		if err := r.Scan(&kind, &data); err != nil {
			return err
		}
		var e struct {
			ID, Status, Type, Recipient string
			MessageID                   string `json:"message_id"`
			ThreadID                    string `json:"thread_id"`
			Metadata                    map[string]int
			Tags                        []string
			Sequence                    int
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		if e.ID != message.String() || e.MessageID != h.about(message).MessageID || e.ThreadID != "thread" ||
			e.Metadata["order"] != 7 || len(e.Tags) != 2 || e.Tags[1] != "shop" || e.Recipient == "" {
			return errors.New("the event lacks what all have: " + data)
		}
		s = append(s, strings.TrimSpace(fmt.Sprintf("%s %d %s%s", kind, e.Sequence, e.Status, e.Type)))
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.Join(s, ", ")
}

func (h *fixture) wantEvents(message db.ID, want string) {
	h.t.Helper()
	if got := h.events(message); got != want {
		h.t.Errorf("events:\n got %s\nwant %s", got, want)
	}
}

// next acquires the lease of the next process.
func (h *fixture) next() *lease.Node {
	h.t.Helper()
	n, err := lease.Join(context.Background(), h.db, lease.Options{Name: "test", Holder: "test"})
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// settledOf drains the channel of settled deliveries.
func (h *fixture) settledOf() {
	for {
		select {
		case <-h.settled:
		default:
			return
		}
	}
}

// awaitDelivered waits until n more deliveries were delivered.
func (h *fixture) awaitDelivered(n int) {
	h.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for n > 0 {
		select {
		case s := <-h.settled:
			if s.state == queue.Delivered {
				n--
			}
		case <-limit.C:
			h.t.Fatalf("waited in vain for %d deliveries; %+v", n, h.queue.Stats())
		}
	}
}

// drained checks that no attempt has started.
func (h *fixture) drained(began chan string) {
	h.t.Helper()
	select {
	case who := <-began:
		h.t.Errorf("an attempt for %s began", who)
	default:
	}
}

var ownedRows = db.SQL(`SELECT COUNT(*) FROM delivery WHERE lease IS NOT NULL`)

func (h *fixture) owned() (n int) {
	h.t.Helper()
	if err := h.db.One(context.Background(), ownedRows.With(), &n); err != nil {
		h.t.Fatal(err)
	}
	return n
}
