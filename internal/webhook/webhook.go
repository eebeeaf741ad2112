// SPDX-License-Identifier: Apache-2.0

// Package webhook sends an account's events to its webhook URLs. The package guarantees:
//
//   - Each numbered event creates one delivery for each enabled webhook that subscribes to it, in
//     the transaction that numbers it.
//   - A delivery is tried until the receiver accepts it (a 2xx response) or the schedule is over.
//     After a crash it may arrive twice, always with the same id and the same bytes.
//   - One node at a time delivers to a webhook, with a few concurrent attempts, and with one while
//     it fails. A webhook that is slow, dead or has a long backlog does not delay other webhooks.
//
// Events may arrive out of order. Their data has the fields to order them.
package webhook

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// The states of a webhook.
const (
	StatusEnabled  = "enabled"
	StatusDisabled = "disabled"
)

// The reasons why a webhook is disabled.
const (
	ReasonManual  = "manual"  // the account disabled it
	ReasonGone    = "gone"    // the receiver returned 410
	ReasonFailing = "failing" // every attempt failed for five days
)

// AllKinds subscribes to every kind of event.
const AllKinds = "all"

// Limits.
const (
	MaxPerAccount  = 50   // webhooks of an account
	MaxURL         = 2048 // octets of a URL
	MaxDescription = 200  // characters
	MaxFilterIDs   = 100  // domains, and mailboxes, of a filter
	// SecretOverlap is how long an old secret signs alongside a new one.
	SecretOverlap = 24 * time.Hour
)

// Webhook is a subscription of a URL to events. Only Create and Rotate return its secret.
type Webhook struct {
	ID          db.ID
	Account     db.ID
	URL         string
	Kinds       []string // in the order of event.Kinds; only AllKinds if it was among them
	Domains     []db.ID  // only events about one of these domains or mailboxes; both empty for every event
	Mailboxes   []db.ID
	Description string
	// Content reports whether deliveries contain the content of received mail.
	Content  bool
	Status   string
	Reason   string    // while it is disabled: ReasonManual, ReasonGone or ReasonFailing
	StatusAt time.Time // time of the last status change
	// OldSecretUntil is when the last old secret stops signing; zero for none.
	OldSecretUntil time.Time
	// FailingSince is the time of the first failure since the last success; zero for none.
	FailingSince time.Time
	// PausedUntil is the time before which no attempt starts, since the last ones failed or the
	// receiver requested it; zero for no pause, and while the webhook is disabled.
	PausedUntil time.Time
	CreatedAt   time.Time
	UpdatedAt   time.Time

	revision int64
}

// Failing reports whether the last attempt of an enabled webhook failed.
func (w Webhook) Failing() bool { return w.Status == StatusEnabled && !w.FailingSince.IsZero() }

// Options configure a Service.
type Options struct {
	DB     *db.DB
	Node   *lease.Node
	Hub    *notify.Hub
	Events *event.Log
	Key    *secret.Key // seals the secrets
	// Dialer connects to the receivers. Its AllowNets also says where plain http may go.
	Dialer  *egress.Dialer
	Roots   *x509.CertPool // trusted roots for receivers' certificates; nil for the system's
	Version string         // version of the service, for User-Agent
	Now     func() time.Time
	Log     *slog.Logger

	// OwnsDomain and OwnsMailbox report whether an account owns the domain or mailbox of a filter.
	OwnsDomain  func(ctx context.Context, account, domain db.ID) (bool, error)
	OwnsMailbox func(ctx context.Context, account, mailbox db.ID) (bool, error)
	// Disabled notifies an account that a webhook was disabled because it failed or returned 410.
	// It is called once, after the commit; a crash in that moment loses the notification. It may be
	// nil.
	Disabled func(ctx context.Context, w Webhook) error

	MaxAttempts  int           // maximum of concurrent attempts; 0: 400
	MaxProbes    int           // maximum of concurrent attempts for failing webhooks, in addition; 0: 100
	MaxWebhooks  int           // maximum of leased webhooks; 0: 2,000
	Timeout      time.Duration // timeout of a whole attempt; 0: 15 s
	DrainTimeout time.Duration // how long running attempts may take after Run's context ends; 0: 30 s
}

// Service manages webhooks and delivers events to them. It is safe for concurrent use.
type Service struct {
	o              Options
	slots          chan struct{} // one slot per running attempt of a working webhook
	probes         chan struct{} // one slot per running attempt of a failing webhook
	attemptCtx     context.Context
	cancelAttempts context.CancelFunc // ends attemptCtx: running attempts are given up
	writeCtx       context.Context
	cancelWrites   context.CancelFunc // ends writeCtx, last of all: pending outcomes are dropped

	dispatcherWG sync.WaitGroup // dispatchers
	writeWG      sync.WaitGroup // outcomes
	polledAt     time.Time
	purgedAt     time.Time
	// onSettled, if set, is called with each outcome (for tests).
	onSettled func(hook db.ID, o *outcome, err error)

	mu             sync.Mutex
	dispatchers    map[db.ID]*dispatcher // leased by this node
	testsRunning   int                   // running tests
	testsByAccount map[db.ID]int         // running tests by account
	errorLoggedAt  time.Time
}

// New returns a Service. Until Run is called, deliveries wait.
func New(o Options) *Service {
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 400)
	o.MaxProbes = cmp.Or(o.MaxProbes, 100)
	o.MaxWebhooks = cmp.Or(o.MaxWebhooks, 2000)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	o.DrainTimeout = cmp.Or(o.DrainTimeout, 30*time.Second)
	h := &Service{
		o: o, slots: make(chan struct{}, o.MaxAttempts), probes: make(chan struct{}, o.MaxProbes),
		dispatchers: map[db.ID]*dispatcher{}, testsByAccount: map[db.ID]int{},
	}
	h.attemptCtx, h.cancelAttempts = context.WithCancel(context.Background())
	h.writeCtx, h.cancelWrites = context.WithCancel(context.Background())
	return h
}
