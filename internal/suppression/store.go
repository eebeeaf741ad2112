// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// entryColumns are the columns that an entry is scanned from.
const entryColumns = `id, account, address, reason, message, n, diagnostic, simulated, created_at`

var (
	listQuery = db.PagedSQL(`SELECT ` + entryColumns + ` FROM suppression
		WHERE {page account = $1}`)
	listByReasonQuery = db.PagedSQL(`SELECT ` + entryColumns + ` FROM suppression
		WHERE {page account = $1, reason = $4}`)
	// An address has one entry per scope. The query finds entries by key first and then sorts them;
	// otherwise a planner might scan the whole list by id.
	listByAddressQuery = db.PagedSQL(`WITH found AS MATERIALIZED (SELECT ` + entryColumns + `
			FROM suppression WHERE account = $1 AND address = $4)
		SELECT ` + entryColumns + ` FROM found
		WHERE ($5 = '' OR reason = $5) AND {page}`)
	entryByIDQuery = db.SQL(`SELECT ` + entryColumns + ` FROM suppression
		WHERE id = $2 AND account = $1`)
	entriesByAddressQuery = db.SQL(`SELECT ` + entryColumns + ` FROM suppression
		WHERE account = $1 AND address = $2 ORDER BY scope`)
	entriesAfterQuery = db.SQL(`SELECT ` + entryColumns + ` FROM suppression
		WHERE
		{sqlite}account = $1 AND id > $2 ORDER BY id LIMIT $3
		{postgres}(account, id) > ($1, $2) AND account <= $1 ORDER BY account, id LIMIT $3`)
	deleteByIDQuery      = db.SQL(`DELETE FROM suppression WHERE id = $2 AND account = $1`)
	deleteByAddressQuery = db.SQL(`DELETE FROM suppression WHERE account = $1 AND address = $2`)
)

func scanEntry(r db.Row) (e Entry, err error) {
	err = r.Scan(&e.ID, &e.Account, &e.Address, (*string)(&e.Reason), &e.Message, &e.Delivery, &e.Diagnostic, &e.Simulated, db.TimeScanner(&e.CreatedAt))
	return e, err
}

// Filter selects entries.
type Filter struct {
	Reason  Reason          // "" for all
	Address address.Address // zero for all
}

// List returns entries of an account, newest first.
func (l *List) List(ctx context.Context, account db.ID, f Filter, page db.Page) (entries []Entry, more bool, err error) {
	switch {
	case f.Address != address.Address{}:
		return db.ReadPage(ctx, l.DB, listByAddressQuery, page, scanEntry, account, f.Address.Key(), string(f.Reason))
	case f.Reason != "":
		return db.ReadPage(ctx, l.DB, listByReasonQuery, page, scanEntry, account, string(f.Reason))
	}
	return db.ReadPage(ctx, l.DB, listQuery, page, scanEntry, account)
}

// EachPage calls f with all entries of an account in order of creation, page by page; an error of f
// ends it. No query is open while f runs.
func (l *List) EachPage(ctx context.Context, account db.ID, f func([]Entry) error) error {
	const size = 500
	for last := db.ID(0); ; {
		entries, err := db.All(ctx, l.DB, entriesAfterQuery.With(account, last, size), scanEntry)
		if err != nil || len(entries) == 0 {
			return err
		}
		if err := f(entries); err != nil {
			return err
		}
		if len(entries) < size {
			return nil
		}
		last = entries[len(entries)-1].ID
	}
}

var errNotListed = fault.New(fault.NotFound, "not_found", "There is no such entry on the suppression list.")

// Get returns an entry by its id or its address: if an address has two entries, the one that stops
// all mail. It returns fault.NotFound if there is none.
func (l *List) Get(ctx context.Context, account db.ID, idOrAddress string) (Entry, error) {
	find, err := byIDOrAddress(entryByIDQuery, entriesByAddressQuery, account, idOrAddress)
	if err != nil {
		return Entry{}, err
	}
	return db.Find(ctx, l.DB, find, errNotListed, scanEntry)
}

// Delete deletes an entry by its id, or all entries of an address. It returns fault.NotFound if
// there is none.
func (l *List) Delete(ctx context.Context, account db.ID, idOrAddress string) error {
	remove, err := byIDOrAddress(deleteByIDQuery, deleteByAddressQuery, account, idOrAddress)
	if err != nil {
		return err
	}
	return l.DB.ExecOrFail(ctx, remove, errNotListed)
}

func byIDOrAddress(id, addr *db.Query, account db.ID, idOrAddress string) (db.Statement, error) {
	if !strings.Contains(idOrAddress, "@") {
		number, err := db.ParseID(idOrAddress)
		return id.With(account, number), err
	}
	a, err := address.Parse(idOrAddress)
	if err != nil { // no entry can have this address
		return db.Statement{}, errNotListed
	}
	return addr.With(account, a.Key()), nil
}

// MaxPutAddresses is the maximum number of addresses in one call of Put.
const MaxPutAddresses = 1000

// Put adds addresses to the list of an account and returns their entries, in order: an existing
// entry keeps its first reason. Simulator addresses are a fault.Invalid.
func (l *List) Put(ctx context.Context, account db.ID, addresses []address.Address, reason Reason) ([]Entry, error) {
	statements := make([]db.Statement, len(addresses))
	for i, a := range addresses {
		var ok bool
		if statements[i], ok = l.AddStatement(Entry{Account: account, Address: a.String(), Reason: reason}); !ok || IsSimulator(a) {
			return nil, fault.New(fault.Invalid, "simulator_address", "Simulator addresses can't be added to the list.")
		}
	}
	var entries []Entry
	err := l.DB.Tx(ctx, func(tx *db.Tx) error {
		entries = make([]Entry, 0, len(addresses))
		for i, s := range statements {
			if err := tx.Run(ctx, s); err != nil {
				return err
			}
			err := tx.Each(ctx, entriesByAddressQuery.With(account, addresses[i].Key()), func(r db.Row) error {
				e, err := scanEntry(r)
				if e.Reason.scope() == reason.scope() {
					entries = append(entries, e)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return entries, err
}
