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
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// The states of a domain.
const (
	StatusPending   = "pending"   // some required record was never seen
	StatusVerified  = "verified"  // all required records were seen
	StatusDegraded  = "degraded"  // it was verified, and has been wrong for a day
	StatusFailed    = "failed"    // another account took the name over
	StatusSuspended = "suspended" // by the operator
)

// Domain is a name that an account claims. Whether anyone else claims it too
// never shows, but in the words of the OWNERSHIP record.
type Domain struct {
	ID, Account     db.ID
	Name            string // A-labels, lower case
	DisplayName     string // the same in Unicode
	Status          string
	OwnershipStatus string // pending or verified
	Receives        bool   // it is held, its KindMX was seen to be ours, and it is not suspended
	Sends           bool   // it is held, a KindDKIM key of ours was seen, and it is not suspended
	Records         []Record
	// DKIMRotationDays is after how many days KindDKIM keys are replaced; 0 for never.
	RotationDays int
	// DMARCEnforcement is what is done with mail to it that fails its author's KindDMARC
	// policy.
	DMARCEnforcement Enforcement
	// SpamFiltering is what is done with mail to it that a spam filter objects to.
	SpamFiltering Enforcement
	// STS is the mode of the MTA-STS policy that is published for it.
	STS         STSMode
	CreatedAt   time.Time
	VerifiedAt  time.Time // the last entry into verified; zero for never
	CheckedAt   time.Time // zero for never
	NextCheckAt time.Time
}

// Ports are those that mail clients shall find by KindSRV records.
type Ports struct{ IMAPS, Submissions, Submission uint16 }

// Options are what Domains works with; all are needed unless said otherwise.
type Options struct {
	DB            *db.DB
	Events        *event.Log
	Hub           *notify.Hub
	Key           *secret.Key // seals KindDKIM keys
	Resolver      *dns.Resolver
	Host          string       // the service's own host name
	Addrs         []netip.Addr // its public addresses; may be empty outside of the sandbox zone
	UsesSmartHost bool         // a smart host sends all mail
	Ports         Ports
	// ReservedNames are more names that nobody may claim, nor any below them, such
	// as the simulator's; the service's own and public suffixes always are.
	ReservedNames []string
	// FirstCheckDelay is how long after its creation a domain is first looked for, and
	// after a change of what it has to publish; a minute if 0.
	FirstCheckDelay time.Duration
	Now             func() time.Time
	Log             *slog.Logger
}

// Domains creates, checks and finds domains. Run must be running for checks
// to happen by themselves.
type Domains struct {
	Options

	// HasMailboxes tells whether a domain still has mailboxes, also deleted
	// ones that can be restored. The server sets it; the row of the domain is
	// locked meanwhile.
	HasMailboxes func(ctx context.Context, tx *db.Tx, domain db.ID) (bool, error)

	spareKeys     chan crypto.Signer // an RSA key made in advance
	sendersByName lookupCache[senderKey, cacheEntry[SendingDomain]]
	sendersByID   lookupCache[db.ID, cacheEntry[SendingDomain]]
	hostedByName  lookupCache[string, cacheEntry[HostedDomain]]
	enforcements  lookupCache[db.ID, cacheEntry[enforcementSettings]]
	signers       lookupCache[db.ID, cachedSigner]
	after         func(time.Duration) <-chan time.Time

	hostSigner atomic.Pointer[mailauth.Signer] // once it is known: its key never changes
	hostCheck  chan *HostCheck                 // the last one; whoever takes it out may check anew
}

// New returns the domains of a database.
func New(o Options) *Domains {
	if o.FirstCheckDelay == 0 {
		o.FirstCheckDelay = time.Minute
	}
	return &Domains{
		Options: o,
		HasMailboxes: func(context.Context, *db.Tx, db.ID) (bool, error) {
			return false, nil
		},
		spareKeys: make(chan crypto.Signer),
		after:     time.After,
		hostCheck: newHostCheckSlot(),
	}
}

// toDomain makes what the account sees of a claim.
func (d *Domains) toDomain(c *claim, keys []key) Domain {
	ownership, status := StatusPending, c.status
	if c.suspended() {
		status = StatusSuspended
	}
	if c.owned {
		ownership = StatusVerified
	}
	return Domain{
		ID: c.id, Account: c.account, Name: c.name, DisplayName: address.DisplayDomain(c.name),
		Status: status, OwnershipStatus: ownership,
		Receives: c.owned && c.receives && !c.suspended(), Sends: c.owned && c.sends && !c.suspended(),
		Records: d.withObservations(d.expectedRecords(c, keys), c.observations), RotationDays: int(c.rotationDays), DMARCEnforcement: c.dmarcEnforcement, SpamFiltering: c.spamFiltering, STS: c.sts,
		CreatedAt: c.createdAt, VerifiedAt: c.verifiedAt, CheckedAt: c.checkedAt, NextCheckAt: c.nextCheckAt,
	}
}
