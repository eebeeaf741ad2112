// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/testkit"

	"go.uber.org/goleak"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/webhook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// waitLimit is the timeout for expected events.
const waitLimit = 2 * time.Minute

var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
)

// told is an outcome that was written.
type told struct {
	hook, event db.ID
	state       string
	err         error
}

// fixture is a database with a running sequencer and webhook service.
type fixture struct {
	t       testing.TB
	db      *db.DB
	node    *lease.Node
	hub     *notify.Hub
	log     *event.Log
	hooks   *webhook.Service
	options webhook.Options
	account db.ID
	key     *secret.Key
	ahead   atomic.Int64 // offset of the clock
	told    chan told
	cutOff  bool // the node's lease is not maintained
	stop    func()
}

// loud is a log whose errors fail the test.
type loud struct{ t testing.TB }

func (l loud) Write(p []byte) (int, error) {
	l.t.Errorf("%s", p)
	return len(p), nil
}

// now returns the time of a clock that the test advances.
func (h *fixture) now() time.Time { return time.Now().Add(time.Duration(h.ahead.Load())) }

// forward advances the clock and wakes all.
func (h *fixture) forward(d time.Duration) {
	h.ahead.Add(int64(d))
	h.hub.WakeAll()
}

type option func(*webhook.Options)

// build creates the services; run starts them.
func build(t testing.TB, url string, options ...option) *fixture {
	t.Helper()
	d, node := leasetest.Open(t, url)
	return furnish(t, d, node, options...)
}

func furnish(t testing.TB, d *db.DB, node *lease.Node, options ...option) *fixture {
	t.Helper()
	h := &fixture{t: t, db: d, node: node, key: testkit.Key(t), told: make(chan told, 1<<17), stop: func() {}}
	yes := func(context.Context, db.ID, db.ID) (bool, error) { return true, nil }
	h.options = webhook.Options{
		DB: d, Node: node, Key: h.key, Dialer: &egress.Dialer{AllowNets: loopback, DNS: names(t)},
		Version: "test", Now: h.now, Log: slog.New(slog.NewTextHandler(loud{t}, &slog.HandlerOptions{Level: slog.LevelError})), OwnsDomain: yes, OwnsMailbox: yes,
	}
	for _, option := range options {
		option(&h.options)
	}
	h.useHub(&notify.Hub{})
	h.account = h.newAccount()
	return h
}

// useHub creates the services on a hub.
func (h *fixture) useHub(hub *notify.Hub) {
	h.hub = hub
	creator := webhook.NewDeliveryCreator(h.hub, h.now)
	h.log = &event.Log{
		DB: h.db, Node: h.node, Hub: h.hub, Now: h.now, RemoveContent: func(string, json.RawMessage) (any, error) { return nil, nil },
		OnNumbering: []func(*db.Batch){creator.CreateDeliveries}, AfterNumbering: []func(){creator.WakeDeliveries},
	}
	o := h.options
	o.Hub, o.Events = h.hub, h.log
	h.hooks = webhook.New(o)
	h.hooks.Told(func(hook, event db.ID, state string, err error) { h.told <- told{hook, event, state, err} })
}

// names is a resolver that knows the names of the tests' receivers.
func names(t testing.TB) *dns.Resolver {
	t.Helper()
	addr, zone := dnstest.Start(t,
		"a.example. A 1.1.1.1", "xn--mnchen-3ya.example. A 1.1.1.1", "app.example. A 127.0.0.1", "app.example. A 1.1.1.1",
		"inside.example. A 10.0.0.1",
	)
	zone.ServFail("broken.example")
	return dnstest.Resolver(t, addr)
}

func (h *fixture) newAccount() db.ID {
	h.t.Helper()
	return testkit.AddAccount(h.t, h.db)
}

// run runs the sequencer and the webhook service until the test ends, or stop.
func (h *fixture) run() {
	ctx, cancel := context.WithCancel(context.Background())
	leaseCtx, leave := context.WithCancel(context.Background())
	var working, keeping sync.WaitGroup
	keeping.Go(func() {
		if h.cutOff {
			return
		}
		if err := h.node.MaintainLease(leaseCtx); err != nil {
			h.t.Error(err)
		}
	})
	working.Go(func() {
		if err := h.log.RunSequencer(ctx, slog.New(slog.NewTextHandler(loud{h.t}, &slog.HandlerOptions{Level: slog.LevelError}))); err != nil {
			h.t.Error(err)
		}
	})
	working.Go(func() {
		if err := h.hooks.Run(ctx); err != nil {
			h.t.Error(err)
		}
	})
	h.stop = sync.OnceFunc(func() {
		cancel()
		working.Wait()
		leave()
		keeping.Wait()
	})
	h.t.Cleanup(func() { h.stop() })
}

