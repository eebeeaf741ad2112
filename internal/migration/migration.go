// SPDX-License-Identifier: Apache-2.0

// Package migration copies mailboxes from other IMAP servers: folders, messages, flags and dates.
// It changes nothing at the source.
//
// The commit that files a message also records it by source folder, UIDVALIDITY and UID. So a
// crash, a broken connection or a second run causes neither duplicates nor gaps. One node at a time
// holds a migration's lease. Each write depends on that lease and on the migration's state, so a
// cancellation takes effect at once.
package migration

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/egress"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// States of a migration.
const (
	Queued    = "queued"
	Running   = "running" // also while it waits to retry
	Completed = "completed"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// Values of Source.TLS: how to protect the connection.
const (
	ImplicitTLS = "implicit" // TLS from the start
	StartTLS    = "starttls" // TLS after STARTTLS, which is required
	NoTLS       = "none"
)

// MaxMessageSize is the size limit for copied messages, in bytes. IMAP APPEND has the same limit.
const MaxMessageSize = 50 << 20

// MaxFailures is the maximum number of failures stored per migration. Notes have the same limit.
const MaxFailures = 1000

// maxUnfinished is the maximum number of unfinished migrations per account. Only a few run at once.
const maxUnfinished = 200

const sealPurpose = "migration password"

// Options configures a Service.
type Options struct {
	DB      *db.DB
	Node    *lease.Node
	Hub     *notify.Hub // receives notify.Migration
	Events  *event.Log
	Blobs   *blob.Store
	Folders *folder.Folders
	Key     *secret.Key // encrypts passwords
	Dialer  *egress.Dialer
	Roots   *x509.CertPool // trusted CAs for sources; nil: the system's
	Now     func() time.Time
	Log     *slog.Logger

	Concurrency   int           // migrations at once; 0: 4
	Connections   int           // per source; 0: 3
	IdleTimeout   time.Duration // maximum silence of a source; 0: 2 min
	MinRetryDelay time.Duration // before the first retry, then doubled; 0: 5 s
	MaxRetryDelay time.Duration // 0: 120 times MinRetryDelay
}

// Service stores and runs migrations. It is safe for concurrent use.
type Service struct {
	options      Options
	workers      sync.WaitGroup
	lastTakeOver time.Time // last check for expired leases

	mu      sync.Mutex
	jobs    map[db.ID]*job // running on this node
	probing map[db.ID]bool // accounts that are probing a source
}

// New returns a Service. Migrations wait until Run is called.
func New(o Options) *Service {
	o.Concurrency = cmp.Or(o.Concurrency, 4)
	o.Connections = cmp.Or(o.Connections, 3)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 2*time.Minute)
	o.MinRetryDelay = cmp.Or(o.MinRetryDelay, 5*time.Second)
	o.MaxRetryDelay = cmp.Or(o.MaxRetryDelay, 120*o.MinRetryDelay)
	return &Service{options: o, jobs: map[db.ID]*job{}, probing: map[db.ID]bool{}}
}

// Migration is the copy of a mailbox, unfinished or finished.
type Migration struct {
	ID       db.ID
	Account  db.ID
	Domain   db.ID // of the mailbox
	Mailbox  db.ID
	Source   Source // without the password
	State    string
	Error    string    // why it failed or waits; "" for none
	Retries  int       // consecutive tries without progress
	RetryAt  time.Time // next try; zero if it doesn't wait
	Progress Progress

	CreatedAt  time.Time
	StartedAt  time.Time // zero: not started
	FinishedAt time.Time // zero: not finished
	UpdatedAt  time.Time
}

// Finished reports whether the migration has ended.
func (m *Migration) Finished() bool { return m.State != Queued && m.State != Running }

// Source is the mailbox to copy from.
type Source struct {
	Host     string
	Port     int
	TLS      string // ImplicitTLS, StartTLS or NoTLS
	Username string
	Password string
	// Insecure reports whether any certificate is accepted.
	Insecure bool
	// Folders are the only folders to copy, by their names at the source. If empty, all are copied
	// except other users' folders and views of other folders.
	Folders []string
}

// Progress is the progress of a migration.
type Progress struct {
	Folders, FoldersDone   int64
	Messages, MessagesDone int64 // done: examined
	Copied                 int64
	Skipped                int64 // copied by an earlier migration
	Failed                 int64
	Bytes, BytesCopied     int64
	// Rates since a node last claimed it; 0 while it doesn't run.
	MessagesPerSecond, BytesPerSecond float64
	Remaining                         time.Duration // at the current rate; 0 if unknown
}

// Folder is the progress of a source folder.
type Folder struct {
	Name   string // at the source
	Target string // local name
	State  string // waiting, done or failed
	Error  string // why it failed

	Messages, Done, Copied, Skipped, Failed int64
}

// Failure is a message or folder that could not be copied.
type Failure struct {
	Folder string // at the source
	UID    uint32 // at the source; 0 for the whole folder
	Reason string
}

// Note says how messages of a folder were changed when they were copied.
type Note struct {
	Folder   string // at the source
	UID      uint32 // first of the messages, at the source
	Messages int64  // number of messages
	Text     string
}

// FolderWaiting is the state of an unfinished folder.
const FolderWaiting = "waiting"

// FolderDone is the state of a folder whose messages were all examined.
const FolderDone = "done"

// hash64 returns a stable hash of a list of strings.
func hash64(texts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// accountHash returns a hash of the host and the username.
func (s *Source) accountHash() int64 { return hash64(strings.ToLower(s.Host), s.Username) }

// folderHash returns a hash of the host, the username and a folder.
func (s *Source) folderHash(name string) int64 {
	return hash64(strings.ToLower(s.Host), s.Username, name)
}

func notFound() error {
	return fault.New(fault.NotFound, "not_found", "There is no migration with this id.")
}

var (
	deleteCopiedQuery     = db.SQL(`DELETE FROM migration_copied WHERE mailbox = $1`)
	deleteFoldersQuery    = db.SQL(`DELETE FROM migration_folder WHERE migration IN (SELECT id FROM migration WHERE mailbox = $1)`)
	deleteFailuresQuery   = db.SQL(`DELETE FROM migration_failure WHERE migration IN (SELECT id FROM migration WHERE mailbox = $1)`)
	deleteNotesQuery      = db.SQL(`DELETE FROM migration_note WHERE migration IN (SELECT id FROM migration WHERE mailbox = $1)`)
	deleteMigrationsQuery = db.SQL(`DELETE FROM migration WHERE mailbox = $1`)
)

// DeleteByMailbox deletes all records of a mailbox's migrations once the mailbox is deleted for
// good. It is safe to repeat after an error.
func (m *Service) DeleteByMailbox(ctx context.Context, mailbox db.ID) error {
	return m.options.DB.Run(ctx, deleteCopiedQuery.With(mailbox), deleteFoldersQuery.With(mailbox), deleteFailuresQuery.With(mailbox),
		deleteNotesQuery.With(mailbox), deleteMigrationsQuery.With(mailbox))
}

// wake notifies the followers of a migration and the node that runs it.
func (m *Service) wake(id db.ID) {
	m.options.Hub.Wake(notify.Key{Kind: notify.Migration, ID: int64(id)})
}
