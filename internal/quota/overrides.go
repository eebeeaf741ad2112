// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// Special values of an account's limit.
const (
	Unchanged = -2 // keeps the current value
	Default   = -1 // uses the default of all accounts
	Unlimited = 0  // no limit
)

// MaxValue is the largest value of a limit.
const MaxValue = 1_000_000_000_000

var (
	overridesQuery    = db.SQL(`SELECT requests_per_second, burst, sends_per_hour, sends_per_day, recipients_per_day, storage_mb FROM quota_account WHERE account = $1`)
	setOverridesQuery = db.SQL(`INSERT INTO quota_account (account, requests_per_second, burst, sends_per_hour, sends_per_day, recipients_per_day, storage_mb)
		VALUES ($1, CASE WHEN CAST($2 AS BIGINT) = -2 THEN -1 ELSE $2 END, CASE WHEN CAST($3 AS BIGINT) = -2 THEN -1 ELSE $3 END,
			CASE WHEN CAST($4 AS BIGINT) = -2 THEN -1 ELSE $4 END, CASE WHEN CAST($5 AS BIGINT) = -2 THEN -1 ELSE $5 END,
			CASE WHEN CAST($6 AS BIGINT) = -2 THEN -1 ELSE $6 END, CASE WHEN CAST($7 AS BIGINT) = -2 THEN -1 ELSE $7 END)
		ON CONFLICT (account) DO UPDATE SET
			requests_per_second = CASE WHEN $2 = -2 THEN quota_account.requests_per_second ELSE excluded.requests_per_second END,
			burst = CASE WHEN $3 = -2 THEN quota_account.burst ELSE excluded.burst END,
			sends_per_hour = CASE WHEN $4 = -2 THEN quota_account.sends_per_hour ELSE excluded.sends_per_hour END,
			sends_per_day = CASE WHEN $5 = -2 THEN quota_account.sends_per_day ELSE excluded.sends_per_day END,
			recipients_per_day = CASE WHEN $6 = -2 THEN quota_account.recipients_per_day ELSE excluded.recipients_per_day END,
			storage_mb = CASE WHEN $7 = -2 THEN quota_account.storage_mb ELSE excluded.storage_mb END`)
)

// fields returns pointers to the limits, in the order of the columns.
func (s *AccountLimits) fields() [6]*int64 {
	return [6]*int64{&s.RequestsPerSecond, &s.Burst, &s.SendsPerHour, &s.SendsPerDay, &s.RecipientsPerDay, &s.StorageMB}
}

// Names returns the names of the limits in AccountLimits, in their order.
func Names() []string {
	return []string{"requests_per_second", "burst", "sends_per_hour", "sends_per_day", "recipients_per_day", "storage_mb"}
}

// Uniform returns AccountLimits with the same value, such as Unchanged, for each limit.
func Uniform(value int64) (s AccountLimits) {
	for _, f := range s.fields() {
		*f = value
	}
	return s
}

// Value returns the limit with a name; 0 for an unknown name.
func (s AccountLimits) Value(name string) int64 {
	for i, f := range s.fields() {
		if Names()[i] == name {
			return *f
		}
	}
	return 0
}

// SetValue sets the limit with a name.
func (s *AccountLimits) SetValue(name string, value int64) {
	for i, f := range s.fields() {
		if Names()[i] == name {
			*f = value
		}
	}
}

// Overrides returns the limits that are set for an account, with Default for the others.
func (l *Limiter) Overrides(ctx context.Context, account db.ID) (AccountLimits, error) {
	own := Uniform(Default)
	f := own.fields()
	err := l.DB.One(ctx, overridesQuery.With(account), f[0], f[1], f[2], f[3], f[4], f[5])
	return own, db.IfNoRow(err, nil)
}

// AccountLimits returns the limits of an account.
func (l *Limiter) AccountLimits(ctx context.Context, account db.ID) (AccountLimits, error) {
	set, err := l.Overrides(ctx, account)
	if set.RequestsPerSecond != Default && set.Burst == Default {
		set.Burst = 0 // the default burst belongs to another rate
	}
	all := l.Defaults
	for i, f := range set.fields() {
		if *f == Default {
			*f = *all.fields()[i]
		}
	}
	return set, err
}

// SetOverrides sets limits of an account. They take effect at once on this node, and on all nodes
// within seconds. Usage in the current window stays. SetOverrides returns a fault.Invalid for a
// value above MaxValue.
func (l *Limiter) SetOverrides(ctx context.Context, account db.ID, set AccountLimits) error {
	var bad fault.FieldErrors
	f := set.fields()
	for i, value := range f {
		if *value < Unchanged || *value > MaxValue {
			bad.Add(Names()[i], "out_of_range", "Give 0 to %d; 0 is no limit.", int64(MaxValue))
		}
	}
	if err := bad.Err(); err != nil {
		return err
	}
	_, err := l.DB.Exec(ctx, setOverridesQuery.With(account, *f[0], *f[1], *f[2], *f[3], *f[4], *f[5]))
	if err == nil {
		l.Invalidate(account)
		l.Hub.Wake(notify.Key{Kind: notify.Account, ID: int64(account)})
	}
	return err
}

// CheckKeyRates returns a fault.Invalid if limits of a key are above those of its account, or of
// the key that creates it: the key could not reach them.
func CheckKeyRates(own, outer Rates) error {
	var bad fault.FieldErrors
	o, in := AccountLimits{Rates: outer}, AccountLimits{Rates: own}
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

// StorageLimit returns the maximum sum of the quotas of an account's mailboxes, in bytes; 0 is no
// limit.
func (l *Limiter) StorageLimit(ctx context.Context, account db.ID) (int64, error) {
	set, err := l.AccountLimits(ctx, account)
	return set.StorageMB << 20, err
}
