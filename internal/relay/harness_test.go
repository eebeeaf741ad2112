// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/route"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// fixture is a test environment: a queue whose agent delivers by the records of a zone.
type fixture struct {
	t             testing.TB
	db            *db.DB
	hub           *notify.Hub
	queue         *queue.Queue
	router        *route.Router
	deliveryAgent queue.Agent
	zone          *dnstest.Zone
	events        *notify.Subscription
	run           func() // starts the queue

	mu    sync.Mutex
	now   time.Time
	mails map[db.ID]*queue.OutboundMessage
	loads map[string]int // how often mail of a sender was loaded
}

// newFixture returns a house that is not running yet. Its MX hosts are dialled on port.
func newFixture(t testing.TB, port uint16, set func(*relay.Options), records ...string) *fixture {
	t.Helper()
	addr, zone := dnstest.Start(t, records...)
	h := fixtureOn(t, port, set, addr)
	h.zone = zone
	return h
}

// fixtureOn is newFixture with an existing resolver.
func fixtureOn(t testing.TB, port uint16, set func(*relay.Options), resolver string, more ...func(*queue.Options)) *fixture {
	t.Helper()
	d, node := leasetest.Open(t, dbtest.SQLite(t))
	h := &fixture{
		t: t, db: d, hub: &notify.Hub{}, mails: map[db.ID]*queue.OutboundMessage{}, loads: map[string]int{},
		now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		router: &route.Router{
			DNS: dnstest.Resolver(t, resolver), HostName: "mail.ours.test", Port: port,
			AllowNets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		},
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	o := relay.Options{Router: h.router, Pool: smtpclient.NewPool(smtpclient.PoolLimits{}), LocalName: "mail.ours.test", Now: h.clock, Log: log}
	if set != nil {
		set(&o)
	}
	h.deliveryAgent = relay.New(o)
	qo := queue.Options{
		DB: d, Node: node, Hub: h.hub, Now: h.clock, Key: testkit.Key(t), Log: log,
		Events:  &event.Log{DB: d, Node: node, Hub: h.hub, Now: h.clock},
		Prepare: h.prepare,
		Describe: func(_ context.Context, id db.ID) (queue.MessageInfo, error) {
			return queue.MessageInfo{Account: 1}, nil
		},
		ChooseAgent: func(context.Context, string) (queue.Agent, error) { return h.deliveryAgent, nil },
		ResetBackoff: func() {
			if c, ok := h.deliveryAgent.(*relay.Agent); ok {
				c.ForgetFailures()
			}
		},
	}
	for _, f := range more {
		f(&qo)
	}
	h.queue = queue.New(qo)
	h.events = h.hub.Subscribe(notify.Key{Kind: notify.Event})
	t.Cleanup(h.events.Close)
	h.run = func() {
		ctx, cancel := context.WithCancel(context.Background())
		keep, let := context.WithCancel(context.Background())
		ended, kept := make(chan error, 1), make(chan error, 1)
		go func() { kept <- node.MaintainLease(keep) }()
		go func() { ended <- h.queue.Run(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the queue ended with %v", err)
			}
			let()
			if err := <-kept; err != nil {
				t.Errorf("the lease ended with %v", err)
			}
			if err := o.Pool.Close(context.Background()); err != nil {
				t.Errorf("closing the pool: %v", err)
			}
		})
	}
	return h
}

func (h *fixture) clock() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// later advances the clock and wakes the queue.
func (h *fixture) later(d time.Duration) {
	h.mu.Lock()
	h.now = h.now.Add(d)
	h.mu.Unlock()
	h.hub.Wake(notify.Key{Kind: notify.Queue})
}

func (h *fixture) prepare(_ context.Context, id db.ID) (*queue.OutboundMessage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.loads[h.mails[id].Sender]++
	return h.mails[id], nil
}

const (
	head = "DKIM-Signature: v=1; b=x\r\n"
	text = "Subject: hi\r\n\r\n.hello\r\n"
)

// newMail returns a message from a@from.test; edit changes it.
func (h *fixture) newMail(edit func(*queue.OutboundMessage)) *queue.OutboundMessage {
	id := h.db.NewID()
	m := &queue.OutboundMessage{
		MessageInfo: queue.MessageInfo{Account: 1, MessageID: "<x@from.test>"}, ID: id, Sender: "a@from.test", Head: []byte(head),
		Body: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil },
		Size: int64(len(head) + len(text)),
	}
	if edit != nil {
		edit(m)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mails[id] = m
	return m
}

// accept queues a message to addresses, which may share a transaction.
func (h *fixture) accept(m *queue.OutboundMessage, addresses ...string) db.ID {
	h.t.Helper()
	var rcpts []queue.Recipient
	for _, a := range addresses {
		_, domain, _ := strings.Cut(a, "@")
		rcpts = append(rcpts, queue.Recipient{Address: a, Kind: "envelope", Destination: domain})
	}
	p := h.queue.Reserve(queue.Message{MessageInfo: m.MessageInfo, ID: m.ID, ExpiresAt: h.clock().Add(72 * time.Hour)}, rcpts)
	if err := h.db.Write(context.Background(), m.ID, &db.Mutation{Apply: p.AddStatements, AfterCommit: p.Dispatch}); err != nil {
		p.Abandon()
		h.t.Fatal(err)
	}
	return m.ID
}

func (h *fixture) send(addresses ...string) db.ID {
	h.t.Helper()
	return h.accept(h.newMail(nil), addresses...)
}

// await waits until each delivery of the messages has had an attempt.
func (h *fixture) await(ids ...db.ID) {
	h.t.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	for {
		for len(ids) > 0 && h.settled(ids[0]) {
			ids = ids[1:]
		}
		if len(ids) == 0 {
			return
		}
		select {
		case <-h.events.C:
		case <-limit.C:
			h.mu.Lock()
			for id := range h.mails {
				if all, err := h.queue.Attempts(context.Background(), id); err != nil || len(all) > 0 && all[0].Outcome == queue.Deferred {
					h.t.Logf("deferred: %+v, %v", all, err)
				}
			}
			h.mu.Unlock()
			h.t.Fatalf("waited in vain: %+v, %+v", h.queue.Stats(), h.deliveries(ids[0]))
		}
	}
}

func (h *fixture) settled(id db.ID) bool {
	for _, r := range h.deliveries(id) {
		if r.State != queue.Deferred && !r.State.Final() {
			return false
		}
	}
	return true
}

func (h *fixture) deliveries(id db.ID) []queue.DeliveryStatus {
	h.t.Helper()
	all, err := h.queue.Deliveries(context.Background(), id)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// attempt returns the last attempt of a message's only delivery.
func (h *fixture) attempt(id db.ID) queue.Attempt {
	h.t.Helper()
	h.await(id)
	all, err := h.queue.Attempts(context.Background(), id)
	if err != nil || len(all) == 0 {
		h.t.Fatalf("attempts %v, %v", all, err)
	}
	return all[len(all)-1]
}

// states lists how a message's deliveries ended: state and enhanced code.
func (h *fixture) states(id db.ID) string {
	h.t.Helper()
	h.await(id)
	var s []string
	for _, r := range h.deliveries(id) {
		s = append(s, strings.TrimSpace(string(r.State)+" "+r.Enhanced))
	}
	return strings.Join(s, ", ")
}
