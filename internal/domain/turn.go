// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// see notes which keys are in the DNS, from the last answer that there was.
func (c *claim) see(keys []key, records []Record) {
	for _, r := range records {
		if r.Kind != DKIM || r.Status != RecordVerified && r.Status != RecordFailed {
			continue
		}
		for i := range keys {
			if k := &keys[i]; k.label()+c.name == r.Name && k.state != KeyRetired {
				k.seen = r.Status == RecordVerified
			}
		}
	}
}

// turn moves the keys on: one that was seen takes the place of the one of its
// algorithm, and what has been kept long enough is retired.
func turn(keys []key, at time.Time) {
	for i := range keys {
		k := &keys[i]
		if !k.seen || !k.activeAt.IsZero() || k.state != KeyPending && k.state != KeyActive {
			continue
		}
		for j := range keys {
			if old := &keys[j]; k.state == KeyPending && old.state == KeyActive && old.algorithm == k.algorithm {
				old.yield(at)
			}
		}
		k.state, k.activeAt = KeyActive, at
	}
	for i := range keys {
		if k := &keys[i]; k.state == KeyRetiring && !at.Before(k.untilAt) {
			k.retire(at)
		}
	}
}

// yield ends a key's use. One that was never seen has signed nothing that
// anybody could verify.
func (k *key) yield(at time.Time) {
	if k.activeAt.IsZero() {
		k.retire(at)
		return
	}
	k.state, k.untilAt = KeyRetiring, at.Add(keepRetiring)
}

func (k *key) retire(at time.Time) { k.state, k.untilAt, k.seen = KeyRetired, at, false }

// nextLook is when a domain is looked at again: by its schedule, or sooner for
// the sake of its keys.
func (c *claim) nextLook(at time.Time, keys []key, records []Record) time.Time {
	next := at.Add(jitter(c.interval(keys, records)))
	sooner := func(t time.Time) {
		if t.After(at) && t.Before(next) {
			next = t
		}
	}
	sooner(c.rotateAt(keys))
	for _, k := range keys {
		if k.state == KeyRetiring {
			sooner(k.untilAt)
		}
	}
	return next
}

var forgetKeys = db.SQL(`DELETE FROM dkim_key WHERE domain = $1 AND state = 'retired' AND until_at < $2`)

// saveKeys writes what became of keys. The domain's row is locked.
func (d *Domains) saveKeys(ctx context.Context, tx *db.Tx, before, now []key) error {
	for i, k := range now {
		was := before[i]
		var s db.Statement
		switch {
		case k.state == KeyRetired && was.state == KeyRetired:
			if d.Now().Sub(k.untilAt) < keepRetired {
				continue
			}
			s = forgetKeys.With(k.domain, db.Micros(d.Now().Add(-keepRetired)))
		case k.state == KeyRetired:
			s = retireKey.With(k.id, db.Micros(k.untilAt), []byte{})
		case k.seen != was.seen || k.state != was.state || !k.activeAt.Equal(was.activeAt):
			s = updateKey.With(k.id, k.seen, k.state, db.Micros(k.activeAt), db.Micros(k.untilAt))
		default:
			continue
		}
		if _, err := tx.Exec(ctx, s); err != nil {
			return err
		}
		tx.AfterCommit(func() { d.changed(k.domain) })
	}
	return nil
}
