// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Migration is the copy of a mailbox from another server, unfinished or finished.
type Migration struct {
	ID         string            `json:"id"`
	MailboxID  string            `json:"mailbox_id"`
	Source     MigrationSource   `json:"source"`
	Status     string            `json:"status"`   // queued, running, completed, failed or cancelled
	Detail     string            `json:"detail"`   // why it failed or waits, for people
	Retries    int               `json:"retries"`  // consecutive tries without progress
	RetryAt    *time.Time        `json:"retry_at"` // next try, while it waits
	Progress   MigrationProgress `json:"progress"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  *time.Time        `json:"started_at"`
	FinishedAt *time.Time        `json:"finished_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
}

// Ended reports whether the migration has finished.
func (m *Migration) Ended() bool { return m.Status != "queued" && m.Status != "running" }

// MigrationSource is the mailbox to copy from.
type MigrationSource struct {
	Host               string   `json:"host"`
	Port               int      `json:"port"`
	TLS                string   `json:"tls"` // implicit, starttls or none
	Username           string   `json:"username"`
	InsecureSkipVerify bool     `json:"insecure_skip_verify"`
	Folders            []string `json:"folders"` // only these; empty: all
}

// MigrationProgress is the progress of a migration.
type MigrationProgress struct {
	Folders           int64   `json:"folders"` // 0 until known
	FoldersDone       int64   `json:"folders_done"`
	Messages          int64   `json:"messages"`
	MessagesDone      int64   `json:"messages_done"` // messages examined
	Copied            int64   `json:"copied"`
	Skipped           int64   `json:"skipped"` // copied by an earlier migration
	Failed            int64   `json:"failed"`
	Bytes             int64   `json:"bytes"`
	BytesCopied       int64   `json:"bytes_copied"`
	MessagesPerSecond float64 `json:"messages_per_second"` // 0 while it doesn't run
	BytesPerSecond    float64 `json:"bytes_per_second"`
	SecondsLeft       *int64  `json:"seconds_left"` // nil: unknown
}

// MigrationDetail is a migration with all its details.
type MigrationDetail struct {
	Migration
	Folders  []MigrationFolder  `json:"folders"`
	Failures []MigrationFailure `json:"failures"` // the first 100
	Notes    []MigrationNote    `json:"notes"`    // the first 100
}

// MigrationFolder is the progress of a source folder.
type MigrationFolder struct {
	Name         string `json:"name"`   // at the source
	Target       string `json:"target"` // local name
	Status       string `json:"status"` // waiting, done or failed
	Detail       string `json:"detail"` // why it failed
	Messages     int64  `json:"messages"`
	MessagesDone int64  `json:"messages_done"`
	Copied       int64  `json:"copied"`
	Skipped      int64  `json:"skipped"`
	Failed       int64  `json:"failed"`
}

// MigrationFailure is a message or folder that could not be copied.
type MigrationFailure struct {
	Folder string `json:"folder"` // at the source
	UID    uint32 `json:"uid"`    // at the source; 0 for the whole folder
	Detail string `json:"detail"`
}

// MigrationNote says how messages were changed when they were copied.
type MigrationNote struct {
	Folder   string `json:"folder"`   // at the source
	UID      uint32 `json:"uid"`      // first of the messages, at the source
	Messages int64  `json:"messages"` // number of messages
	Detail   string `json:"detail"`
}

// NewMigration is a migration to create.
type NewMigration struct {
	MailboxID string             `json:"mailbox_id"`
	Source    NewMigrationSource `json:"source"`
}

// NewMigrationSource is a source with its credentials.
type NewMigrationSource struct {
	Host               string   `json:"host"`
	Port               int      `json:"port,omitempty"` // 0: 993, or 143 unless TLS is implicit
	TLS                string   `json:"tls,omitempty"`  // implicit (also ""), starttls or none
	Username           string   `json:"username"`
	Password           string   `json:"password"`
	InsecureSkipVerify bool     `json:"insecure_skip_verify,omitempty"` // accept any certificate
	Folders            []string `json:"folders,omitempty"`              // only these
}

// CreateMigration starts copying a mailbox from another server. It returns before the copy begins.
func (c *Client) CreateMigration(ctx context.Context, m NewMigration) (*Migration, error) {
	return post[Migration](ctx, c, "/migrations", "", m, false)
}

// MigrationSourceTest is the result of testing a source.
type MigrationSourceTest struct {
	Folders []MigrationSourceFolder `json:"folders"` // INBOX first, at most 1,000
}

// MigrationSourceFolder is a folder at a source.
type MigrationSourceFolder struct {
	Name     string `json:"name"` // at the source
	Messages int64  `json:"messages"`
	Bytes    *int64 `json:"bytes"`  // nil: the source doesn't say
	Copied   bool   `json:"copied"` // when no folders are chosen
}

// TestMigrationSource connects to a source, signs in and lists its folders. It copies and stores
// nothing.
func (c *Client) TestMigrationSource(ctx context.Context, s NewMigrationSource) (*MigrationSourceTest, error) {
	body := struct {
		Source NewMigrationSource `json:"source"`
	}{s}
	return post[MigrationSourceTest](ctx, c, "/migrations/test", "", body, true)
}

// ListMigrations returns a page of migrations, newest first.
func (c *Client) ListMigrations(ctx context.Context, p Paging) (*Page[Migration], error) {
	return list[Migration](ctx, c, "/migrations", nil, p)
}

// Migrations iterates over all migrations, newest first. It stops after an error.
func (c *Client) Migrations(ctx context.Context) iter.Seq2[Migration, error] {
	return walk(func(p Paging) (*Page[Migration], error) { return c.ListMigrations(ctx, p) })
}

// GetMigration returns a migration with its folders, failures and notes.
func (c *Client) GetMigration(ctx context.Context, id string) (*MigrationDetail, error) {
	return do[MigrationDetail](ctx, c, call{method: http.MethodGet, path: "/migrations/{id}", id: id})
}

// CancelMigration ends a migration, unless it has finished. Copied messages stay.
func (c *Client) CancelMigration(ctx context.Context, id string) (*Migration, error) {
	return post[Migration](ctx, c, "/migrations/{id}/cancel", id, nil, true)
}

// FollowMigration yields a migration's state, once a second while it changes, until it has
// finished; the final state comes last. It reconnects after a broken connection.
func (c *Client) FollowMigration(ctx context.Context, id string) iter.Seq2[Migration, error] {
	return func(yield func(Migration, error) bool) {
		s := &stream{client: c, call: call{method: http.MethodGet, path: "/migrations/{id}/events", id: id}}
		err := s.follow(ctx, func(data []byte) (bool, error) {
			var m Migration
			if err := decode(data, &m); err != nil {
				return false, err
			}
			return yield(m, nil) && !m.Ended(), nil
		})
		if err != nil {
			yield(Migration{}, err)
		}
	}
}
