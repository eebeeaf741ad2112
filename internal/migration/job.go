// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// maxRetries is the maximum number of consecutive tries without progress.
	maxRetries = 20
	// maxProtocolRetries is the same for sources whose responses can't be parsed.
	maxProtocolRetries = 2
	// maxReconnects is how often in a row a worker reconnects before it leaves its folders to the
	// others.
	maxReconnects = 3
	// maxIdleTurns is the number of turns that a preempted migration may spend without progress.
	maxIdleTurns = 6
	// finishTimeout is the limit for the last write of a job.
	finishTimeout = 5 * time.Second
)

// errLeaseLost reports that the migration was cancelled, or that another node has its lease.
var errLeaseLost = errors.New("the migration is not in this node's hand any more")

// errPreempted reports that a migration used its turn while others wait.
var errPreempted = errors.New("others have their turn")

// errMailboxDeleted reports that the mailbox was deleted.
var errMailboxDeleted = errors.New("the mailbox was deleted")

// errSuspended reports that the account or the domain is suspended. The migration continues once it
// is active again.
var errSuspended = errors.New("the account or the domain is suspended")

// internalError marks an error of this service.
type internalError struct{ error }

func (o internalError) Unwrap() error { return o.error }

// job runs a migration while this node holds its lease.
type job struct {
	*Service
	Migration
	leaseID            db.ID
	planned            bool
	passwordUnreadable bool // the password can't be decrypted
	stop               context.CancelCauseFunc

	changed   atomic.Bool  // since its followers were last notified
	commits   atomic.Int64 // number of commits with progress
	preempted atomic.Bool  // the turn is over: the next commit is the last

	mu      sync.Mutex
	tasks   []*folderTask // folders without a worker
	lastErr error         // the last error of a connection
}

// run works until the migration has finished, must wait, or ctx ends.
func (j *job) run(ctx context.Context) {
	work, stop := context.WithCancelCause(ctx)
	j.stop = stop
	var watching sync.WaitGroup
	watching.Go(func() { j.watch(work) })
	err := j.work(work)
	if cause := context.Cause(work); cause != nil && ctx.Err() == nil {
		err = cause
	}
	stop(nil)
	watching.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if ctx.Err() != nil && !errors.Is(err, errLeaseLost) {
		err = j.release(last, j.Retries, "", 0)
	} else {
		err = j.conclude(last, err)
	}
	if err != nil && !errors.Is(err, errLeaseLost) { // takeOver releases it
		j.options.Log.Error("writing how a migration ended failed", "migration", j.ID, "error", err)
	}
	j.wake(j.ID)
}

// conclude records the result of the work.
func (j *job) conclude(ctx context.Context, err error) error {
	var last permanentError
	switch {
	case err == nil:
		return j.finishJob(ctx, Completed, "")
	case errors.Is(err, errLeaseLost):
		return nil
	case errors.Is(err, errPreempted) && j.commits.Load() > 0:
		return j.release(ctx, 0, "", 0)
	case errors.Is(err, errSuspended):
		return j.release(ctx, j.Retries, "", 0)
	case errors.Is(err, errMailboxDeleted):
		return j.finishJob(ctx, Cancelled, "The mailbox was deleted.")
	case errors.As(err, &last):
		return j.finishJob(ctx, Failed, last.text)
	}
	words := retryReason(err)
	if _, ok := errors.AsType[internalError](err); ok {
		words = "The service had trouble of its own."
		j.options.Log.Error("a migration was interrupted", "migration", j.ID, "error", err)
	}
	retries := j.Retries + 1
	if j.commits.Load() > 0 {
		retries = 1
	}
	var strange protocolError
	if retries > maxRetries || retries > maxProtocolRetries && errors.As(err, &strange) {
		return j.finishJob(ctx, Failed, words+" It was tried "+fmt.Sprint(retries)+" times.")
	}
	return j.release(ctx, retries, words, j.retryDelay(retries))
}

