// SPDX-License-Identifier: Apache-2.0

// Package mailbox keeps who has an address and a password here: creating,
// changing and deleting mailboxes, signing in, finding the mailbox that an
// address means, and how much room it has.
package mailbox

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/credential"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// States of a mailbox. A suspended one neither signs in nor receives.
const (
	StatusActive    = "active"
	StatusSuspended = "suspended"
)

// Mailbox is an address with a password.
type Mailbox struct {
	ID          db.ID
	Account     db.ID
	Domain      db.ID
	Address     string // the local part as it was given, the domain as A-labels
	DisplayName string
	Status      string // Active or StatusSuspended
	SpamFilter  SpamFilter
	Quota       int64 // bytes
	Used        int64 // bytes
	Messages    int64
	CreatedAt   time.Time
	DeletedAt   time.Time // zero while it lives
	KeepCopy    bool      // what is forwarded is filed here too

	foldedAddress   string // address.Key of Address
	forward         string // ForwardTo, one address to a line
	generation      int64
	appPassword     db.ID // the app password that it was signed in to with; 0 for none
	appPasswordName string
}

// Options are what mailboxes work with.
type Options struct {
	DB       *db.DB
	Hub      *notify.Hub
	Events   *event.Log
	Accounts *account.Accounts
	Hasher   *credential.Hasher
	SCRAM    *credential.SCRAM // nil: no verifier is kept, and those that are there are deleted
	Logins   *ratelimit.LoginLimiter
	Node     *db.Node // whose sessions are listed; nil: none are
	Now      func() time.Time

	// MaxQuotaMB is the operator's limit of a mailbox's quota; 0 is 1 TiB.
	MaxQuotaMB int
	// StorageLimit is what the quotas of an account's mailboxes may be together, in
	// bytes; 0 is no limit. Nil: there is none.
	StorageLimit func(ctx context.Context, account db.ID) (int64, error)
	// Host is the service's own name. Its role addresses are the operator's.
	Host string
	// Postmaster is the operator's address, of a mailbox or alias here or
	// elsewhere. It gets the mail to the role addresses of the host, and only that.
	Postmaster string
	// OwnerAddresses returns the addresses of the people who own an account. They get the
	// mail to the role addresses of its domains while it has no mailbox. Nil: none.
	OwnerAddresses func(ctx context.Context, account db.ID) ([]address.Address, error)

	// VerifiedName names a domain of the account whose ownership is proven;
	// fault.NotFound if it is not the account's, fault.Denied if not proven.
	VerifiedName func(ctx context.Context, account, domain db.ID) (name string, err error)
	// FindHosted finds who holds the domain of a name here. Nil: no domain is suspended.
	FindHosted func(ctx context.Context, name string) (domain.HostedDomain, bool, error)
	// OnRevoked, if set, is told that log-ins of a mailbox may have ended, of all
	// when it is 0: sessions that stand on one ask Current.
	OnRevoked func(mailbox db.ID)
	// CreateFolders makes a new mailbox's folders in the transaction of its birth.
	CreateFolders func(ctx context.Context, tx *db.Tx, mailbox db.ID) error
	// DeleteMail deletes all mail and folders of a mailbox; it may be called again
	// after it failed.
	DeleteMail func(ctx context.Context, mailbox db.ID) error
	// RemainingMessages returns how many messages may still arrive in a mailbox before a folder
	// that they go to is full. Nil: there is no limit.
	RemainingMessages func(ctx context.Context, mailbox db.ID) (int64, error)
}

// Mailboxes creates, finds and authenticates. The server may set Owned, Hosted,
// Provision, Empty and Left after Open and before the first use.
type Mailboxes struct {
	Options
	db  *db.DB
	now func() time.Time

	mu          sync.Mutex
	changeCount int64 // of any mailbox, so that what was read before one is not kept
	routeCache  map[string]cachedRoute
	ampleUntil  map[db.ID]time.Time // who has ample room until when

	signInLog signInLog
	sessions  openSessions
	usedSums  usedSumCache
}

