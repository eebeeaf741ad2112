// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// pollInterval is how often a node looks for waiting migrations.
	pollInterval = 3 * time.Second
	// maxPerAccount is the maximum number of running migrations per account.
	maxPerAccount = 2
)

var (
	// The index migration_source prevents two leases for the same source.
	claimQuery = db.SQL(`WITH due AS MATERIALIZED (SELECT m.id FROM migration AS m
			WHERE m.lease IS NULL AND m.due_at IS NOT NULL AND m.due_at <= $2
				AND NOT EXISTS (SELECT 1 FROM migration AS o WHERE o.source = m.source AND o.lease IS NOT NULL)
				AND (SELECT COUNT(*) FROM migration AS o WHERE o.account = m.account AND o.lease IS NOT NULL) < $3
				AND EXISTS (SELECT 1 FROM account AS a WHERE a.id = m.account AND a.status = 'active')
				AND NOT EXISTS (SELECT 1 FROM domain AS d WHERE d.id = m.domain AND d.suspended_at > 0)
				AND EXISTS (SELECT 1 FROM lease AS t WHERE t.id = $1 AND t.expires_at > {now})
			ORDER BY m.due_at LIMIT 1 {skip_locked})
		UPDATE migration SET lease = $1, state = 'running', run_at = $2, run_messages = messages_done, run_bytes = bytes_copied, updated_at = $2,
			started_at = CASE WHEN started_at = 0 THEN $2 ELSE started_at END
		WHERE id IN (SELECT id FROM due)
		RETURNING id, planned, password`)
	nextDueQuery       = db.SQL(`SELECT due_at FROM migration WHERE lease IS NULL AND due_at IS NOT NULL AND due_at > $1 ORDER BY due_at LIMIT 1`)
	leasedQuery        = db.SQL(`SELECT id FROM migration WHERE lease IS NOT NULL AND lease = $1 AND id > $2 ORDER BY id LIMIT $3`)
	nextLeaseQuery     = db.SQL(`SELECT lease FROM migration WHERE lease IS NOT NULL AND lease > $1 AND lease < $2 ORDER BY lease LIMIT 1`)
	releaseOrphanQuery = db.SQL(`UPDATE migration SET lease = NULL, due_at = $3 WHERE id = $1 AND lease = $2 AND state = 'running'`)
)

// Run runs migrations until ctx ends: those that wait, and those of nodes that have ended. Then it
// stops between two commits, and another node, or the next start, continues. The node's lease must
// be maintained (lease.Node.MaintainLease) until Run has returned.
func (m *Service) Run(ctx context.Context) error {
	defer m.workers.Wait()
	sub := m.options.Hub.Subscribe(notify.Key{Kind: notify.Migration})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, m.poll, func(err error) { m.options.Log.Error("looking for migrations failed", "error", err) })
	return nil
}

// poll takes over, claims migrations, and returns when to poll again.
func (m *Service) poll(ctx context.Context) (time.Duration, error) {
	if time.Since(m.lastTakeOver) >= pollInterval {
		m.lastTakeOver = time.Now()
		if err := m.takeOver(ctx); err != nil {
			return pollInterval, err
		}
	}
	for ctx.Err() == nil {
		m.mu.Lock()
		full := len(m.jobs) >= m.options.Concurrency
		m.mu.Unlock()
		leaseID, able := m.options.Node.Lease()
		if full || !able {
			return pollInterval, nil
		}
		j, err := m.claim(ctx, leaseID)
		if err != nil || j == nil {
			return m.untilNextPoll(ctx), err
		}
		m.start(ctx, j)
	}
	return pollInterval, nil
}

// untilNextPoll returns the time until the next migration is due, at most pollInterval.
func (m *Service) untilNextPoll(ctx context.Context) time.Duration {
	now := m.options.Now()
	var due time.Time
	if err := m.options.DB.One(ctx, nextDueQuery.With(db.Micros(now)), db.TimeScanner(&due)); err != nil {
		return pollInterval
	}
	return min(pollInterval, due.Sub(now)+time.Millisecond)
}

// claim acquires one migration; nil if none is ready.
func (m *Service) claim(ctx context.Context, leaseID db.ID) (j *job, err error) {
	err = m.options.DB.Tx(ctx, func(tx *db.Tx) error {
		j = nil
		var id db.ID
		var planned bool
		var sealed []byte
		if err := tx.Lock(ctx, "migrations taken", 0); err != nil {
			return err
		}
		err := tx.One(ctx, claimQuery.With(leaseID, db.Micros(m.options.Now()), maxPerAccount), &id, &planned, &sealed)
		if err != nil {
			return db.IfNoRow(err, nil)
		}
		g, err := m.read(ctx, tx, id)
		if err != nil {
			return err
		}
		password, err := m.options.Key.Open(sealPurpose, sealed)
		g.Source.Password = string(password)
		j = &job{Service: m, Migration: g, leaseID: leaseID, planned: planned, passwordUnreadable: err != nil}
		return nil
	})
	if m.options.DB.IsConflict(err) {
		return nil, nil // another node claimed one from the same source
	}
	return j, err
}

func (m *Service) start(ctx context.Context, j *job) {
	m.mu.Lock()
	m.jobs[j.ID] = j
	m.mu.Unlock()
	m.workers.Go(func() {
		j.run(ctx)
		m.mu.Lock()
		if m.jobs[j.ID] == j {
			delete(m.jobs, j.ID)
		}
		m.mu.Unlock()
		m.options.Hub.Receive([]notify.Key{{Kind: notify.Migration}}) // there may be more
	})
}

// takeOver releases migrations of ended nodes, and those that this node doesn't know of because the
// outcome of a commit was unknown.
func (m *Service) takeOver(ctx context.Context) error {
	if err := m.options.Node.TakeOver(ctx, nextLeaseQuery, m.releaseOrphans); err != nil {
		return err
	}
	leaseID, _ := m.options.Node.Lease()
	return m.releaseOrphans(ctx, leaseID)
}

func (m *Service) releaseOrphans(ctx context.Context, leaseID db.ID) error {
	return lease.ReleaseOrphans(ctx, m.options.DB, func(above db.ID) db.Statement {
		return leasedQuery.With(leaseID, above, lease.BatchRows)
	}, db.ScanID, func(id db.ID) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		j := m.jobs[id]
		return j != nil && j.leaseID == leaseID
	}, func(id db.ID) db.Statement { return releaseOrphanQuery.With(id, leaseID, db.Micros(m.options.Now())) })
}