func (j *job) finishJob(ctx context.Context, state, words string) error {
	_, err := j.finish(ctx, j.ID, finishQuery.With(j.ID, j.leaseID, state, words, db.Micros(j.options.Now())))
	return err
}

// retryDelay returns how long to wait before try n, counted from 1.
func (m *Service) retryDelay(n int) time.Duration {
	d := m.options.MinRetryDelay << min(n-1, 20)
	if d > m.options.MaxRetryDelay || d <= 0 {
		d = m.options.MaxRetryDelay
	}
	return d/2 + rand.N(d) //nolint:gosec // so that not all come at once
}

var (
	// A waiting migration that a node could claim if it ran one less.
	waitingMigrationQuery = db.SQL(`SELECT m.id FROM migration AS m WHERE m.lease IS NULL AND m.due_at IS NOT NULL AND m.due_at <= $1 AND m.account <> $2
		AND (SELECT COUNT(*) FROM migration AS o WHERE o.account = m.account AND o.lease IS NOT NULL) < $3
		AND EXISTS (SELECT 1 FROM account AS a WHERE a.id = m.account AND a.status = 'active')
		AND NOT EXISTS (SELECT 1 FROM domain AS d WHERE d.id = m.domain AND d.suspended_at > 0) LIMIT 1`)
	releaseQuery = db.SQL(`UPDATE migration SET lease = NULL, retries = $3, error = $4, due_at = $5, updated_at = $6
		WHERE id = $1 AND lease = $2 AND state = 'running'`)
	checkLeaseQuery = db.SQL(`SELECT (SELECT COUNT(*) FROM mailbox AS b WHERE b.id = m.mailbox AND b.deleted_at = 0),
			(SELECT COUNT(*) FROM account AS a WHERE a.id = m.account AND a.status = 'active'
				AND NOT EXISTS (SELECT 1 FROM domain AS d WHERE d.id = m.domain AND d.suspended_at > 0))
		FROM migration AS m WHERE m.id = $1 AND m.lease = $2 AND m.state = 'running'`)
)

// release gives up the lease. The migration is due again after the given time.
func (j *job) release(ctx context.Context, retries int, words string, after time.Duration) error {
	now := j.options.Now()
	return j.options.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, releaseQuery.With(j.ID, j.leaseID, retries, words, db.Micros(now.Add(after)), db.Micros(now)))
		tx.AfterCommit(func() { j.wake(0) })
		return err
	})
}

// checkLease returns why the work must end, or nil if it may continue or that is unknown.
func (j *job) checkLease(ctx context.Context) error {
	box, account := 1, 1
	err := j.options.DB.One(ctx, checkLeaseQuery.With(j.ID, j.leaseID), &box, &account)
	switch {
	case errors.Is(err, db.ErrNoRow) || !j.options.Node.OwnsLease(j.leaseID):
		return errLeaseLost
	case box == 0:
		return errMailboxDeleted
	case account == 0:
		return errSuspended
	}
	return nil
}

