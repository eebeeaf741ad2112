// SPDX-License-Identifier: Apache-2.0

// Package mailbox manages mailboxes, the addresses with a password: it creates, changes and deletes
// them, authenticates users, resolves addresses, and tracks quota and usage.
package mailbox

import (
	"cmp"
	"context"
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
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/ratelimit"
)

// States of a mailbox. A suspended one can neither sign in nor receive mail.
const (
	StatusActive    = "active"
	StatusSuspended = "suspended"
)

// Mailbox is an address with a password.
type Mailbox struct {
	ID          db.ID
	Account     db.ID
	Domain      db.ID
	Address     string // local part as given, domain as A-labels
	DisplayName string
	Status      string // StatusActive or StatusSuspended
	SpamFilter  SpamFilter
	Quota       int64 // bytes
	Used        int64 // bytes
	Messages    int64
	CreatedAt   time.Time
	DeletedAt   time.Time // zero unless deleted
	KeepCopy    bool      // forwarded mail is also stored here

	foldedAddress   string // address.Key of Address
	forward         string // ForwardTo, one address per line
	generation      int64
	appPassword     db.ID // the app password used to sign in; 0 for none
	appPasswordName string
}

// Options are the dependencies and settings of Mailboxes.
type Options struct {
	DB       *db.DB
	Hub      *notify.Hub
	Events   *event.Log
	Accounts *account.Accounts
	Hasher   *credential.Hasher
	SCRAM    *credential.SCRAM // nil: no verifiers are stored, and existing ones are deleted
	Logins   *ratelimit.LoginLimiter
	Node     *lease.Node // whose sessions are listed; nil: none
	Now      func() time.Time

	// MaxQuotaMB is the operator's maximum for a mailbox's quota; 0 means 1 TiB.
	MaxQuotaMB int
	// StorageLimit returns the limit for the sum of the quotas of an account's mailboxes, in bytes;
	// 0 means no limit. Nil: no limit.
	StorageLimit func(ctx context.Context, account db.ID) (int64, error)
	// Host is the service's own name. Mail to its role addresses goes to the operator.
	Host string
	// Postmaster is the operator's address: of a mailbox or alias here, or an external one. It
	// receives only mail to the host's role addresses.
	Postmaster string
	// OwnerAddresses returns the addresses of the people who own an account. They receive mail to
	// the role addresses of its domains while the account has no mailbox. Nil: none.
	OwnerAddresses func(ctx context.Context, account db.ID) ([]address.Address, error)

	// VerifiedName returns the name of a domain of the account whose ownership is verified. It
	// returns fault.NotFound if it isn't the account's, and fault.Denied if it isn't verified.
	VerifiedName func(ctx context.Context, account, domain db.ID) (name string, err error)
	// FindHosted finds the hosted domain of a name. Nil: no domain is suspended.
	FindHosted func(ctx context.Context, name string) (domain.HostedDomain, bool, error)
	// OnRevoked, if set, is called when logins of a mailbox may have ended, or of all if the
	// mailbox is 0. Sessions then call CheckLogin.
	OnRevoked func(mailbox db.ID)
	// CreateFolders creates a new mailbox's folders in the transaction that creates the mailbox.
	CreateFolders func(ctx context.Context, tx *db.Tx, mailbox db.ID) error
	// DeleteMail deletes all mail and folders of a mailbox. It may be called again after it failed.
	DeleteMail func(ctx context.Context, mailbox db.ID) error
	// RemainingMessages returns how many messages a mailbox can still receive before a folder that
	// receives mail is full. Nil: no limit.
	RemainingMessages func(ctx context.Context, mailbox db.ID) (int64, error)
}