// Open returns the mailboxes of a database.
func Open(o Options) *Mailboxes {
	if o.MaxQuotaMB == 0 {
		o.MaxQuotaMB = 1 << 20
	}
	return &Mailboxes{Options: o, db: o.DB, now: o.Now, routeCache: map[string]cachedRoute{}, ampleUntil: map[db.ID]time.Time{},
		signInLog: signInLog{rows: map[signInKey]*signInRow{}, usedAppPasswords: map[db.ID]time.Time{}},
		sessions:  openSessions{byID: map[db.ID]*openSession{}, dirty: map[db.ID]bool{}},
		usedSums:  usedSumCache{byAccount: map[db.ID]cachedSum{}}}
}

// ForwardTo are the addresses that its mail goes to as well.
func (b Mailbox) ForwardTo() []string {
	if b.forward == "" {
		return nil
	}
	return strings.Split(b.forward, "\n")
}

// Generation changes whenever the log-ins of a mailbox end: with its password,
// and when it is suspended, deleted or restored.
func (b Mailbox) Generation() int64 { return b.generation }

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such mailbox.") }

var mailboxByIDQuery = db.SQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE id = $1 AND deleted_at = 0`)

func scanMailbox(r db.Row) (Mailbox, error) {
	var m Mailbox
	var local string
	var created, deleted int64
	err := r.Scan(&m.ID, &m.Account, &m.Domain, &local, &m.foldedAddress, &m.DisplayName, &m.Status, &m.Quota, &m.Used, &m.Messages, &created, &deleted,
		&m.forward, &m.KeepCopy, &m.SpamFilter, &m.generation)
	m.Address = displayAddress(local, m.foldedAddress)
	m.CreatedAt, m.DeletedAt = db.Time(created), db.Time(deleted)
	return m, err
}

// displayAddress is the address of a row: the local part as it was given, and the
// domain that the folded address ends in.
func displayAddress(local, key string) string { return local + key[strings.LastIndexByte(key, '@'):] }

// ByID returns a mailbox that is not deleted, whosever it is: for doors that
// authenticated its user.
func (m *Mailboxes) ByID(ctx context.Context, id db.ID) (Mailbox, error) {
	found, err := db.All(ctx, m.db, mailboxByIDQuery.With(id), scanMailbox)
	if err != nil {
		return Mailbox{}, err
	}
	if len(found) == 0 {
		return Mailbox{}, notFound()
	}
	return found[0], nil
}

// Get returns a mailbox of an account that is not deleted, or fault.NotFound.
func (m *Mailboxes) Get(ctx context.Context, account, id db.ID) (Mailbox, error) {
	found, err := m.ByID(ctx, id)
	if err == nil && found.Account != account {
		return Mailbox{}, notFound()
	}
	return found, err
}

// CheckLogin returns fault.Unauthenticated when the log-in that gave box no longer counts:
// since then the password was changed, the app password revoked, or the mailbox,
// its domain or its account suspended, or the mailbox deleted. A server asks when
// notify.Credential of the mailbox was woken, and when something was suspended.
func (m *Mailboxes) CheckLogin(ctx context.Context, box Mailbox) error {
	now, err := m.ByID(ctx, box.ID)
	if fault.Is(err, fault.NotFound) || err == nil && (now.generation != box.generation || now.Status != StatusActive) {
		return loginRevokedError()
	}
	if err == nil {
		open, failed := m.exists(ctx, ActiveCheck(box.ID))
		if failed != nil || !open {
			return cmp.Or(failed, loginRevokedError())
		}
	}
	if err == nil && box.appPassword != 0 {
		there, err := m.exists(ctx, appPasswordExistsQuery.With(box.appPassword))
		if err == nil && !there {
			return loginRevokedError()
		}
		return err
	}
	return err
}

// CheckActive returns fault.Unauthenticated while the account or the domain of a signed-in
// mailbox is suspended. It may be some seconds behind, and costs next to nothing, so
// a server asks before each command.
func (m *Mailboxes) CheckActive(ctx context.Context, box Mailbox) error {
	active, err := m.Accounts.IsActive(ctx, box.Account)
	if err == nil && active {
		var closed bool
		closed, err = m.isDomainSuspended(ctx, box)
		active = !closed
	}
	if err == nil && !active {
		err = loginRevokedError()
	}
	return err
}

// isDomainSuspended reports whether the domain of a mailbox is suspended.
func (m *Mailboxes) isDomainSuspended(ctx context.Context, box Mailbox) (bool, error) {
	if m.FindHosted == nil {
		return false, nil
	}
	h, _, err := m.FindHosted(ctx, box.Address[strings.LastIndexByte(box.Address, '@')+1:])
	return h.Suspended && h.Domain == box.Domain, err
}

var activeQuery = db.SQL(`SELECT m.id FROM mailbox m JOIN account a ON a.id = m.account JOIN domain d ON d.id = m.domain
	WHERE m.id = $1 AND m.deleted_at = 0 AND m.status = 'active' AND a.status = 'active' AND d.suspended_at = 0`)

// ActiveCheck returns a row while a mailbox takes mail and is signed in to: neither it, nor
// its domain, nor its account is suspended, and it is not deleted.
func ActiveCheck(box db.ID) db.Statement { return activeQuery.With(box) }

var notSuspendedQuery = db.SQL(`SELECT m.id FROM mailbox m JOIN account a ON a.id = m.account JOIN domain d ON d.id = m.domain
	WHERE m.id = $1 AND m.status = 'active' AND a.status = 'active' AND d.suspended_at = 0`)

// NotSuspendedCheck returns a row unless a mailbox, its domain or its account is
// suspended. A deleted mailbox takes what was accepted before.
func NotSuspendedCheck(box db.ID) db.Statement { return notSuspendedQuery.With(box) }

var domainActiveQuery = db.SQL(`SELECT m.id FROM mailbox m JOIN domain d ON d.id = m.domain WHERE m.id = $1 AND d.suspended_at = 0`)

// DomainActiveCheck returns a row unless the domain of a mailbox is suspended.
func DomainActiveCheck(box db.ID) db.Statement { return domainActiveQuery.With(box) }

func loginRevokedError() error {
	return fault.New(fault.Unauthenticated, "login_revoked", "Sign in again.")
}

// notifyChanged drops what is remembered of mailboxes and tells those who wait, here
// and on other nodes.
func (m *Mailboxes) notifyChanged(id db.ID) {
	m.clearRouteCache()
	m.Hub.Wake(notify.Key{Kind: notify.Mailbox, ID: int64(id)})
}

// revokeLogins is changed, and cached log-ins are dropped too.
func (m *Mailboxes) revokeLogins(id db.ID) {
	m.Hasher.Forget(int64(id))
	m.Hub.Wake(notify.Key{Kind: notify.Credential, ID: int64(id)})
	m.notifyChanged(id)
	m.notifyRevoked(id)
}

func (m *Mailboxes) notifyRevoked(id db.ID) {
	if m.OnRevoked != nil {
		m.OnRevoked(id)
	}
}

// Invalidate drops what is remembered of a mailbox; the server calls it when
// another node woke notify.Mailbox or notify.Credential.
func (m *Mailboxes) Invalidate(id db.ID) {
	m.Hasher.Forget(int64(id))
	m.clearRouteCache()
	m.notifyRevoked(id)
}

// InvalidateAll drops everything that is remembered: when signals of other nodes
// may have been lost.
func (m *Mailboxes) InvalidateAll() {
	m.Hasher.ForgetAll()
	m.clearRouteCache()
	m.notifyRevoked(0)
}

var anyMailboxQuery = db.SQL(`SELECT id FROM mailbox WHERE domain = $1 LIMIT 1`)

// HasAddresses reports whether a domain has aliases or mailboxes, also deleted ones that
// are not purged yet.
func (m *Mailboxes) HasAddresses(ctx context.Context, tx *db.Tx, domain db.ID) (bool, error) {
	for _, any := range []db.Statement{anyMailboxQuery.With(domain), anyAliasQuery.With(domain)} {
		if err := tx.One(ctx, any, new(db.ID)); !errors.Is(err, db.ErrNoRow) {
			return err == nil, err
		}
	}
	return false, nil
}
