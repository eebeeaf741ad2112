// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Alias is an address without a password, whose mail goes to its targets.
type Alias struct {
	ID        db.ID
	Account   db.ID
	Domain    db.ID
	Address   string   // local part as given, "*" for a catch-all
	Targets   []Target // in the given order, without deleted mailboxes
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Target is a destination of an alias: a mailbox of its account, or an external address.
type Target struct {
	Mailbox db.ID  // 0: an external address
	Address string // also set for a mailbox
}

// String returns the target's address.
func (t Target) String() string { return t.Address }

const (
	// MaxTargets is the maximum number of targets of an alias.
	MaxTargets = 100
	// MaxAliases is the maximum number of aliases of an account.
	MaxAliases = 10_000
	// CatchAll is the local part of the alias that receives mail to all other addresses of its
	// domain.
	CatchAll = "*"
)

// aliasColumns are the columns that an alias is scanned from.
const aliasColumns = `id, account, domain, local_part, address, created_at, updated_at`

var (
	insertAliasQuery = db.SQL(`INSERT INTO alias (id, account, domain, local_part, address, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6)`)
	countAliasesQuery  = db.SQL(`SELECT COUNT(*) FROM alias WHERE account = $1`)
	insertTargetQuery  = db.SQL(`INSERT INTO alias_target (alias, n, mailbox, address) VALUES ($1, $2, $3, $4)`)
	deleteTargetsQuery = db.SQL(`DELETE FROM alias_target WHERE alias = $1`)
	touchAliasQuery    = db.SQL(`UPDATE alias SET updated_at = $3 WHERE id = $1 AND account = $2`)
	deleteAliasQuery   = db.SQL(`DELETE FROM alias WHERE id = $1 AND account = $2`)
	removeTargetQuery  = db.SQL(`DELETE FROM alias_target WHERE mailbox = $1 AND mailbox > 0`)

	aliasByIDQuery         = db.SQL(`SELECT ` + aliasColumns + ` FROM alias WHERE id = $1 AND account = $2`)
	listAliasesQuery       = db.PagedSQL(`SELECT ` + aliasColumns + ` FROM alias WHERE {page account = $1}`)
	listDomainAliasesQuery = db.PagedSQL(`SELECT ` + aliasColumns + ` FROM alias
		WHERE (SELECT d.account FROM domain d WHERE d.id = $4) = $1 AND {page domain = $4}`)
	targetsQuery = db.SQL(`SELECT t.mailbox, t.address, COALESCE(m.local_part, ''), COALESCE(m.address, '') FROM alias_target t
		LEFT JOIN mailbox m ON m.id = t.mailbox AND m.deleted_at = 0
		WHERE t.alias = $1 AND (t.mailbox = 0 OR m.id > 0) ORDER BY t.n`)

	accountMailboxQuery   = db.SQL(`SELECT id, local_part, address FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	mailboxAtQuery        = db.SQL(`SELECT id FROM mailbox WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	mailboxByAddressQuery = db.SQL(`SELECT id, local_part, address FROM mailbox WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	aliasOfMailboxQuery   = db.SQL(`SELECT a.id FROM mailbox m JOIN alias a ON a.domain = m.domain AND a.address = m.address WHERE m.id = $1`)
	anyAliasQuery         = db.SQL(`SELECT id FROM alias WHERE domain = $1 LIMIT 1`)
	aliasLeadsToQuery     = db.SQL(`SELECT a.id FROM alias a JOIN alias_target t ON t.alias = a.id WHERE a.domain = $1 AND a.address = $2 AND t.mailbox = $3 LIMIT 1`)
	aliasByAddressQuery   = db.SQL(`SELECT id FROM alias WHERE domain = $1 AND address = $2`)
)

func aliasNotFound() error { return fault.New(fault.NotFound, "not_found", "There is no such alias.") }

func scanAlias(r db.Row) (a Alias, err error) {
	var local, key string
	err = r.Scan(&a.ID, &a.Account, &a.Domain, &local, &key, db.TimeScanner(&a.CreatedAt), db.TimeScanner(&a.UpdatedAt))
	a.Address = displayAddress(local, key)
	return a, err
}

// CreateAlias creates an alias for an address on a domain that the account owns; "*" before the @
// makes it the domain's catch-all. A target is the id of a mailbox of the account, its address, or
// an external address. It returns a fault.Conflict if a mailbox or another alias has the address,
// and a fault of the field if a target isn't allowed.
func (m *Mailboxes) CreateAlias(ctx context.Context, account db.ID, addr string, targets []string) (Alias, error) {
	var bad fault.FieldErrors
	a, domain, err := m.parseAliasAddress(ctx, &bad, account, addr)
	if err != nil {
		return Alias{}, err
	}
	now := m.now().UTC()
	made := Alias{ID: m.db.NewID(), Account: account, Domain: domain, Address: a.String(), CreatedAt: now, UpdatedAt: now}
	if made.Targets, err = m.parseAliasTargets(ctx, &bad, account, a, targets); err != nil {
		return Alias{}, err
	}
	if err := bad.Err(); err != nil {
		return Alias{}, err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := m.Accounts.Lock(ctx, tx, account); err != nil {
			return err
		}
		if taken, err := db.Exists(ctx, tx, mailboxAtQuery.With(domain, a.Key())); taken || err != nil {
			return cmp.Or(err, addressTakenError())
		}
		var n int
		if err := tx.One(ctx, countAliasesQuery.With(account), &n); err != nil {
			return err
		}
		if n >= MaxAliases {
			return fault.New(fault.Conflict, "too_many_aliases", "An account can have %d aliases. Delete one first.", MaxAliases)
		}
		insert := insertAliasQuery.With(made.ID, account, domain, a.Local, a.Key(), db.Micros(now))
		return tx.Run(ctx, append([]db.Statement{insert}, made.insertTargets()...)...)
	})
	if m.db.IsConflict(err) {
		return Alias{}, addressTakenError()
	}
	if err != nil {
		return Alias{}, err
	}
	m.notifyChanged(made.ID)
	return made, nil
}

// parseAliasAddress reads the address of a new alias and finds its domain.
func (m *Mailboxes) parseAliasAddress(ctx context.Context, bad *fault.FieldErrors, account db.ID, text string) (address.Address, db.ID, error) {
	a, err := address.Parse(text)
	if err != nil {
		bad.Add("address", "invalid_address", "Give an address such as info@example.com, or *@example.com.")
		return a, 0, nil //nolint:nilerr // it is told
	}
	if a.Local != CatchAll {
		var why *fault.Error
		if err := address.CheckLocalPart(a.Local); errors.As(err, &why) {
			bad.Add("address", why.Code, "%s", why.Message)
			return a, 0, nil
		}
	}
	h, ok, err := m.FindHosted(ctx, a.Domain)
	if err != nil {
		return a, 0, err
	}
	if ok && h.Account == account {
		_, err = m.VerifiedName(ctx, account, h.Domain)
		return a, h.Domain, err
	}
	bad.Add("address", "domain_not_yours", "The address must be on a domain of yours whose ownership is verified.")
	return a, 0, nil
}

// parseAliasTargets is ParseTargets for an alias. It drops duplicates and rejects missing
// mailboxes.
func (m *Mailboxes) parseAliasTargets(ctx context.Context, bad *fault.FieldErrors, account db.ID, of address.Address, given []string) ([]Target, error) {
	read, err := m.ParseTargets(ctx, account, given)
	if err := bad.Merge(err); err != nil {
		return nil, err
	}
	if isRoleAddress(of) && err == nil && !slices.ContainsFunc(read, func(t Target) bool { return t.Mailbox != 0 }) {
		// This alias receives all mail to the address, so what isn't forwarded needs a mailbox.
		bad.Add("targets", "mailbox_needed", "postmaster and abuse must lead to a mailbox here, whatever else they lead to.")
	}
	var all []Target
	for _, t := range read {
		same := func(o Target) bool {
			return o.Mailbox == t.Mailbox && address.KeyOf(o.Address) == address.KeyOf(t.Address)
		}
		if !slices.ContainsFunc(all, same) {
			all = append(all, t)
		}
	}
	return all, nil
}

// ParseTargets reads the targets of an alias of the account. An invalid target is a fault of the
// field targets[i].
func (m *Mailboxes) ParseTargets(ctx context.Context, account db.ID, given []string) ([]Target, error) {
	var bad fault.FieldErrors
	if len(given) == 0 || len(given) > MaxTargets {
		bad.Add("targets", "wrong_number", "Give 1 to %d targets.", MaxTargets)
		return nil, bad.Err()
	}
	all := make([]Target, len(given))
	for i, text := range given {
		var err error
		if all[i], err = m.parseTarget(ctx, &bad, i, account, text); err != nil {
			return nil, err
		}
	}
	return all, bad.Err()
}

// AddTargetFault adds the fault that target i is no mailbox of the account.
func AddTargetFault(bad *fault.FieldErrors, i int) {
	bad.Add(fmt.Sprintf("targets[%d]", i), "not_found", "There is no mailbox of yours with this id or address.")
}

// parseTarget reads target i.
func (m *Mailboxes) parseTarget(ctx context.Context, bad *fault.FieldErrors, i int, account db.ID, text string) (t Target, err error) {
	if !strings.Contains(text, "@") {
		id, err := db.ParseID(text)
		if err == nil {
			t, err = m.mailboxTarget(ctx, accountMailboxQuery.With(id, account))
		}
		return t, missingTargetError(bad, i, err)
	}
	a, err := address.Parse(text)
	if err != nil {
		bad.Add(fmt.Sprintf("targets[%d]", i), "invalid_address", "Give the id of a mailbox, or an address such as bob@example.org.")
		return t, nil //nolint:nilerr // it is told
	}
	h, ok, err := m.FindHosted(ctx, a.Domain)
	if err == nil && (!ok || h.Account != account) {
		return Target{Address: a.String()}, nil
	}
	if err == nil {
		t, err = m.mailboxTarget(ctx, mailboxByAddressQuery.With(h.Domain, a.Key()))
	}
	return t, missingTargetError(bad, i, err)
}

// mailboxTarget returns the target for the mailbox that a statement finds.
func (m *Mailboxes) mailboxTarget(ctx context.Context, s db.Statement) (t Target, err error) {
	var local, key string
	if err := m.db.One(ctx, s, &t.Mailbox, &local, &key); err != nil {
		return Target{}, err
	}
	t.Address = displayAddress(local, key)
	return t, nil
}

// missingTargetError converts the error of a missing mailbox to a fault of the field.
func missingTargetError(bad *fault.FieldErrors, i int, err error) error {
	if !fault.Is(err, fault.NotFound) && !errors.Is(err, db.ErrNoRow) {
		return err
	}
	AddTargetFault(bad, i)
	return nil
}

// insertTargets returns the statements that write the targets of an alias that has none. Like a
// later deletion, a deletion of a mailbox meanwhile leaves its row without effect.
func (a *Alias) insertTargets() (all []db.Statement) {
	for n, t := range a.Targets {
		external := t.Address
		if t.Mailbox != 0 {
			external = ""
		}
		all = append(all, insertTargetQuery.With(a.ID, n, t.Mailbox, external))
	}
	return all
}

// GetAlias returns an alias of the account, or fault.NotFound.
func (m *Mailboxes) GetAlias(ctx context.Context, account, id db.ID) (Alias, error) {
	a, err := db.Find(ctx, m.db, aliasByIDQuery.With(id, account), aliasNotFound(), scanAlias)
	if err == nil {
		err = m.loadTargets(ctx, &a)
	}
	return a, err
}

// Aliases lists an account's aliases, newest first; domain 0 means all domains.
func (m *Mailboxes) Aliases(ctx context.Context, account, domain db.ID, page db.Page) ([]Alias, bool, error) {
	query, args := listAliasesQuery, []any{}
	if domain != 0 {
		query, args = listDomainAliasesQuery, []any{domain}
	}
	list, more, err := db.ReadPage(ctx, m.db, query, page, scanAlias, account, args...)
	for i := range list {
		if err == nil {
			err = m.loadTargets(ctx, &list[i])
		}
	}
	return list, more, err
}

func (m *Mailboxes) loadTargets(ctx context.Context, a *Alias) (err error) {
	a.Targets, err = db.All(ctx, m.db, targetsQuery.With(a.ID), func(r db.Row) (t Target, err error) {
		var local, key string
		if err := r.Scan(&t.Mailbox, &t.Address, &local, &key); err != nil {
			return t, err
		}
		if t.Mailbox != 0 {
			t.Address = displayAddress(local, key)
		}
		return t, nil
	})
	return err
}

// UpdateAlias replaces the targets of an alias. It reads them as CreateAlias does.
func (m *Mailboxes) UpdateAlias(ctx context.Context, account, id db.ID, targets []string) (Alias, error) {
	a, err := m.GetAlias(ctx, account, id)
	if err != nil {
		return Alias{}, err
	}
	var bad fault.FieldErrors
	of, err := address.Parse(a.Address)
	if err != nil {
		return Alias{}, err
	}
	if a.Targets, err = m.parseAliasTargets(ctx, &bad, account, of, targets); err != nil {
		return Alias{}, err
	}
	if err := bad.Err(); err != nil {
		return Alias{}, err
	}
	a.UpdatedAt = m.now().UTC()
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, touchAliasQuery.With(id, account, db.Micros(a.UpdatedAt)), aliasNotFound()); err != nil {
			return err
		}
		return tx.Run(ctx, append([]db.Statement{deleteTargetsQuery.With(id)}, a.insertTargets()...)...)
	})
	if err != nil {
		return Alias{}, err
	}
	m.notifyChanged(id)
	return a, nil
}

// DeleteAlias deletes an alias. Its address is free after the commit.
func (m *Mailboxes) DeleteAlias(ctx context.Context, account, id db.ID) error {
	err := m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, deleteAliasQuery.With(id, account), aliasNotFound()); err != nil {
			return err
		}
		return tx.Run(ctx, deleteTargetsQuery.With(id))
	})
	if err == nil {
		m.notifyChanged(id)
	}
	return err
}

// checkNoAlias returns a fault.Conflict if an alias has the address of a mailbox that tx creates or
// restores. The caller locks the account before it writes the mailbox's row.
func (m *Mailboxes) checkNoAlias(ctx context.Context, tx *db.Tx, box db.ID) error {
	taken, err := db.Exists(ctx, tx, aliasOfMailboxQuery.With(box))
	if err == nil && taken {
		err = addressTakenError()
	}
	return err
}
