// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Migration is a mailbox that is being copied from another server, or was.
type Migration struct {
	ID         string            `json:"id"`
	MailboxID  string            `json:"mailbox_id"`
	Source     MigrationSource   `json:"source"`
	Status     string            `json:"status"`   // queued, running, completed, failed or cancelled
	Error      string            `json:"error"`    // why it failed, or waits, in words
	Retries    int               `json:"retries"`  // tries in a row that brought nothing
	RetryAt    *time.Time        `json:"retry_at"` // while it waits to try again
	Progress   MigrationProgress `json:"progress"`
	CreatedAt  time.Time         `json:"created_at"`
	StartedAt  *time.Time        `json:"started_at"`
	FinishedAt *time.Time        `json:"finished_at"`
	UpdatedAt  time.Time         `json:"updated_at"`
}

// Ended reports whether nothing more will happen.
func (m *Migration) Ended() bool { return m.Status != "queued" && m.Status != "running" }

// MigrationSource is where a mailbox is copied from.
type MigrationSource struct {
	Host               string   `json:"host"`
	Port               int      `json:"port"`
	TLS                string   `json:"tls"` // implicit, starttls or none
	Username           string   `json:"username"`
	InsecureSkipVerify bool     `json:"insecure_skip_verify"`
	Folders            []string `json:"folders"` // the only ones to copy; empty for all
}

// MigrationProgress is how far a migration is.
type MigrationProgress struct {
	Folders           int64   `json:"folders"` // 0 until it is known
	FoldersDone       int64   `json:"folders_done"`
	Messages          int64   `json:"messages"`
	MessagesDone      int64   `json:"messages_done"` // that were looked at
	Copied            int64   `json:"copied"`
	Skipped           int64   `json:"skipped"` // there already
	Failed            int64   `json:"failed"`
	Bytes             int64   `json:"bytes"`
	BytesCopied       int64   `json:"bytes_copied"`
	MessagesPerSecond float64 `json:"messages_per_second"` // 0 while it does not run
	BytesPerSecond    float64 `json:"bytes_per_second"`
	SecondsLeft       *int64  `json:"seconds_left"` // nil if it is not known
}

// MigrationDetailResponse is a migration with all that is known of it.
type MigrationDetail struct {
	Migration
	Folders  []MigrationFolder  `json:"folders"`
	Failures []MigrationFailure `json:"failures"` // the first 100
	Notes    []MigrationNote    `json:"notes"`    // the first 100
}

// MigrationFolder is how far a folder of the source is.
type MigrationFolder struct {
	Name         string `json:"name"`   // there
	Target       string `json:"target"` // here
	Status       string `json:"status"` // waiting, done or failed
	Error        string `json:"error"`  // why it failed
	Messages     int64  `json:"messages"`
	MessagesDone int64  `json:"messages_done"`
	Copied       int64  `json:"copied"`
	Skipped      int64  `json:"skipped"`
	Failed       int64  `json:"failed"`
}

// MigrationFailure is something that could not be copied.
type MigrationFailure struct {
	Folder string `json:"folder"` // there
	UID    uint32 `json:"uid"`    // there; 0 for the folder as a whole
	Reason string `json:"reason"`
}

// MigrationNote tells how messages were copied otherwise than they were there.
type MigrationNote struct {
	Folder   string `json:"folder"`   // there
	UID      uint32 `json:"uid"`      // of the first of them, there
	Messages int64  `json:"messages"` // how many they are
	Note     string `json:"note"`
}

// NewMigration is a mailbox to be copied.
type NewMigration struct {
	MailboxID string             `json:"mailbox_id"`
	Source    NewMigrationSource `json:"source"`
}

// NewMigrationSource says where from, and how to sign in there.
type NewMigrationSource struct {
	Host               string   `json:"host"`
	Port               int      `json:"port,omitempty"` // 0: 993, or 143 unless TLS is implicit
	TLS                string   `json:"tls,omitempty"`  // implicit (also ""), starttls or none
	Username           string   `json:"username"`
	Password           string   `json:"password"`
	InsecureSkipVerify bool     `json:"insecure_skip_verify,omitempty"` // accept any certificate
	Folders            []string `json:"folders,omitempty"`              // the only ones to copy
}

// CreateMigration has a mailbox copied from another server. It returns before
// that has begun.
func (c *Client) CreateMigration(ctx context.Context, m NewMigration) (*Migration, error) {
	return post[Migration](ctx, c, "/migrations", "", m, false)
}

// MigrationSourceTestResponse is what a source has.
type MigrationSourceTest struct {
	Folders []MigrationSourceFolder `json:"folders"` // INBOX first, at most 1,000
}

// MigrationSourceFolder is a folder that a source has.
type MigrationSourceFolder struct {
	Name     string `json:"name"` // there
	Messages int64  `json:"messages"`
	Bytes    *int64 `json:"bytes"`  // nil if the source does not tell
	Copied   bool   `json:"copied"` // when no folders are named
}

// TestMigrationSource connects to a source, signs in and lists its folders.
// Nothing is copied or kept.
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

// Migrations walks through all migrations, newest first. After an error it ends.
func (c *Client) Migrations(ctx context.Context) iter.Seq2[Migration, error] {
	return walk(func(p Paging) (*Page[Migration], error) { return c.ListMigrations(ctx, p) })
}

// GetMigration shows a migration with its folders, failures and notes.
func (c *Client) GetMigration(ctx context.Context, id string) (*MigrationDetail, error) {
	return do[MigrationDetail](ctx, c, call{method: http.MethodGet, path: "/migrations/{id}", id: id})
}

// CancelMigration ends a migration, unless it has ended. What was copied stays.
func (c *Client) CancelMigration(ctx context.Context, id string) (*Migration, error) {
	return post[Migration](ctx, c, "/migrations/{id}/cancel", id, nil, true)
}

// FollowMigration tells how far a migration is, once a second while it changes,
// until it has ended; that is told last. A connection that breaks is made
// again.
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
