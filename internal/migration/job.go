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
	// maxRetries is how many tries in a row may bring nothing.
	maxRetries = 20
	// maxProtocolRetries is the same for sources whose answers can't be understood.
	maxProtocolRetries = 2
	// maxReconnects is how often in a row one of several connections is made
	// anew, before it is left to the others.
	maxReconnects = 3
	// maxIdleTurns is for how many turns one whose turn is over may bring nothing.
	maxIdleTurns = 6
	// finishTimeout bounds the last write of a job.
	finishTimeout = 5 * time.Second
)

// errLeaseLost says that the migration was cancelled, or is in another node's hand.
var errLeaseLost = errors.New("the migration is not in this node's hand any more")

// errPreempted says that a migration had its turn, and others wait.
var errPreempted = errors.New("others have their turn")

// errMailboxDeleted says that the mailbox was.
var errMailboxDeleted = errors.New("the mailbox was deleted")

// errSuspended says that the account or the domain is: what waits goes on once it no
// longer is.
var errSuspended = errors.New("the account or the domain is suspended")

// internalError marks trouble of the service's own.
type internalError struct{ error }

func (o internalError) Unwrap() error { return o.error }

// job is the work for a migration while this node has it in hand.
type job struct {
	*Service
	Migration
	leaseID            db.ID
	planned            bool
	passwordUnreadable bool // the password can't be opened
	stop               context.CancelCauseFunc

	changed   atomic.Bool  // since its followers were told
	commits   atomic.Int64 // commits that brought it on
	preempted atomic.Bool  // its turn: the next commit is the last

	mu      sync.Mutex
	tasks   []*task // folders that nobody works at
	lastErr error   // the last trouble of a connection
}

// run works until the migration has ended, has to wait, or ctx ends.
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
	if err != nil && !errors.Is(err, errLeaseLost) { // reconcile releases it
		j.options.Log.Error("writing how a migration ended failed", "migration", j.ID, "error", err)
	}
	j.wake(j.ID)
}

// conclude writes what became of the work.
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
	var own internalError
	if errors.As(err, &own) {
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

// retryDelay is how long to wait before try n, from 1.
func (m *Service) retryDelay(n int) time.Duration {
	d := m.options.MinRetryDelay << min(n-1, 20)
	if d > m.options.MaxRetryDelay || d <= 0 {
		d = m.options.MaxRetryDelay
	}
	return d/2 + rand.N(d) //nolint:gosec // so that not all come at once
}

var (
	// One that waits, and that a node could take if it had one less in hand.
	waitingMigrationQuery = db.SQL(`SELECT m.id FROM migration AS m WHERE m.tenure IS NULL AND m.due_at IS NOT NULL AND m.due_at <= $1 AND m.account <> $2
		AND (SELECT COUNT(*) FROM migration AS o WHERE o.account = m.account AND o.tenure IS NOT NULL) < $3
		AND EXISTS (SELECT 1 FROM account AS a WHERE a.id = m.account AND a.status = 'active')
		AND NOT EXISTS (SELECT 1 FROM domain AS d WHERE d.id = m.domain AND d.suspended_at > 0) LIMIT 1`)
	releaseQuery = db.SQL(`UPDATE migration SET tenure = NULL, retries = $3, trouble = $4, due_at = $5, updated_at = $6
		WHERE id = $1 AND tenure = $2 AND state = 'running'`)
	checkLeaseQuery = db.SQL(`SELECT (SELECT COUNT(*) FROM mailbox AS b WHERE b.id = m.mailbox AND b.deleted_at = 0),
			(SELECT COUNT(*) FROM account AS a WHERE a.id = m.account AND a.status = 'active'
				AND NOT EXISTS (SELECT 1 FROM domain AS d WHERE d.id = m.domain AND d.suspended_at > 0))
		FROM migration AS m WHERE m.id = $1 AND m.tenure = $2 AND m.state = 'running'`)
)

// release gives the migration back, to be taken again after a while.
func (j *job) release(ctx context.Context, retries int, words string, after time.Duration) error {
	now := j.options.Now()
	return j.options.DB.Tx(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, releaseQuery.With(j.ID, j.leaseID, retries, words, db.Micros(now.Add(after)), db.Micros(now)))
		tx.AfterCommit(func() { j.wake(0) })
		return err
	})
}

// checkLease says why the work is to end; nil for not, or if that is not known.
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

// watch ends the work once the migration is cancelled, its mailbox deleted or its
// account or domain suspended, or the tenure may have ended, and tells followers of progress.
func (j *job) watch(ctx context.Context) {
	sub := j.options.Hub.Subscribe(notify.Key{Kind: notify.Migration, ID: int64(j.ID)})
	defer sub.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	turns := time.NewTicker(j.options.MaxRetryDelay) // a turn is as long as one waits for a source
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

// hasWaiters reports whether a migration of another account waits for a place in this
// node's hands. One that takes days, or whose source sees to it that it never ends,
// must not keep the others waiting.
func (j *job) hasWaiters(ctx context.Context) bool {
	j.Service.mu.Lock()
	full := len(j.jobs) >= j.options.Concurrency
	j.Service.mu.Unlock()
	return full && j.options.DB.One(ctx, waitingMigrationQuery.With(db.Micros(j.options.Now()), j.Account, maxPerAccount), new(db.ID)) == nil
}

// recordProgress notes that a commit brought it on.
func (j *job) recordProgress() {
	j.commits.Add(1)
	j.changed.Store(true)
	if j.preempted.Load() {
		j.stop(errPreempted)
	}
}

// work does what is left to do.
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
	// So many folders can end a try. The next one begins behind them, or the others
	// might never have their turn.
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

// nextTaskQuery takes a folder to work at; nil if there is none.
func (j *job) nextTask() *task {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.tasks) == 0 {
		return nil
	}
	t := j.tasks[0]
	j.tasks = j.tasks[1:]
	return t
}

// requeue gives a folder back that is not done, because of an error. It waits
// behind the others: whatever is wrong with it, they must have their turn.
func (j *job) requeue(t *task, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tasks, j.lastErr = append(j.tasks, t), err
}

// runWorker copies folder after folder over one connection at a time. src may be
// nil. After trouble it tries again a few times.
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
			if _, no := refusal(err); !no { // else the connection is as good as before
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

// asTemporary makes of what would end a migration an error of one connection:
// there was another before.
func asTemporary(err error) error {
	var last permanentError
	if errors.As(err, &last) {
		return errors.New(last.text)
	}
	return err
}

// wrapInternal marks an error of the service's own, and makes of a mailbox without room
// the end of the migration.
func wrapInternal(err error) error {
	switch {
	case err == nil, errors.Is(err, errLeaseLost):
		return err
	case fault.Is(err, fault.OverQuota):
		return permanentError{"The mailbox is full. Once it has room, a new migration from the same source goes on where this one stopped."}
	}
	return internalError{err}
}