func start(t testing.TB, url string, options ...option) *fixture {
	t.Helper()
	h := build(t, url, options...)
	h.run()
	return h
}

// each runs f with a house for each engine.
func each(t *testing.T, f func(t *testing.T, h *fixture), options ...option) {
	t.Helper()
	dbtest.EachURL(t, func(t *testing.T, url string) { f(t, start(t, url, options...)) })
}

// create creates a webhook for the kinds, or for all, and returns it with its secret.
func (h *fixture) create(url string, kinds ...string) (webhook.Webhook, string) {
	h.t.Helper()
	if len(kinds) == 0 {
		kinds = []string{webhook.AllKinds}
	}
	w, secret, err := h.hooks.Create(h.t.Context(), h.account, webhook.Spec{URL: url, Kinds: kinds})
	if err != nil {
		h.t.Fatal(err)
	}
	return w, secret
}

type data struct {
	N int `json:"n"`
}

// record records n events of a kind in one transaction.
func (h *fixture) record(kind string, n int) {
	h.t.Helper()
	h.recordAll(h.account, func(i int) event.RecordParams { return event.RecordParams{Kind: kind, Data: data{i}} }, n)
}

func (h *fixture) recordAll(account db.ID, of func(int) event.RecordParams, n int) {
	h.t.Helper()
	if err := h.db.Tx(h.t.Context(), func(tx *db.Tx) error {
		for i := range n {
			e := of(i)
			e.Account = account
			if err := h.log.Record(h.t.Context(), tx, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		h.t.Fatal(err)
	}
}

// newest numbers the recorded events and returns the id of the last one.
func (h *fixture) newest() db.ID {
	h.t.Helper()
	for {
		n, err := h.log.AssignPositions(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		if n == 0 {
			break
		}
	}
	last, err := h.log.List(h.t.Context(), h.account, event.Filter{Before: 1 << 62, Limit: 1})
	if err != nil || len(last.Events) == 0 {
		h.t.Fatal(err)
	}
	return last.Events[0].ID
}

// outcome waits for the next outcome.
func (h *fixture) outcome() told {
	h.t.Helper()
	select {
	case o := <-h.told:
		if o.err != nil {
			h.t.Fatal(o.err)
		}
		return o
	case <-time.After(waitLimit):
		h.t.Fatal("no attempt came to an end")
		return told{}
	}
}

func (h *fixture) delivery(hook, id db.ID) (webhook.Delivery, []webhook.Attempt) {
	h.t.Helper()
	d, attempts, err := h.hooks.Delivery(h.t.Context(), h.account, hook, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return d, attempts
}

func (h *fixture) hook(id db.ID) webhook.Webhook {
	h.t.Helper()
	w, err := h.hooks.Get(h.t.Context(), h.account, id)
	if err != nil {
		h.t.Fatal(err)
	}
	return w
}

// request is a request that a receiver got.
type request struct {
	*http.Request
	n    int // number of the request, from 1
	body []byte
}

// receiver is an application that gets deliveries. It calls answer with each request; without one
// it responds with 200.
type receiver struct {
	*httptest.Server
	t      testing.TB
	got    chan request
	n      atomic.Int64
	answer func(w http.ResponseWriter, r request)
}

func listen(t testing.TB, answer func(w http.ResponseWriter, r request)) *receiver {
	t.Helper()
	r := &receiver{t: t, got: make(chan request, 1<<17), answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return // the sender gave up
	}
	got := request{in, int(r.n.Add(1)), body}
	if r.answer != nil {
		r.answer(w, got)
	}
	if r.got != nil {
		r.got <- got
	}
}

// next waits for a request.
func (r *receiver) next() request {
	r.t.Helper()
	select {
	case got := <-r.got:
		return got
	case <-time.After(waitLimit):
		r.t.Fatal("no request came")
		return request{}
	}
}

// verify is a receiver's signature check, written from the interface specification alone:
// HMAC-SHA256 over the raw body with the secret as key, in lower-case hex after "sha256=", compared
// in constant time.
func verify(secret string, header http.Header, body []byte) error {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	want := "sha256=" + hex.EncodeToString(mac.Sum(nil))
	if !hmac.Equal([]byte(want), []byte(header.Get("X-Service-Signature"))) {
		return fmt.Errorf("the signature is not %s", want)
	}
	return nil
}