// watch stops the work once the migration is cancelled, its mailbox is deleted, its account or
// domain is suspended, or the lease may have expired. It also notifies followers of progress.
func (j *job) watch(ctx context.Context) {
	sub := j.options.Hub.Subscribe(notify.Key{Kind: notify.Migration, ID: int64(j.ID)})
	defer sub.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	turns := time.NewTicker(j.options.MaxRetryDelay) // a turn is as long as the longest retry delay
	defer turns.Stop()
	gained, nothing := int64(0), 0
	for {
		if err := j.checkLease(ctx); err != nil {
			j.stop(err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-sub.C:
		case <-tick.C:
			if j.changed.Swap(false) {
				j.wake(j.ID)
			}
		case <-turns.C:
			if n := j.commits.Load(); n > gained {
				gained, nothing = n, 0
			}
			if j.preempted.Store(j.hasWaiters(ctx)); !j.preempted.Load() {
				nothing = 0
			} else if nothing++; nothing > maxIdleTurns {
				j.stop(errPreempted)
			}
		}
	}
}

// hasWaiters reports whether a migration of another account waits for a slot on this node. A
// migration that takes days, or whose source never ends, must not block the others.
func (j *job) hasWaiters(ctx context.Context) bool {
	j.Service.mu.Lock()
	full := len(j.jobs) >= j.options.Concurrency
	j.Service.mu.Unlock()
	return full && j.options.DB.One(ctx, waitingMigrationQuery.With(db.Micros(j.options.Now()), j.Account, maxPerAccount), new(db.ID)) == nil
}

// recordProgress records a commit that made progress.
func (j *job) recordProgress() {
	j.commits.Add(1)
	j.changed.Store(true)
	if j.preempted.Load() {
		j.stop(errPreempted)
	}
}

// work does the remaining work.
func (j *job) work(ctx context.Context) error {
	if j.passwordUnreadable {
		return permanentError{"The password was stored under another secret key of the service. Start the migration again."}
	}
	src, err := j.connect(ctx, &j.Source)
	if err != nil {
		return err
	}
	if !j.planned {
		if err := j.plan(ctx, src); err != nil {
			src.close()
			return err
		}
	}
	if j.tasks, err = j.readTasks(ctx); err != nil {
		src.close()
		return internalError{err}
	}
	// A try can fail after this many folders. The next try begins after them, or the others might
	// never get a turn.
	if len(j.tasks) > 0 {
		n := j.Retries * j.options.Connections * (maxReconnects + 1) % len(j.tasks)
		j.tasks = slices.Concat(j.tasks[n:], j.tasks[:n])
	}
	var working sync.WaitGroup
	for i := range min(j.options.Connections, max(1, len(j.tasks))) {
		first := src
		if i > 0 {
			first = nil
		}
		working.Go(func() { j.runWorker(ctx, first) })
	}
	working.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(j.tasks) > 0 {
		return j.lastErr
	}
	return nil
}

// nextTask returns a folder to copy; nil if there is none.
func (j *job) nextTask() *folderTask {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.tasks) == 0 {
		return nil
	}
	t := j.tasks[0]
	j.tasks = j.tasks[1:]
	return t
}

// requeue puts a folder back after an error, behind the others: they must get their turn.
func (j *job) requeue(t *folderTask, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tasks, j.lastErr = append(j.tasks, t), err
}

// runWorker copies folders one by one over a connection. src may be nil. After an error it retries
// a few times.
func (j *job) runWorker(ctx context.Context, src *session) {
	defer func() {
		if src != nil {
			src.logout()
		}
	}()
	for tries := 0; ctx.Err() == nil; {
		t := j.nextTask()
		if t == nil {
			return
		}
		before := j.commits.Load()
		var err error
		if src == nil {
			src, err = j.connect(ctx, &j.Source)
			err = asTemporary(err)
		}
		if err == nil {
			if err = j.copyFolder(ctx, src, t); err == nil {
				tries = 0
				continue
			}
			if _, no := refusal(err); !no { // else the connection can still be used
				src.close()
				src = nil
			}
		}
		if j.commits.Load() > before || t.narrowed && !t.validityChanged {
			tries, t.narrowed = 0, false
		}
		j.requeue(t, err)
		var last permanentError
		var own internalError
		if errors.As(err, &last) || errors.Is(err, errLeaseLost) || errors.As(err, &own) {
			j.stop(err)
			return
		}
		if tries++; tries > maxReconnects {
			return
		}
		_ = notify.Sleep(ctx, j.retryDelay(tries))
	}
}

// asTemporary turns an error that would end a migration into an error of one connection: an earlier
// connection succeeded.
func asTemporary(err error) error {
	if last, ok := errors.AsType[permanentError](err); ok {
		return errors.New(last.text)
	}
	return err
}

// wrapInternal marks an error of this service. A full mailbox ends the migration.
func wrapInternal(err error) error {
	switch {
	case err == nil, errors.Is(err, errLeaseLost):
		return err
	case fault.Is(err, fault.OverQuota):
		return permanentError{"The mailbox is full. Once it has room, a new migration from the same source goes on where this one stopped."}
	}
	return internalError{err}
}
