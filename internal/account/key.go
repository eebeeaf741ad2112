// SPDX-License-Identifier: Apache-2.0

package account

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// Key lets an application act for an account. The token itself is shown once and stored only as a
// hash.
type Key struct {
	ID         db.ID
	Account    db.ID
	Name       string
	Hint       string // beginning of the token
	Scopes     []string
	Domain     string         // the only domain that it may use; "" for all
	Networks   []netip.Prefix // networks it may be used from; none for all
	Limits     Rates          // in addition to those of the account
	ExpiresAt  time.Time      // zero for never
	LastUsedAt time.Time      // accurate to a minute; zero for never
	ExposedAt  time.Time      // when it was last sent without TLS, accurate to a day; zero for never
	CreatedAt  time.Time
}

// KeyParams are the parameters of a new key.
type KeyParams struct {
	Name      string
	Scopes    []string // none means all
	Domain    string
	Networks  []string // addresses or prefixes
	Limits    Rates
	ExpiresAt time.Time
}

const (
	// ScopeAll is the scope that allows everything that an account can do.
	ScopeAll = "*"
	// ScopeOperator is the scope of the people who run the service: it allows access to the queued
	// mail of every account, and nothing else. ScopeAll doesn't include it, and no key can delegate
	// it: only the command line creates keys with it, and they have no other scope.
	ScopeOperator = "operator"
)

// OperatorAccount is the account of the operators' keys. It belongs to no customer, nobody can sign
// up for it, and it is created with its first key; so no customer can list, delete or suspend these
// keys.
const OperatorAccount db.ID = 1

// scopeResources each have a scope NAME.read and NAME.write. mail is the mail in mailboxes,
// messages is sent mail.
var scopeResources = [...]string{"api_keys", "domains", "mailboxes", "mail", "messages", "events", "webhooks", "templates", "suppressions", "migrations", "sandbox"}

// Scopes lists every scope that an account can give to a key.
func Scopes() []string {
	all := []string{ScopeAll, "outbound.send", "stats.read", "limits.read", "activity.read"}
	for _, r := range scopeResources {
		all = append(all, r+".read", r+".write")
	}
	return all
}

// MaxKeys is the maximum number of API keys of an account.
const MaxKeys = 1_000

const (
	maxName     = 100
	maxNetworks = 100
)

func (n KeyParams) validate(account db.ID, now time.Time) (Key, error) {
	var bad fault.FieldErrors
	k := Key{Name: strings.TrimSpace(n.Name), ExpiresAt: n.ExpiresAt, Scopes: slices.Compact(slices.Sorted(slices.Values(n.Scopes)))}
	if k.Name == "" || len(k.Name) > maxName || strings.ContainsAny(k.Name, "\r\n\x00") {
		bad.Add("name", "invalid_name", "Give the key a name of 1 to %d bytes in one line.", maxName)
	}
	known, all := Scopes(), ScopeAll
	if account == OperatorAccount {
		known, all = []string{ScopeOperator}, ScopeOperator
	}
	for i, s := range n.Scopes {
		if !slices.Contains(known, s) {
			bad.Add(fmt.Sprintf("scopes[%d]", i), "unknown_scope", "The scopes are %s.", strings.Join(known, ", "))
		}
	}
	if len(k.Scopes) == 0 {
		k.Scopes = []string{all}
	}
	if n.Domain != "" {
		name, err := address.ParseDomain(n.Domain)
		if err != nil {
			bad.Add("domain", "invalid_domain", "This is not a domain name.")
		}
		k.Domain = name
		if account == OperatorAccount {
			bad.Add("domain", "not_for_operators", "An operator's key can't be restricted to one domain.")
		}
	}
	if len(n.Networks) > maxNetworks {
		bad.Add("allowed_ips", "too_many", "A key can have %d networks at most.", maxNetworks)
		n.Networks = nil
	}
	for i, s := range n.Networks {
		prefix, err := parsePrefix(s)
		if err != nil {
			bad.Add(fmt.Sprintf("allowed_ips[%d]", i), "invalid_network", "Give an IP address such as 192.0.2.1 or a network such as 192.0.2.0/24.")
		}
		k.Networks = append(k.Networks, prefix)
	}
	if !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) {
		bad.Add("expires_at", "in_the_past", "This time has passed already.")
	} else if k.ExpiresAt.UTC().Year() > 9999 { // JSON can't represent it
		bad.Add("expires_at", "invalid_time", "Give a time before the year 10000.")
	}
	k.Limits = n.Limits
	n.Limits.addFaults(&bad)
	return k, bad.Err()
}

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	return p.Masked(), err
}

// keyColumns are the columns that scanKey scans.
const keyColumns = `k.id, k.account, k.name, k.hint, k.scopes, k.domain, k.networks, k.expires_at, k.last_used_at, k.exposed_at, k.created_at,
	k.requests_per_second, k.burst, k.sends_per_hour, k.sends_per_day, k.recipients_per_day`

