// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
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
	Address   string   // the local part as it was given, "*" for a catch-all
	Targets   []Target // in the order in which they were given, without mailboxes that are deleted
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Target is where the mail of an alias goes: a mailbox of its account, or an
// address elsewhere.
type Target struct {
	Mailbox db.ID  // 0: elsewhere
	Address string // also of a mailbox
}

// String is the target's address.
func (t Target) String() string { return t.Address }

const (
	// MaxTargets is how many targets an alias may have.
	MaxTargets = 100
	// MaxAliases is how many aliases an account may have.
	MaxAliases = 10_000
	// CatchAll is the local part of the alias that takes what nothing else of
	// its domain does.
	CatchAll = "*"
)

var (
	insertAlias = db.SQL(`INSERT INTO alias (id, account, domain, local_part, address, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $6)`)
	countAliases = db.SQL(`SELECT COUNT(*) FROM alias WHERE account = $1`)
	insertTarget = db.SQL(`INSERT INTO alias_target (alias, n, mailbox, address) VALUES ($1, $2, $3, $4)`)
	noTargets    = db.SQL(`DELETE FROM alias_target WHERE alias = $1`)
	touchAlias   = db.SQL(`UPDATE alias SET updated_at = $3 WHERE id = $1 AND account = $2`)
	removeAlias  = db.SQL(`DELETE FROM alias WHERE id = $1 AND account = $2`)
	noLonger     = db.SQL(`DELETE FROM alias_target WHERE mailbox = $1 AND mailbox > 0`)

	aliasByID         = db.SQL(`SELECT id, account, domain, local_part, address, created_at, updated_at FROM alias WHERE id = $1 AND account = $2`)
	listAliases       = db.Paged(`SELECT id, account, domain, local_part, address, created_at, updated_at FROM alias WHERE {page account = $1}`)
	listAliasesDomain = db.Paged(`SELECT id, account, domain, local_part, address, created_at, updated_at FROM alias
		WHERE (SELECT d.account FROM domain d WHERE d.id = $4) = $1 AND {page domain = $4}`)
	targetsOf = db.SQL(`SELECT t.mailbox, t.address, COALESCE(m.local_part, ''), COALESCE(m.address, '') FROM alias_target t
		LEFT JOIN mailbox m ON m.id = t.mailbox AND m.deleted_at = 0
		WHERE t.alias = $1 AND (t.mailbox = 0 OR m.id > 0) ORDER BY t.n`)

	ownBox       = db.SQL(`SELECT id, local_part, address FROM mailbox WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	boxAt        = db.SQL(`SELECT id FROM mailbox WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	namedBox     = db.SQL(`SELECT id, local_part, address FROM mailbox WHERE domain = $1 AND address = $2 AND deleted_at = 0`)
	aliasOfBox   = db.SQL(`SELECT a.id FROM mailbox m JOIN alias a ON a.domain = m.domain AND a.address = m.address WHERE m.id = $1`)
	anyAliasOf   = db.SQL(`SELECT id FROM alias WHERE domain = $1 LIMIT 1`)
	leadsTo      = db.SQL(`SELECT a.id FROM alias a JOIN alias_target t ON t.alias = a.id WHERE a.domain = $1 AND a.address = $2 AND t.mailbox = $3 LIMIT 1`)
	aliasAddress = db.SQL(`SELECT id FROM alias WHERE domain = $1 AND address = $2`)
)

func noAlias() error { return fault.New(fault.NotFound, "not_found", "There is no such alias.") }

func scanAlias(r db.Row) (a Alias, err error) {
	var local, key string
	var created, updated int64
	err = r.Scan(&a.ID, &a.Account, &a.Domain, &local, &key, &created, &updated)
	a.Address, a.CreatedAt, a.UpdatedAt = shown(local, key), db.Time(created), db.Time(updated)
	return a, err
}

// CreateAlias makes an alias for an address on a domain that the account
// holds; "*" before the @ makes it the domain's catch-all. A target is the id of
// a mailbox of the account, its address, or an address elsewhere. An address that a mailbox or another alias
// has is a fault.Conflict; a target that may not be is a fault of its field.
func (m *Mailboxes) CreateAlias(ctx context.Context, account db.ID, addr string, targets []string) (Alias, error) {
	var bad fault.Fields
	a, domain, err := m.aliasAt(ctx, &bad, account, addr)
	if err != nil {
		return Alias{}, err
	}
	now := m.now().UTC()
	made := Alias{ID: m.db.NewID(), Account: account, Domain: domain, Address: a.String(), CreatedAt: now, UpdatedAt: now}
	if made.Targets, err = m.targets(ctx, &bad, account, a, targets); err != nil {
		return Alias{}, err
	}
	if err := bad.Err(); err != nil {
		return Alias{}, err
	}
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := m.Accounts.Hold(ctx, tx, account); err != nil {
			return err
		}
		switch err := tx.One(ctx, boxAt.With(domain, a.Key()), new(db.ID)); {
		case err == nil:
			return taken()
		case !errors.Is(err, db.ErrNoRow):
			return err
		}
		var n int
		if err := tx.One(ctx, countAliases.With(account), &n); err != nil {
			return err
		}
		if n >= MaxAliases {
			return fault.New(fault.Conflict, "too_many_aliases", "An account can have %d aliases. Delete one first.", MaxAliases)
		}
		if _, err := tx.Exec(ctx, insertAlias.With(made.ID, account, domain, a.Local, a.Key(), db.Micros(now))); err != nil {
			return err
		}
		return m.setTargets(ctx, tx, &made)
	})
	if m.db.IsConflict(err) {
		return Alias{}, taken()
	}
	if err != nil {
		return Alias{}, err
	}
	m.changed(made.ID)
	return made, nil
}

