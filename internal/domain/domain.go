// SPDX-License-Identifier: Apache-2.0

// Package domain manages the names that accounts send and receive under. It checks the DNS records
// that each domain must publish, and decides which account owns a name that several accounts claim.
package domain

import (
	"context"
	"crypto"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/audit"
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
	StatusDegraded  = "degraded"  // was verified, and its records have been wrong for a day
	StatusFailed    = "failed"    // another account took over the name
	StatusSuspended = "suspended" // by the operator
)

// Domain is a name that an account claims. It doesn't show whether others claim the name too,
// except in the text about the OWNERSHIP record.
type Domain struct {
	ID, Account     db.ID
	Name            string // A-labels, lower case
	DisplayName     string // the same in Unicode
	Status          string
	OwnershipStatus string // pending or verified
	// Receives reports whether mail to the domain is delivered here: it is owned, its MX record was
	// seen to be ours, and it is not suspended. Sends reports whether the account may send from it: it
	// is owned, a DKIM key of ours was seen, and it is not suspended. The reasons say what is missing.
	Receives, Sends               bool
	ReceiveBlockers, SendBlockers []Blocker
	Records                       []Record
	// RotationDays is the number of days after which DKIM keys are replaced; 0 for never.
	RotationDays int
	// DMARCEnforcement is the handling of incoming mail that fails its author's DMARC policy.
	DMARCEnforcement Enforcement
	// SpamFiltering is the handling of incoming mail that the spam filter objects to.
	SpamFiltering Enforcement
	// STS is the mode of the domain's MTA-STS policy.
	STS         STSMode
	CreatedAt   time.Time
	VerifiedAt  time.Time // when it last became verified; zero for never
	CheckedAt   time.Time // zero for never
	NextCheckAt time.Time
}

// Ports are the ports that SRV records announce to mail clients.
type Ports struct{ IMAPS, Submissions, Submission uint16 }

// Options are the dependencies and settings of Domains. All are required unless noted.
type Options struct {
	DB            *db.DB
	Events        *event.Log
	Audit         *audit.Log
	Hub           *notify.Hub
	Key           *secret.Key // seals DKIM keys
	Resolver      *dns.Resolver
	Host          string       // the service's own host name
	Addrs         []netip.Addr // its public addresses; may be empty outside the sandbox zone
	UsesSmartHost bool         // a smart host relays all mail
	Ports         Ports
	// ReservedNames are additional names that nobody may claim, including all subdomains, such as
	// the simulator's. The service's own names and public suffixes are always reserved.
	ReservedNames []string
	// FirstCheckDelay is the time until the first check of a domain after its creation, or after a
	// change of the records to publish; a minute if 0.
	FirstCheckDelay time.Duration
	// HasMailboxes reports whether a domain still has mailboxes, including deleted ones that can be
	// restored. The row of the domain is locked during the call. Nil: no domain has any.
	HasMailboxes func(ctx context.Context, tx *db.Tx, domain db.ID) (bool, error)
	// GenerateKey generates DKIM keys; mailauth.GenerateKey if nil.
	GenerateKey func(mailauth.Algorithm) (crypto.Signer, error)
	Now         func() time.Time
	Log         *slog.Logger
}

// Domains creates, checks and finds domains. Automatic checks happen only while Run is running.
type Domains struct {
	Options

	spareKeys     chan crypto.Signer // an RSA key generated in advance
	sendersByName lookupCache[senderCacheKey, cacheEntry[SendingDomain]]
	sendersByID   lookupCache[db.ID, cacheEntry[SendingDomain]]
	hostedByName  lookupCache[string, cacheEntry[HostedDomain]]
	enforcements  lookupCache[db.ID, cacheEntry[enforcementSettings]]
	signers       lookupCache[db.ID, cachedSigner]
	after         func(time.Duration) <-chan time.Time

	hostSigner atomic.Pointer[mailauth.Signer] // cached after the first use: its key never changes
	hostCheck  chan *HostCheck                 // the last result; the goroutine that receives it may run a new check
}

// New returns the domains of a database.
func New(o Options) *Domains {
	if o.FirstCheckDelay == 0 {
		o.FirstCheckDelay = time.Minute
	}
	if o.HasMailboxes == nil {
		o.HasMailboxes = func(context.Context, *db.Tx, db.ID) (bool, error) { return false, nil }
	}
	if o.GenerateKey == nil {
		o.GenerateKey = mailauth.GenerateKey
	}
	return &Domains{
		Options:   o,
		spareKeys: make(chan crypto.Signer),
		after:     time.After,
		hostCheck: newHostCheckSlot(),
	}
}

// toDomain returns the account's view of a claim.
func (d *Domains) toDomain(c *claim, keys []key) Domain {
	ownership, status := StatusPending, c.status
	if c.suspended() {
		status = StatusSuspended
	}
	if c.owned {
		ownership = StatusVerified
	}
	view := Domain{
		ID: c.id, Account: c.account, Name: c.name, DisplayName: address.DisplayDomain(c.name),
		Status: status, OwnershipStatus: ownership,
		ReceiveBlockers: c.blockers(c.receives, BlockedByMX), SendBlockers: c.blockers(c.sends, BlockedByDKIM),
		Records: d.withObservations(d.expectedRecords(c, keys), c.observations), RotationDays: int(c.rotationDays), DMARCEnforcement: c.dmarcEnforcement, SpamFiltering: c.spamFiltering, STS: c.sts,
		CreatedAt: c.createdAt, VerifiedAt: c.verifiedAt, CheckedAt: c.checkedAt, NextCheckAt: c.nextCheckAt,
	}
	view.Receives, view.Sends = len(view.ReceiveBlockers) == 0, len(view.SendBlockers) == 0
	return view
}

// Blocker is a reason why a domain can't send or receive.
type Blocker string

// The reasons of Domain. senderByNameQuery and hostedByNameQuery decide by the same facts.
const (
	BlockedByOwnership  Blocker = "ownership_not_verified"
	BlockedByDKIM       Blocker = "dkim_not_verified"
	BlockedByMX         Blocker = "mx_not_verified"
	BlockedBySuspension Blocker = "suspended"
)

// blockers lists what keeps the domain from sending or receiving. record reports whether the record
// for it was seen, and missing is the reason if it was not.
func (c *claim) blockers(record bool, missing Blocker) (all []Blocker) {
	if !c.owned {
		all = append(all, BlockedByOwnership)
	}
	if !record {
		all = append(all, missing)
	}
	if c.suspended() {
		all = append(all, BlockedBySuspension)
	}
	return all
}
