// SPDX-License-Identifier: Apache-2.0

// Package webhook sends an account's events to the URLs that it named. What it
// promises:
//
//   - each numbered event makes one delivery for each enabled webhook that wants
//     it, in the transaction that numbers it;
//   - a delivery is tried until the receiver took it (a 2xx answer) or the
//     schedule is over; after a crash it may arrive twice, always with the same
//     id and the same bytes;
//   - one node at a time works for a webhook, a few attempts at the same time,
//     and one while it fails; a webhook that is slow, dead or has a long
//     backlog holds up no other.
//
// Events may arrive out of their order: what orders them is in their data.
package webhook

import (
	"context"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// The states of a webhook.
const (
	StatusEnabled  = "enabled"
	StatusDisabled = "disabled"
)

// Why a webhook is disabled.
const (
	ReasonManual  = "manual"  // its account said so
	ReasonGone    = "gone"    // it answered 410
	ReasonFailing = "failing" // for five days every attempt failed
)

// AllKinds subscribes to every kind of event.
const AllKinds = "all"

// Limits.
const (
	MaxPerAccount  = 50   // webhooks of an account
	MaxURL         = 2048 // octets of a URL
	MaxDescription = 200  // characters
	MaxFilterIDs   = 100  // domains, and mailboxes, of a filter
	// SecretOverlap is how long an old secret signs beside a new one.
	SecretOverlap = 24 * time.Hour
)

// Webhook is where events are sent to. Its secret is shown by Create and Rotate
// alone.
type Webhook struct {
	ID          db.ID
	Account     db.ID
	URL         string
	Kinds       []string // in the order of event.Kinds; All alone if it was among them
	Domains     []db.ID  // only events about one of these domains or mailboxes; both empty for every event
	Mailboxes   []db.ID
	Description string
	// Content is whether deliveries hold the content of mail that arrived.
	Content  bool
	Status   string
	Reason   string    // while it is disabled: Manual, ReasonGone, ReasonFailing
	StatusAt time.Time // since when it has the status
	// OldSecretUntil is until when a former secret signs too; zero for none.
	OldSecretUntil time.Time
	// FailingSince is the first failure since the last success; zero for none.
	FailingSince time.Time
	CreatedAt    time.Time
	UpdatedAt    time.Time

	revision int64
}

// Failing reports whether the last attempt of an enabled webhook failed.
func (w Webhook) Failing() bool { return w.Status == StatusEnabled && !w.FailingSince.IsZero() }

// Options are what Service work with.
type Options struct {
	DB     *db.DB
	Node   *db.Node
	Hub    *notify.Hub
	Events *event.Log
	Key    *secret.Key // seals the secrets
	// Dialer connects to the receivers. Its Allow also says where plain http
	// may go to.
	Dialer  *egress.Dialer
	Roots   *x509.CertPool // trusted in receivers' certificates; nil for the system's
	Version string         // of the service, for User-Agent
	Now     func() time.Time
	Log     *slog.Logger

	// OwnsDomain and OwnsMailbox report whether an account has what a filter
	// names.
	OwnsDomain  func(ctx context.Context, account, domain db.ID) (bool, error)
	OwnsMailbox func(ctx context.Context, account, mailbox db.ID) (bool, error)
	// Disabled tells the people of an account of a webhook that was disabled
	// because it failed, or is gone. It is called once, after the commit; a
	// crash in that moment costs the notice. It may be nil.
	Disabled func(ctx context.Context, w Webhook) error

	MaxAttempts  int           // attempts at the same time at most; 0: 400
	MaxProbes    int           // of webhooks that fail, beside these; 0: 100
	MaxWebhooks  int           // webhooks in hand at most; 0: 2,000
	Timeout      time.Duration // of an attempt in all; 0: 15 s
	DrainTimeout time.Duration // how long attempts may finish at the end; 0: 30 s
}

// Service keeps webhooks and carries their deliveries. It is safe for concurrent
// use.
type Service struct {
	o              Options
	slots          chan struct{} // one for each attempt under way of a webhook that works
	probes         chan struct{} // the same of those that fail
	attemptCtx     context.Context
	cancelAttempts context.CancelFunc // ends carry: attempts are given up
	writeCtx       context.Context
	cancelWrites   context.CancelFunc // ends last: outcomes are given up

	dispatcherWG sync.WaitGroup // lanes
	writeWG      sync.WaitGroup // outcomes
	polledAt     time.Time
	purgedAt     time.Time
	// onSettled, if set, is told each outcome (for tests).
	onSettled func(hook db.ID, o *outcome, err error)

	mu             sync.Mutex
	dispatchers    map[db.ID]*dispatcher // in hand
	testsRunning   int                   // tests that are being made
	testsByAccount map[db.ID]int         // of these, by account
	errorLoggedAt  time.Time
	pendingWakes   []db.ID // webhooks that got deliveries in the batch that is being numbered
}

// New returns Service. Until Run is called, deliveries wait.
func New(o Options) *Service {
	def := func(n *int, fallback int) {
		if *n <= 0 {
			*n = fallback
		}
	}
	def(&o.MaxAttempts, 400)
	def(&o.MaxProbes, 100)
	def(&o.MaxWebhooks, 2000)
	if o.Timeout <= 0 {
		o.Timeout = 15 * time.Second
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 30 * time.Second
	}
	h := &Service{
		o: o, slots: make(chan struct{}, o.MaxAttempts), probes: make(chan struct{}, o.MaxProbes),
		dispatchers: map[db.ID]*dispatcher{}, testsByAccount: map[db.ID]int{},
	}
	h.attemptCtx, h.cancelAttempts = context.WithCancel(context.Background())
	h.writeCtx, h.cancelWrites = context.WithCancel(context.Background())
	return h
}
