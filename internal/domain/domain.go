// SPDX-License-Identifier: Apache-2.0

// Package domain keeps the names that accounts send and receive under: which
// DNS records each is asked for, what was seen of them, and who holds a name
// that several accounts claim.
package domain

import (
	"context"
	"crypto"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/signal"
)

// The states of a domain.
const (
	Pending   = "pending"   // some required record was never seen
	Verified  = "verified"  // all required records were seen
	Degraded  = "degraded"  // it was verified, and has been wrong for a day
	Failed    = "failed"    // another account took the name over
	Suspended = "suspended" // by the operator
)

// Domain is a name that an account claims. Whether anyone else claims it too
// never shows, but in the words of the OWNERSHIP record.
type Domain struct {
	ID, Account     db.ID
	Name            string // A-labels, lower case
	DisplayName     string // the same in Unicode
	Status          string
	OwnershipStatus string // pending or verified
	Receives        bool   // it is held, its MX was seen to be ours, and it is not suspended
	Sends           bool   // it is held, a DKIM key of ours was seen, and it is not suspended
	Records         []Record
	// RotationDays is after how many days DKIM keys are replaced; 0 for never.
	RotationDays int
	// Enforcement is what is done with mail to it that fails its author's DMARC
	// policy.
	Enforcement Enforcement
	// Filtering is what is done with mail to it that a spam filter objects to.
	Filtering Enforcement
	// STS is the mode of the MTA-STS policy that is published for it.
	STS         STSMode
	CreatedAt   time.Time
	VerifiedAt  time.Time // the last entry into verified; zero for never
	CheckedAt   time.Time // zero for never
	NextCheckAt time.Time
}

// Ports are those that mail clients shall find by SRV records.
type Ports struct{ IMAPS, Submissions, Submission uint16 }

// Options are what Domains works with; all are needed unless said otherwise.
type Options struct {
	DB       *db.DB
	Events   *event.Log
	Hub      *signal.Hub
	Key      *secret.Key // seals DKIM keys
	Resolver *dns.Resolver
	Host     string       // the service's own host name
	Addrs    []netip.Addr // its public addresses; may be empty outside of the sandbox zone
	Relayed  bool         // a smart host sends all mail
	Ports    Ports
	// Refused are more names that nobody may claim, nor any below them, such
	// as the simulator's; the service's own and public suffixes always are.
	Refused []string
	// FirstCheck is how long after its creation a domain is first looked for, and
	// after a change of what it has to publish; a minute if 0.
	FirstCheck time.Duration
	Now        func() time.Time
	Log        *slog.Logger
}

// Domains creates, checks and finds domains. Run must be running for checks
// to happen by themselves.
type Domains struct {
	Options

	// HasMailboxes tells whether a domain still has mailboxes, also deleted
	// ones that can be restored. The server sets it; the row of the domain is
	// locked meanwhile.
	HasMailboxes func(ctx context.Context, tx *db.Tx, domain db.ID) (bool, error)

	ready   chan crypto.Signer // an RSA key made in advance
	senders memo[senderKey, known[Sender]]
	byID    memo[db.ID, known[Sender]]
	hosted  memo[string, known[Hosted]]
	choices memo[db.ID, known[choice]]
	signers memo[db.ID, signerOf]
	after   func(time.Duration) <-chan time.Time

	hostSigner atomic.Pointer[mailauth.Signer] // once it is known: its key never changes
	hostCheck  chan *HostCheck                 // the last one; whoever takes it out may check anew
}

// New returns the domains of a database.
func New(o Options) *Domains {
	if o.FirstCheck == 0 {
		o.FirstCheck = time.Minute
	}
	return &Domains{
		Options: o,
		HasMailboxes: func(context.Context, *db.Tx, db.ID) (bool, error) {
			return false, nil
		},
		ready:     make(chan crypto.Signer),
		after:     time.After,
		hostCheck: noHostCheck(),
	}
}

// shown makes what the account sees of a claim.
func (d *Domains) shown(c *claim, keys []key) Domain {
	ownership, status := Pending, c.status
	if c.suspended() {
		status = Suspended
	}
	if c.held {
		ownership = Verified
	}
	return Domain{
		ID: c.id, Account: c.account, Name: c.name, DisplayName: address.DisplayDomain(c.name),
		Status: status, OwnershipStatus: ownership,
		Receives: c.held && c.receives && !c.suspended(), Sends: c.held && c.sends && !c.suspended(),
		Records: d.withSeen(d.asked(c, keys), c.seen), RotationDays: int(c.rotation), Enforcement: c.enforcement, Filtering: c.filtering, STS: c.sts,
		CreatedAt: c.createdAt, VerifiedAt: c.verifiedAt, CheckedAt: c.checkedAt, NextCheckAt: c.nextCheckAt,
	}
}