// Mailboxes creates, finds and authenticates mailboxes.
type Mailboxes struct {
	Options
	db  *db.DB
	now func() time.Time

	mu          sync.Mutex
	changeCount int64 // changes of any mailbox; detects that data read before a change must not be cached
	routeCache  map[string]cachedRoute
	ampleUntil  map[db.ID]time.Time // mailboxes with ample free quota, and until when that is assumed

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

// ForwardTo returns the additional addresses that receive its mail.
func (b Mailbox) ForwardTo() []string {
	if b.forward == "" {
		return nil
	}
	return strings.Split(b.forward, "\n")
}

// Generation changes whenever the logins of a mailbox end: with its password, and when it is
// suspended, deleted or restored.
func (b Mailbox) Generation() int64 { return b.generation }

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such mailbox.") }

var mailboxByIDQuery = db.SQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE id = $1 AND deleted_at = 0`)

func scanMailbox(r db.Row) (Mailbox, error) {
	var m Mailbox
	var local string
	err := r.Scan(&m.ID, &m.Account, &m.Domain, &local, &m.foldedAddress, &m.DisplayName, &m.Status, &m.Quota, &m.Used, &m.Messages, db.TimeScanner(&m.CreatedAt), db.TimeScanner(&m.DeletedAt),
		&m.forward, &m.KeepCopy, &m.SpamFilter, &m.generation)
	m.Address = displayAddress(local, m.foldedAddress)
	return m, err
}

// displayAddress returns the address of a row: the local part as given, with the domain of the
// folded address.
func displayAddress(local, key string) string { return local + key[strings.LastIndexByte(key, '@'):] }

// ByID returns a mailbox of any account that is not deleted. It is for servers that have
// authenticated its user.
func (m *Mailboxes) ByID(ctx context.Context, id db.ID) (Mailbox, error) {
	return db.Find(ctx, m.db, mailboxByIDQuery.With(id), notFound(), scanMailbox)
}

// Get returns a mailbox of an account that is not deleted, or fault.NotFound.
func (m *Mailboxes) Get(ctx context.Context, account, id db.ID) (Mailbox, error) {
	found, err := m.ByID(ctx, id)
	if err == nil && found.Account != account {
		return Mailbox{}, notFound()
	}
	return found, err
}

// CheckLogin returns fault.Unauthenticated if the login that returned box is no longer valid. This
// is so if the password was changed, the app password revoked, or the mailbox deleted, and if the
// mailbox, its domain or its account was suspended. A server calls it when notify.Credential of the
// mailbox wakes, and when something was suspended.
func (m *Mailboxes) CheckLogin(ctx context.Context, box Mailbox) error {
	now, err := m.ByID(ctx, box.ID)
	if fault.Is(err, fault.NotFound) || err == nil && (now.generation != box.generation || now.Status != StatusActive) {
		return loginRevokedError()
	}
	if err == nil {
		open, failed := db.Exists(ctx, m.db, ActiveCheck(box.ID))
		if failed != nil || !open {
			return cmp.Or(failed, loginRevokedError())
		}
	}
	if err == nil && box.appPassword != 0 {
		there, err := db.Exists(ctx, m.db, appPasswordExistsQuery.With(box.appPassword))
		if err == nil && !there {
			return loginRevokedError()
		}
		return err
	}
	return err
}

// CheckActive returns fault.Unauthenticated while the account or the domain of a signed-in mailbox
// is suspended. The result may be some seconds old and costs almost nothing, so a server calls it
// before each command.
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

// ActiveCheck returns a row while a mailbox can receive mail and sign in: it isn't deleted, and
// neither it, its domain, nor its account is suspended.
func ActiveCheck(box db.ID) db.Statement { return activeQuery.With(box) }

var notSuspendedQuery = db.SQL(`SELECT m.id FROM mailbox m JOIN account a ON a.id = m.account JOIN domain d ON d.id = m.domain
	WHERE m.id = $1 AND m.status = 'active' AND a.status = 'active' AND d.suspended_at = 0`)

// NotSuspendedCheck returns a row unless a mailbox, its domain or its account is suspended. A
// deleted mailbox still receives mail that was accepted before.
func NotSuspendedCheck(box db.ID) db.Statement { return notSuspendedQuery.With(box) }

var domainActiveQuery = db.SQL(`SELECT m.id FROM mailbox m JOIN domain d ON d.id = m.domain WHERE m.id = $1 AND d.suspended_at = 0`)

// DomainActiveCheck returns a row unless the domain of a mailbox is suspended.
func DomainActiveCheck(box db.ID) db.Statement { return domainActiveQuery.With(box) }

func loginRevokedError() error {
	return fault.New(fault.Unauthenticated, "login_revoked", "Sign in again.")
}

// notifyChanged drops cached data of a mailbox and wakes waiters, here and on other nodes.
func (m *Mailboxes) notifyChanged(id db.ID) {
	m.clearRouteCache()
	m.Hub.Wake(notify.Key{Kind: notify.MailboxSettings, ID: int64(id)})
}

// revokeLogins is notifyChanged and also drops cached logins.
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

// Invalidate drops the cached data of a mailbox. The server calls it when another node woke
// notify.MailboxSettings or notify.Credential.
func (m *Mailboxes) Invalidate(id db.ID) {
	m.Hasher.Forget(int64(id))
	m.clearRouteCache()
	m.notifyRevoked(id)
}

// InvalidateAll drops all cached data. It is called when notifications of other nodes may have been
// lost.
func (m *Mailboxes) InvalidateAll() {
	m.Hasher.ForgetAll()
	m.clearRouteCache()
	m.notifyRevoked(0)
}

var anyMailboxQuery = db.SQL(`SELECT id FROM mailbox WHERE domain = $1 LIMIT 1`)

// HasAddresses reports whether a domain has aliases or mailboxes, including deleted mailboxes that
// are not purged yet.
func HasAddresses(ctx context.Context, tx *db.Tx, domain db.ID) (bool, error) {
	has, err := db.Exists(ctx, tx, anyMailboxQuery.With(domain))
	if has || err != nil {
		return has, err
	}
	return db.Exists(ctx, tx, anyAliasQuery.With(domain))
}
