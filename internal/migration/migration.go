// SPDX-License-Identifier: Apache-2.0

// Package migration copies mailboxes from other IMAP servers: folders,
// messages, flags and dates. Nothing is changed at the source.
//
// Each message is noted in the commit that files it, under the source's
// folder, UIDVALIDITY and UID. So a crash, a line that breaks or a second run
// makes neither a duplicate nor a gap. One node at a time has a migration in
// hand: everything that it writes is conditional on its tenure and on the
// migration's state, so that a cancellation holds at once.
package migration

import (
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
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

// States of a migration.
const (
	Queued    = "queued"
	Running   = "running" // also while it waits to try again
	Completed = "completed"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// How the connection to a source is protected.
const (
	ImplicitTLS = "implicit" // TLS from the start
	StartTLS    = "starttls" // TLS after STARTTLS, or no connection
	NoTLS       = "none"
)

// MaxMessageSize is the largest message that is copied, in bytes: as much as IMAP's
// APPEND takes here.
const MaxMessageSize = 50 << 20

// MaxFailures is how many failures of a migration are kept, and how many notes.
const MaxFailures = 1000

// maxUnfinished is how many migrations of an account may be unfinished; few of them
// are carried out at once.
const maxUnfinished = 200

const sealPurpose = "migration password"

// Options are what Service works with.
type Options struct {
	DB      *db.DB
	Node    *db.Node
	Hub     *notify.Hub // woken with notify.Migration
	Events  *event.Log
	Blobs   *blob.Store
	Folders *folder.Store
	Key     *secret.Key // seals passwords
	Dialer  *egress.Dialer
	Roots   *x509.CertPool // trusted in sources' certificates; nil for the system's
	Now     func() time.Time
	Log     *slog.Logger

	Concurrency   int           // migrations in hand at most; 0: 4
	Connections   int           // to one source at most; 0: 3
	IdleTimeout   time.Duration // how long a source may say nothing; 0: 2 min
	MinRetryDelay time.Duration // before a source is tried again; doubled each time; 0: 5 s
	MaxRetryDelay time.Duration // 0: 120 times that
}

// Service keeps migrations and carries them out. It is safe for concurrent
// use.
type Service struct {
	options      Options
	workers      sync.WaitGroup
	lastTakeOver time.Time // when ended tenures were last looked for

	mu      sync.Mutex
	jobs    map[db.ID]*job // in hand
	probing map[db.ID]bool // accounts that try a source just now
}

// New returns Service. Until Run is called, migrations wait.
func New(o Options) *Service {
	def := func(d *time.Duration, fallback time.Duration) {
		if *d <= 0 {
			*d = fallback
		}
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 4
	}
	if o.Connections <= 0 {
		o.Connections = 3
	}
	def(&o.IdleTimeout, 2*time.Minute)
	def(&o.MinRetryDelay, 5*time.Second)
	def(&o.MaxRetryDelay, 120*o.MinRetryDelay)
	return &Service{options: o, jobs: map[db.ID]*job{}, probing: map[db.ID]bool{}}
}

// Migration is a mailbox that is being copied, or was.
type Migration struct {
	ID       db.ID
	Account  db.ID
	Domain   db.ID // of the mailbox
	Mailbox  db.ID
	Source   Source // without its password
	State    string
	Error    string    // why it failed, or why it waits; "" for none
	Retries  int       // tries in a row without progress
	RetryAt  time.Time // while it waits to try again; zero while it does not
	Progress Progress

	CreatedAt  time.Time
	StartedAt  time.Time // zero: not yet
	FinishedAt time.Time // zero: not yet
	UpdatedAt  time.Time
}

// Finished reports whether nothing more will happen.
func (m *Migration) Finished() bool { return m.State != Queued && m.State != Running }

// Source is where a mailbox is copied from.
type Source struct {
	Host     string
	Port     int
	TLS      string // Implicit, StartTLS or NoTLS
	Username string
	Password string
	// Insecure accepts any certificate.
	Insecure bool
	// Folders are the only ones to copy, by their names there; empty for all
	// but those that show the mail of others.
	Folders []string
}

// Progress is how far a migration is.
type Progress struct {
	Folders, FoldersDone   int64
	Messages, MessagesDone int64 // done: looked at
	Copied                 int64
	Skipped                int64 // there already
	Failed                 int64
	Bytes, BytesCopied     int64
	// What it copies in a second, since it was last taken in hand; 0 while it
	// does not run.
	MessagesPerSecond, BytesPerSecond float64
	Remaining                         time.Duration // at this pace; 0 if unknown
}

// Folder is how far a folder of the source is.
type Folder struct {
	Name   string // there
	Target string // here
	State  string // waiting, done or failed
	Error  string // why it failed

	Messages, Done, Copied, Skipped, Failed int64
}

// Failure is something that could not be copied.
type Failure struct {
	Folder string // there
	UID    uint32 // there; 0 for the folder as a whole
	Reason string
}

// Note is how messages of a folder were copied otherwise than they were there.
type Note struct {
	Folder   string // there
	UID      uint32 // of the first of them, there
	Messages int64  // how many they are
	Text     string
}

// FolderWaiting is the state of a folder that is not done.
const FolderWaiting = "waiting"

// FolderDone is the state of a folder of which all was looked at.
const FolderDone = "done"

// hash64 is a number for a list of texts, the same each time.
func hash64(texts ...string) int64 {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

// accountHash is a number for who is signed in where.
func (s *Source) accountHash() int64 { return hash64(strings.ToLower(s.Host), s.Username) }

// folderHash is a number for one folder there.
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

// DeleteByMailbox deletes all that is known of a mailbox's migrations, which is gone for
// good. It may be called again after it failed.
func (m *Service) DeleteByMailbox(ctx context.Context, mailbox db.ID) error {
	return m.options.DB.Tx(ctx, func(tx *db.Tx) error {
		for _, q := range []*db.Query{deleteCopiedQuery, deleteFoldersQuery, deleteFailuresQuery, deleteNotesQuery, deleteMigrationsQuery} {
			if _, err := tx.Exec(ctx, q.With(mailbox)); err != nil {
				return err
			}
		}
		return nil
	})
}

// wake tells whoever follows a migration, or has it in hand, to look.
func (m *Service) wake(id db.ID) {
	m.options.Hub.Wake(notify.Key{Kind: notify.Migration, ID: int64(id)})
}
