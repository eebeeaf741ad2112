// SPDX-License-Identifier: Apache-2.0

package limit

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

// Values of a limit of an account other than a figure.
const (
	Keep    = -2 // leaves it as it is set
	Default = -1 // is what all accounts may
	None    = 0  // is no limit
)

// Most is the largest figure that a limit can have.
const Most = 1_000_000_000_000

var (
	setOf  = db.SQL(`SELECT requests_per_second, burst, sends_per_hour, sends_per_day, recipients_per_day, storage_mb FROM limit_account WHERE account = $1`)
	change = db.SQL(`INSERT INTO limit_account (account, requests_per_second, burst, sends_per_hour, sends_per_day, recipients_per_day, storage_mb)
		VALUES ($1, CASE WHEN CAST($2 AS BIGINT) = -2 THEN -1 ELSE $2 END, CASE WHEN CAST($3 AS BIGINT) = -2 THEN -1 ELSE $3 END,
			CASE WHEN CAST($4 AS BIGINT) = -2 THEN -1 ELSE $4 END, CASE WHEN CAST($5 AS BIGINT) = -2 THEN -1 ELSE $5 END,
			CASE WHEN CAST($6 AS BIGINT) = -2 THEN -1 ELSE $6 END, CASE WHEN CAST($7 AS BIGINT) = -2 THEN -1 ELSE $7 END)
		ON CONFLICT (account) DO UPDATE SET
			requests_per_second = CASE WHEN $2 = -2 THEN limit_account.requests_per_second ELSE excluded.requests_per_second END,
			burst = CASE WHEN $3 = -2 THEN limit_account.burst ELSE excluded.burst END,
			sends_per_hour = CASE WHEN $4 = -2 THEN limit_account.sends_per_hour ELSE excluded.sends_per_hour END,
			sends_per_day = CASE WHEN $5 = -2 THEN limit_account.sends_per_day ELSE excluded.sends_per_day END,
			recipients_per_day = CASE WHEN $6 = -2 THEN limit_account.recipients_per_day ELSE excluded.recipients_per_day END,
			storage_mb = CASE WHEN $7 = -2 THEN limit_account.storage_mb ELSE excluded.storage_mb END`)
)

// fields are a set's limits, in the order of the columns.
func (s *Set) fields() [6]*int64 {
	return [6]*int64{&s.RequestsPerSecond, &s.Burst, &s.SendsPerHour, &s.SendsPerDay, &s.RecipientsPerDay, &s.StorageMB}
}

// Names are those of a Set's limits, in their order.
func Names() []string {
	return []string{"requests_per_second", "burst", "sends_per_hour", "sends_per_day", "recipients_per_day", "storage_mb"}
}

// All is the Set with each limit of one value, such as Keep.
func All(value int64) (s Set) {
	for _, f := range s.fields() {
		*f = value
	}
	return s
}

// Get returns the limit of a name; 0 for an unknown one.
func (s Set) Get(name string) int64 {
	for i, f := range s.fields() {
		if Names()[i] == name {
			return *f
		}
	}
	return 0
}

// Put sets the limit of a name.
func (s *Set) Put(name string, value int64) {
	for i, f := range s.fields() {
		if Names()[i] == name {
			*f = value
		}
	}
}

// OfAccount returns what is set for an account: Default where nothing is.
func (l *Limits) OfAccount(ctx context.Context, account db.ID) (Set, error) {
	own := All(Default)
	f := own.fields()
	err := l.DB.One(ctx, setOf.With(account), f[0], f[1], f[2], f[3], f[4], f[5])
	if errors.Is(err, db.ErrNoRow) {
		err = nil
	}
	return own, err
}

// Account returns the limits of an account.
func (l *Limits) Account(ctx context.Context, account db.ID) (Set, error) {
	set, err := l.OfAccount(ctx, account)
	if set.RequestsPerSecond != Default && set.Burst == Default {
		set.Burst = 0 // that of all belongs to another rate
	}
	all := l.Defaults
	for i, f := range set.fields() {
		if *f == Default {
			*f = *all.fields()[i]
		}
	}
	return set, err
}

// Change sets limits of an account. It counts at once on this node, and on all
// within seconds; used in the window that is open is what was used before.
// A figure above Most is a fault.Invalid.
func (l *Limits) Change(ctx context.Context, account db.ID, set Set) error {
	var bad fault.Fields
	f := set.fields()
	for i, value := range f {
		if *value < Keep || *value > Most {
			bad.Add(Names()[i], "out_of_range", "Give 0 to %d; 0 is no limit.", int64(Most))
		}
	}
	if err := bad.Err(); err != nil {
		return err
	}
	_, err := l.DB.Exec(ctx, change.With(account, *f[0], *f[1], *f[2], *f[3], *f[4], *f[5]))
	if err == nil {
		l.Forget(account)
		l.Hub.Wake(signal.Key{Kind: signal.Account, ID: int64(account)})
	}
	return err
}

// Within returns a fault.Invalid for limits of a key that are above those of its
// account, or of another key that makes it: they would promise what can't be.
func Within(own, outer Rates) error {
	var bad fault.Fields
	o, in := Set{Rates: outer}, Set{Rates: own}
	for i, f := range in.fields() {
		name, most := Names()[i], *o.fields()[i]
		if name == "burst" {
			most = outer.burst()
		}
		if most > 0 && *f > most {
			bad.Add("limits."+name, "over_account", "This is above what is allowed altogether, which is %d.", most)
		}
	}
	return bad.Err()
}

// Storage returns what the quotas of an account's mailboxes may be together, in
// bytes; 0 is no limit.
func (l *Limits) Storage(ctx context.Context, account db.ID) (int64, error) {
	set, err := l.Account(ctx, account)
	return set.StorageMB << 20, err
}
