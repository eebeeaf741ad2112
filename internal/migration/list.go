// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// migrationColumns are the columns that a migration is scanned from.
const migrationColumns = `id, account, domain, mailbox, host, port, tls, username, insecure, selected_folders, state, error, COALESCE(lease, 0), COALESCE(due_at, 0), retries,
			folders, folders_done, messages, messages_done, copied, skipped, failed, bytes, bytes_copied, run_at, run_messages, run_bytes,
			created_at, started_at, finished_at, updated_at`

var (
	getQuery = db.SQL(`SELECT ` + migrationColumns + `
		FROM migration WHERE id = $1`)
	listQuery = db.PagedSQL(`SELECT ` + migrationColumns + `
		FROM migration WHERE {page account = $1}`)
	listByDomainQuery = db.PagedSQL(`SELECT ` + migrationColumns + `
		FROM migration WHERE {page account = $1, domain = $4}`)
	listFoldersQuery  = db.SQL(`SELECT name, target, state, error, messages, done, copied, skipped, failed FROM migration_folder WHERE migration = $1 ORDER BY n`)
	listFailuresQuery = db.SQL(`SELECT folder, uid, error FROM migration_failure WHERE migration = $1 ORDER BY n LIMIT $2`)
	listNotesQuery    = db.SQL(`SELECT folder, uid, messages, note FROM migration_note WHERE migration = $1 ORDER BY folder, uid, k LIMIT $2`)
)

// rowScanner returns a scan function for the queries above, with the current time.
func (m *Service) rowScanner() func(db.Row) (Migration, error) {
	now := m.options.Now()
	return func(r db.Row) (g Migration, err error) {
		var lease db.ID
		var runAt time.Time
		var runMessages, runBytes int64
		var chosen string
		p := &g.Progress
		err = r.Scan(&g.ID, &g.Account, &g.Domain, &g.Mailbox, &g.Source.Host, &g.Source.Port, &g.Source.TLS, &g.Source.Username, &g.Source.Insecure, &chosen,
			&g.State, &g.Error, &lease, db.TimeScanner(&g.RetryAt), &g.Retries,
			&p.Folders, &p.FoldersDone, &p.Messages, &p.MessagesDone, &p.Copied, &p.Skipped, &p.Failed, &p.Bytes, &p.BytesCopied,
			db.TimeScanner(&runAt), &runMessages, &runBytes, db.TimeScanner(&g.CreatedAt), db.TimeScanner(&g.StartedAt), db.TimeScanner(&g.FinishedAt), db.TimeScanner(&g.UpdatedAt))
		if err != nil {
			return g, err
		}
		if lease != 0 || g.Retries == 0 || g.Finished() {
			g.RetryAt = time.Time{}
		}
		if lease != 0 && g.State == Running {
			p.setRates(now.Sub(runAt), p.MessagesDone-runMessages, p.BytesCopied-runBytes)
		}
		if chosen != "" {
			if err := json.Unmarshal([]byte(chosen), &g.Source.Folders); err != nil {
				return g, fmt.Errorf("reading a migration: %w", err)
			}
		}
		return g, nil
	}
}

// setRates derives the rates from the amounts copied in d.
func (p *Progress) setRates(d time.Duration, messages, bytes int64) {
	if d < time.Second || messages <= 0 {
		return
	}
	p.MessagesPerSecond, p.BytesPerSecond = float64(messages)/d.Seconds(), float64(bytes)/d.Seconds()
	if left := p.Messages - p.MessagesDone; left > 0 {
		p.Remaining = time.Duration(float64(left) / p.MessagesPerSecond * float64(time.Second)).Round(time.Second)
	}
}

// Get returns a migration of an account, or fault.NotFound.
func (m *Service) Get(ctx context.Context, account, id db.ID) (Migration, error) {
	g, err := m.read(ctx, m.options.DB, id)
	if err != nil || g.Account != account {
		return Migration{}, cmp.Or(err, notFound())
	}
	return g, nil
}

func (m *Service) read(ctx context.Context, r db.Reader, id db.ID) (Migration, error) {
	return db.Find(ctx, r, getQuery.With(id), notFound(), m.rowScanner())
}

// List returns a page of an account's migrations, newest first. With a domain, it returns only
// migrations to that domain's mailboxes.
func (m *Service) List(ctx context.Context, account, domain db.ID, page db.Page) ([]Migration, bool, error) {
	if domain != 0 {
		return db.ReadPage(ctx, m.options.DB, listByDomainQuery, page, m.rowScanner(), account, domain)
	}
	return db.ReadPage(ctx, m.options.DB, listQuery, page, m.rowScanner(), account)
}

