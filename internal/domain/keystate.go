// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// markSeenKeys updates which keys are in the DNS, from the last answer that there was.
func (c *claim) markSeenKeys(keys []key, records []Record) {
	for _, r := range records {
		if r.Kind != KindDKIM || r.Status != RecordVerified && r.Status != RecordFailed {
			continue
		}
		for i := range keys {
			if k := &keys[i]; k.recordLabel()+c.name == r.Name && k.state != KeyRetired {
				k.seen = r.Status == RecordVerified
			}
		}
	}
}

// advanceKeys advances the states of keys: a key that was seen replaces the active one of its
// algorithm, and keys whose retiring period has ended are retired.
func advanceKeys(keys []key, at time.Time) {
	for i := range keys {
		k := &keys[i]
		if !k.seen || !k.activeAt.IsZero() || k.state != KeyPending && k.state != KeyActive {
			continue
		}
		for j := range keys {
			if old := &keys[j]; k.state == KeyPending && old.state == KeyActive && old.algorithm == k.algorithm {
				old.startRetiring(at)
			}
		}
		k.state, k.activeAt = KeyActive, at
	}
	for i := range keys {
		if k := &keys[i]; k.state == KeyRetiring && !at.Before(k.retireAt) {
			k.retire(at)
		}
	}
}

// startRetiring ends a key's use. A key that was never seen is retired immediately, since nobody
// could verify its signatures.
func (k *key) startRetiring(at time.Time) {
	if k.activeAt.IsZero() {
		k.retire(at)
		return
	}
	k.state, k.retireAt = KeyRetiring, at.Add(retiringKeyPeriod)
}

func (k *key) retire(at time.Time) { k.state, k.retireAt, k.seen = KeyRetired, at, false }

// nextCheck returns when a domain is checked again: by its schedule, or sooner because of its keys.
func (c *claim) nextCheck(at time.Time, keys []key, records []Record) time.Time {
	next := at.Add(jitter(c.checkInterval(keys, records)))
	sooner := func(t time.Time) {
		if t.After(at) && t.Before(next) {
			next = t
		}
	}
	sooner(c.rotationDue(keys))
	for _, k := range keys {
		if k.state == KeyRetiring {
			sooner(k.retireAt)
		}
	}
	return next
}

var deleteRetiredKeysQuery = db.SQL(`DELETE FROM dkim_key WHERE domain = $1 AND state = 'retired' AND until_at < $2`)

// saveKeyStates writes changed keys. The domain's row is locked.
func (d *Domains) saveKeyStates(ctx context.Context, tx *db.Tx, before, now []key) error {
	for i, k := range now {
		was := before[i]
		var s db.Statement
		switch {
		case k.state == KeyRetired && was.state == KeyRetired:
			if d.Now().Sub(k.retireAt) < retiredKeyRetention {
				continue
			}
			s = deleteRetiredKeysQuery.With(k.domain, db.Micros(d.Now().Add(-retiredKeyRetention)))
		case k.state == KeyRetired:
			s = retireKeyQuery.With(k.id, db.Micros(k.retireAt), []byte{})
		case k.seen != was.seen || k.state != was.state || !k.activeAt.Equal(was.activeAt):
			s = updateKeyQuery.With(k.id, k.seen, k.state, db.Micros(k.activeAt), db.Micros(k.retireAt))
		default:
			continue
		}
		if err := tx.Run(ctx, s); err != nil {
			return err
		}
		tx.AfterCommit(func() { d.notifyChanged(k.domain) })
	}
	return nil
}