var (
	insertKeyQuery = db.SQL(`INSERT INTO api_key (id, account, name, hint, hash, scopes, domain, networks, expires_at, last_used_at, created_at,
			requests_per_second, burst, sends_per_hour, sends_per_day, recipients_per_day)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, $10, $11, $12, $13, $14, $15)`)
	countKeysQuery       = db.SQL(`SELECT COUNT(*) FROM api_key WHERE account = $1`)
	listKeysQuery        = db.PagedSQL(`SELECT ` + keyColumns + ` FROM api_key k WHERE {page account = $1}`)
	insertOperatorsQuery = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, 'operators', 'The operators of the service', 'active', $2)
		ON CONFLICT (id) DO NOTHING`)  // not a valid address, so that nobody can have it
	deleteKeyQuery = db.SQL(`DELETE FROM api_key WHERE id = $1 AND account = $2`)
)

// CreateKey creates a key and returns it with its token, which can't be retrieved later. It checks
// no permission. Keys of OperatorAccount, and only these, have the scope ScopeOperator. More than
// MaxKeys is a fault.Conflict.
func (a *Accounts) CreateKey(ctx context.Context, account db.ID, n KeyParams) (Key, string, error) {
	k, err := n.validate(account, a.now())
	if err != nil {
		return Key{}, "", err
	}
	token := secret.NewToken(secret.APIKeyPrefix, 32)
	k.ID, k.Account, k.CreatedAt = a.db.NewID(), account, a.now().UTC()
	k.Hint = token[:len(secret.APIKeyPrefix)+6]
	networks := make([]string, len(k.Networks))
	for i, p := range k.Networks {
		networks[i] = p.String()
	}
	err = a.db.Tx(ctx, func(tx *db.Tx) error {
		if account == OperatorAccount {
			if err := tx.Run(ctx, insertOperatorsQuery.With(OperatorAccount, db.Micros(k.CreatedAt))); err != nil {
				return err
			}
		}
		if err := a.Lock(ctx, tx, account); err != nil { // the lock keeps the count valid until the commit
			return err
		}
		var n int
		if err := tx.One(ctx, countKeysQuery.With(account), &n); err != nil {
			return err
		}
		if n >= MaxKeys {
			return fault.New(fault.Conflict, "too_many_api_keys", "An account can have %d API keys. Delete one first.", MaxKeys)
		}
		return tx.Run(ctx, insertKeyQuery.With(k.ID, k.Account, k.Name, k.Hint, secret.HashToken(token),
			strings.Join(k.Scopes, " "), k.Domain, strings.Join(networks, " "), db.Micros(k.ExpiresAt), db.Micros(k.CreatedAt),
			k.Limits.RequestsPerSecond, k.Limits.Burst, k.Limits.SendsPerHour, k.Limits.SendsPerDay, k.Limits.RecipientsPerDay))
	})
	return k, token, err
}

// DelegateKey creates a key on behalf of another one, which can't give permissions that it doesn't
// have.
func (a *Accounts) DelegateKey(ctx context.Context, p Principal, n KeyParams) (Key, string, error) {
	if len(n.Scopes) == 0 {
		n.Scopes = slices.Clone(p.Scopes)
	}
	for _, s := range n.Scopes {
		if s == ScopeOperator || slices.Contains(Scopes(), s) && !p.HasScope(s) {
			return Key{}, "", fault.New(fault.Denied, "scope_exceeded", "This API key can't give a scope that it lacks itself.")
		}
	}
	if p.Domain != "" && n.Domain == "" {
		n.Domain = p.Domain
	}
	if name, err := address.ParseDomain(n.Domain); p.Domain != "" && (err != nil || name != p.Domain) {
		return Key{}, "", fault.New(fault.Denied, "domain_exceeded", "This API key can make keys for its own domain only.")
	}
	var err error
	if n.Limits, err = n.Limits.restrictTo(p.Limits); err != nil {
		return Key{}, "", err
	}
	return a.CreateKey(ctx, p.Account, n)
}

// Keys lists an account's keys, newest first.
func (a *Accounts) Keys(ctx context.Context, account db.ID, page db.Page) ([]Key, bool, error) {
	return db.ReadPage(ctx, a.db, listKeysQuery, page, scanKey, account)
}

// DeleteKey deletes a key, with immediate effect on every node. A key of another account is
// fault.NotFound.
func (a *Accounts) DeleteKey(ctx context.Context, account, id db.ID) error {
	err := a.db.ExecOrFail(ctx, deleteKeyQuery.With(id, account), fault.New(fault.NotFound, "not_found", "There is no API key with this id."))
	if err == nil {
		a.invalidate(account)
		a.hub.Wake(notify.Key{Kind: notify.Account, ID: int64(account)})
	}
	return err
}

func scanKey(r db.Row) (Key, error) {
	var k Key
	var scopes, networks string
	if err := r.Scan(&k.ID, &k.Account, &k.Name, &k.Hint, &scopes, &k.Domain, &networks, db.TimeScanner(&k.ExpiresAt), db.TimeScanner(&k.LastUsedAt), db.TimeScanner(&k.ExposedAt), db.TimeScanner(&k.CreatedAt),
		&k.Limits.RequestsPerSecond, &k.Limits.Burst, &k.Limits.SendsPerHour, &k.Limits.SendsPerDay, &k.Limits.RecipientsPerDay); err != nil {
		return k, err
	}
	k.Scopes = strings.Fields(scopes)
	for _, s := range strings.Fields(networks) {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return k, fmt.Errorf("api key %s has a network that can't be read", k.ID)
		}
		k.Networks = append(k.Networks, p)
	}
	return k, nil
}