// Folders returns the folders of a migration. There are none until they are known.
func (m *Service) Folders(ctx context.Context, id db.ID) ([]Folder, error) {
	return db.All(ctx, m.options.DB, listFoldersQuery.With(id), func(r db.Row) (f Folder, err error) {
		return f, r.Scan(&f.Name, &f.Target, &f.State, &f.Error, &f.Messages, &f.Done, &f.Copied, &f.Skipped, &f.Failed)
	})
}

// Failures returns what a migration could not copy, oldest first: at most limit of the MaxFailures
// stored.
func (m *Service) Failures(ctx context.Context, id db.ID, limit int) ([]Failure, error) {
	return db.All(ctx, m.options.DB, listFailuresQuery.With(id, limit), func(r db.Row) (f Failure, err error) {
		return f, r.Scan(&f.Folder, &f.UID, &f.Reason)
	})
}

// Notes returns how copied messages differ from the source, by folder: at most limit of the
// MaxFailures stored.
func (m *Service) Notes(ctx context.Context, id db.ID, limit int) ([]Note, error) {
	return db.All(ctx, m.options.DB, listNotesQuery.With(id, limit), func(r db.Row) (n Note, err error) {
		return n, r.Scan(&n.Folder, &n.UID, &n.Messages, &n.Text)
	})
}

// CompleteEvent is the data of a migration_complete event.
type CompleteEvent struct {
	ID         db.ID     `json:"id" doc:"The migration's id."`
	Mailbox    db.ID     `json:"mailbox_id" doc:"The mailbox that the mail was copied to."`
	Domain     db.ID     `json:"domain_id" doc:"Its domain's id."`
	Status     string    `json:"status" enum:"completed,failed,cancelled" doc:"How it ended."`
	Folders    int64     `json:"folders" doc:"How many folders were read." example:"12"`
	Copied     int64     `json:"copied" doc:"How many messages were copied." example:"48210"`
	Skipped    int64     `json:"skipped" doc:"How many were there already." example:"3"`
	Failed     int64     `json:"failed" doc:"How many could not be copied; GET /migrations/{id} says why." example:"0"`
	Bytes      int64     `json:"bytes" doc:"How much was copied, in bytes." example:"1073741824"`
	FinishedAt time.Time `json:"finished_at" doc:"When it ended."`
}

var (
	cancelQuery = db.SQL(`UPDATE migration SET state = 'cancelled', error = '', lease = NULL, due_at = NULL, password = NULL, finished_at = $3, updated_at = $3
		WHERE id = $1 AND account = $2 AND state IN ('queued', 'running')`)
	finishQuery = db.SQL(`UPDATE migration SET state = $3, error = $4, lease = NULL, due_at = NULL, password = NULL, finished_at = $5, updated_at = $5
		WHERE id = $1 AND lease = $2 AND state = 'running'`)
)

// Cancel ends a migration; copied messages stay. A finished migration doesn't change. If the
// account has no such migration, it returns a fault.NotFound.
func (m *Service) Cancel(ctx context.Context, account, id db.ID) (Migration, error) {
	_, err := m.finish(ctx, id, cancelQuery.With(id, account, db.Micros(m.options.Now())))
	if err != nil && !errors.Is(err, errLeaseLost) {
		return Migration{}, err
	}
	return m.Get(ctx, account, id)
}

// finish ends a migration and records the event in the same commit. It returns errLeaseLost if the
// statement changes nothing.
func (m *Service) finish(ctx context.Context, id db.ID, s db.Statement) (g Migration, err error) {
	err = m.options.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, s, errLeaseLost); err != nil {
			return err
		}
		if g, err = m.read(ctx, tx, id); err != nil {
			return err
		}
		tx.AfterCommit(func() {
			m.wake(id)
			m.wake(0)
		})
		p := g.Progress
		return m.options.Events.Record(ctx, tx, event.RecordParams{
			Account: g.Account, Kind: event.MigrationComplete, Domain: g.Domain, Mailbox: g.Mailbox, Status: g.State,
			Data: CompleteEvent{
				ID: g.ID, Mailbox: g.Mailbox, Domain: g.Domain, Status: g.State, Folders: p.FoldersDone,
				Copied: p.Copied, Skipped: p.Skipped, Failed: p.Failed, Bytes: p.BytesCopied, FinishedAt: g.FinishedAt.UTC(),
			},
		})
	})
	return g, err
}