// aliasAt reads the address of an alias to be made and finds the domain that it
// is on.
func (m *Mailboxes) aliasAt(ctx context.Context, bad *fault.Fields, account db.ID, text string) (address.Address, db.ID, error) {
	a, err := address.Parse(text)
	if err != nil {
		bad.Add("address", "invalid_address", "Give an address such as info@example.com, or *@example.com.")
		return a, 0, nil //nolint:nilerr // it is told
	}
	if a.Local != CatchAll {
		var why *fault.Error
		if err := address.LocalPart(a.Local); errors.As(err, &why) {
			bad.Add("address", why.Code, "%s", why.Message)
			return a, 0, nil
		}
	}
	h, ok, err := m.Hosted(ctx, a.Domain)
	if err != nil {
		return a, 0, err
	}
	if ok && h.Account == account {
		_, err = m.Owned(ctx, account, h.Domain)
		return a, h.Domain, err
	}
	bad.Add("address", "domain_not_yours", "The address must be on a domain of yours whose ownership is verified.")
	return a, 0, nil
}

// targets is ReadTargets for an alias: each once, and none that is not there.
func (m *Mailboxes) targets(ctx context.Context, bad *fault.Fields, account db.ID, of address.Address, given []string) ([]Target, error) {
	read, err := m.ReadTargets(ctx, account, given)
	if err := bad.Merge(err); err != nil {
		return nil, err
	}
	if isRole(of) && err == nil && !slices.ContainsFunc(read, func(t Target) bool { return t.Mailbox != 0 }) {
		// It takes everything, and what is not forwarded must go somewhere.
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

// ReadTargets reads where an alias of the account is to lead. What is no target
// is a fault of the field targets[i].
func (m *Mailboxes) ReadTargets(ctx context.Context, account db.ID, given []string) ([]Target, error) {
	var bad fault.Fields
	if len(given) == 0 || len(given) > MaxTargets {
		bad.Add("targets", "wrong_number", "Give 1 to %d targets.", MaxTargets)
		return nil, bad.Err()
	}
	all := make([]Target, len(given))
	for i, text := range given {
		var err error
		if all[i], err = m.target(ctx, &bad, i, account, text); err != nil {
			return nil, err
		}
	}
	return all, bad.Err()
}

// NoTarget notes that the target i is no mailbox of the account.
func NoTarget(bad *fault.Fields, i int) {
	bad.Add(fmt.Sprintf("targets[%d]", i), "not_found", "There is no mailbox of yours with this id or address.")
}

// target reads the target i.
func (m *Mailboxes) target(ctx context.Context, bad *fault.Fields, i int, account db.ID, text string) (t Target, err error) {
	if !strings.Contains(text, "@") {
		id, err := db.ParseID(text)
		if err == nil {
			t, err = m.boxTarget(ctx, ownBox.With(id, account))
		}
		return t, absent(bad, i, err)
	}
	a, err := address.Parse(text)
	if err != nil {
		bad.Add(fmt.Sprintf("targets[%d]", i), "invalid_address", "Give the id of a mailbox, or an address such as bob@example.org.")
		return t, nil //nolint:nilerr // it is told
	}
	h, ok, err := m.Hosted(ctx, a.Domain)
	if err == nil && (!ok || h.Account != account) {
		return Target{Address: a.String()}, nil
	}
	if err == nil {
		t, err = m.boxTarget(ctx, namedBox.With(h.Domain, a.Key()))
	}
	return t, absent(bad, i, err)
}

// boxTarget makes a target of the mailbox that a statement finds.
func (m *Mailboxes) boxTarget(ctx context.Context, s db.Statement) (t Target, err error) {
	var local, key string
	if err := m.db.One(ctx, s, &t.Mailbox, &local, &key); err != nil {
		return Target{}, err
	}
	t.Address = shown(local, key)
	return t, nil
}

// absent makes of a mailbox that is not there a fault of the field.
func absent(bad *fault.Fields, i int, err error) error {
	if !fault.Is(err, fault.NotFound) && !errors.Is(err, db.ErrNoRow) {
		return err
	}
	NoTarget(bad, i)
	return nil
}

// setTargets writes the targets of an alias that has none. A mailbox that was
// deleted meanwhile gets nothing, as if it had been deleted afterwards.
func (m *Mailboxes) setTargets(ctx context.Context, tx *db.Tx, a *Alias) error {
	for n, t := range a.Targets {
		elsewhere := t.Address
		if t.Mailbox != 0 {
			elsewhere = ""
		}
		if _, err := tx.Exec(ctx, insertTarget.With(a.ID, n, t.Mailbox, elsewhere)); err != nil {
			return err
		}
	}
	return nil
}

// GetAlias returns an alias of the account, or fault.NotFound.
func (m *Mailboxes) GetAlias(ctx context.Context, account, id db.ID) (Alias, error) {
	found, err := db.All(ctx, m.db, aliasByID.With(id, account), scanAlias)
	if err != nil {
		return Alias{}, err
	}
	if len(found) == 0 {
		return Alias{}, noAlias()
	}
	err = m.readTargets(ctx, &found[0])
	return found[0], err
}

// Aliases lists an account's aliases, newest first; domain 0 is all.
func (m *Mailboxes) Aliases(ctx context.Context, account, domain db.ID, page db.Page) ([]Alias, bool, error) {
	query, args := listAliases, []any{}
	if domain != 0 {
		query, args = listAliasesDomain, []any{domain}
	}
	list, more, err := db.ReadPage(ctx, m.db, query, page, scanAlias, account, args...)
	for i := range list {
		if err == nil {
			err = m.readTargets(ctx, &list[i])
		}
	}
	return list, more, err
}

func (m *Mailboxes) readTargets(ctx context.Context, a *Alias) (err error) {
	a.Targets, err = db.All(ctx, m.db, targetsOf.With(a.ID), func(r db.Row) (t Target, err error) {
		var local, key string
		if err := r.Scan(&t.Mailbox, &t.Address, &local, &key); err != nil {
			return t, err
		}
		if t.Mailbox != 0 {
			t.Address = shown(local, key)
		}
		return t, nil
	})
	return err
}

// UpdateAlias gives an alias other targets, as CreateAlias reads them.
func (m *Mailboxes) UpdateAlias(ctx context.Context, account, id db.ID, targets []string) (Alias, error) {
	a, err := m.GetAlias(ctx, account, id)
	if err != nil {
		return Alias{}, err
	}
	var bad fault.Fields
	of, err := address.Parse(a.Address)
	if err != nil {
		return Alias{}, err
	}
	if a.Targets, err = m.targets(ctx, &bad, account, of, targets); err != nil {
		return Alias{}, err
	}
	if err := bad.Err(); err != nil {
		return Alias{}, err
	}
	a.UpdatedAt = m.now().UTC()
	err = m.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, touchAlias.With(id, account, db.Micros(a.UpdatedAt)))
		if err = some(n, err, noAlias()); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, noTargets.With(id)); err != nil {
			return err
		}
		return m.setTargets(ctx, tx, &a)
	})
	if err != nil {
		return Alias{}, err
	}
	m.changed(id)
	return a, nil
}

// DeleteAlias deletes an alias: from the commit on its address is free.
func (m *Mailboxes) DeleteAlias(ctx context.Context, account, id db.ID) error {
	err := m.db.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, removeAlias.With(id, account))
		if err = some(n, err, noAlias()); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, noTargets.With(id))
		return err
	})
	if err == nil {
		m.changed(id)
	}
	return err
}

// some is none when a statement that ran without error changed nothing.
func some(n int64, err, none error) error {
	if err == nil && n == 0 {
		return none
	}
	return err
}

// unaliased is a fault.Conflict when an alias has the address of a mailbox that
// tx makes or restores. The account is held before the mailbox's row is
// written.
func (m *Mailboxes) unaliased(ctx context.Context, tx *db.Tx, box db.ID) error {
	switch err := tx.One(ctx, aliasOfBox.With(box), new(db.ID)); {
	case err == nil:
		return taken()
	case !errors.Is(err, db.ErrNoRow):
		return err
	}
	return nil
}
