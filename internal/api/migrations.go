// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
)

// maxShownFailures is the maximum number of failures, and of notes, in the response about a
// migration.
const maxShownFailures = 100

func (a *API) migrationRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/migrations", id: "createMigration", validatesFirst: true, scope: "migrations.write", status: 201, mayConflict: true,
		summary: "Copy a mailbox from another server", description: "Folders, messages, flags and dates are copied from any IMAP server, several folders at once; nothing is changed there. " +
			"It goes on after a restart or a broken connection, without duplicates, and backs off when the source is busy. A second migration from the same source copies only what is new. " +
			"The password is kept encrypted, and deleted when the migration ends. Folders that only show mail of others, such as All Mail of Gmail, are copied if they are named in `folders`. " +
			"`migration_complete` tells of the end."}, a.createMigration)
	handle(r, operation{method: "POST", path: "/migrations/test", id: "testMigrationSource", readOnly: true, validatesFirst: true, scope: "migrations.write",
		summary: "Try a source", description: "Connects to a source, signs in, and lists the folders that can be copied, at most 1,000; nothing is copied or kept. " +
			"What is wrong with the source is told as in the answer to a migration, by the field that is to blame; `source_failed` is the code of what the source itself has said or done. " +
			"It takes 45 seconds at most, and an account tries one source at a time."}, a.testMigrationSource)
	handle(r, operation{method: "GET", path: "/migrations", id: "listMigrations", scope: "migrations.read",
		summary: "List migrations", description: "Newest first."}, a.listMigrations)
	handle(r, operation{method: "GET", path: "/migrations/{id}", id: "getMigration", scope: "migrations.read",
		summary: "Show a migration", description: "With its folders, how far each is, and the first 100 things that could not be copied."}, a.getMigration)
	handle(r, operation{method: "POST", path: "/migrations/{id}/cancel", id: "cancelMigration", scope: "migrations.write",
		summary: "Cancel a migration", description: "It ends at once; what was copied stays. One that has ended stays as it is."}, a.cancelMigration)
	a.migrationStreamRoutes(r)
}

// MigrationSource is the mailbox on another server to copy from.
type MigrationSource struct {
	Host               string   `json:"host" doc:"The source's host name." example:"imap.example.com"`
	Port               int      `json:"port" doc:"Its port." example:"993"`
	TLS                string   `json:"tls" enum:"implicit,starttls,none" doc:"TLS from the start, after STARTTLS, or none."`
	Username           string   `json:"username" doc:"The user name there." example:"ann@example.com"`
	InsecureSkipVerify bool     `json:"insecure_skip_verify" doc:"Whether any certificate is accepted."`
	Folders            []string `json:"folders" doc:"The only folders to copy; empty for all."`
}

// MigrationProgress is a migration's progress.
type MigrationProgress struct {
	Folders           int64   `json:"folders" doc:"How many folders there are; 0 until that is known." example:"12"`
	FoldersDone       int64   `json:"folders_done" doc:"How many are done." example:"4"`
	Messages          int64   `json:"messages" doc:"How many messages there are." example:"48213"`
	MessagesDone      int64   `json:"messages_done" doc:"How many were looked at." example:"20000"`
	Copied            int64   `json:"copied" doc:"How many were copied." example:"19997"`
	Skipped           int64   `json:"skipped" doc:"How many were there already." example:"3"`
	Failed            int64   `json:"failed" doc:"How many could not be copied." example:"0"`
	Bytes             int64   `json:"bytes" doc:"How many bytes there are, as far as that is known yet." example:"2147483648"`
	BytesCopied       int64   `json:"bytes_copied" doc:"How many were copied." example:"1073741824"`
	MessagesPerSecond float64 `json:"messages_per_second" doc:"How fast it is; 0 while it does not run." example:"220.5"`
	BytesPerSecond    float64 `json:"bytes_per_second" doc:"The same in bytes." example:"11800000"`
	SecondsLeft       *int64  `json:"seconds_left" doc:"How long it takes at this pace; null if that is not known." example:"128"`
}

// MigrationResponse is a running or ended migration of a mailbox.
type MigrationResponse struct {
	ID         db.ID             `json:"id" doc:"The migration's id."`
	MailboxID  db.ID             `json:"mailbox_id" doc:"The mailbox that is copied to."`
	Source     MigrationSource   `json:"source" doc:"Where from. The password is never shown."`
	Status     string            `json:"status" enum:"queued,running,completed,failed,cancelled" doc:"running also while it waits to try again."`
	Detail     *string           `json:"detail" doc:"Why it failed, or why it waits, in words; null for nothing." example:"The source is busy."`
	Retries    int               `json:"retries" doc:"How many tries in a row brought nothing; 20 are made." example:"0"`
	RetryAt    *time.Time        `json:"retry_at" doc:"When the source is tried again; null while it is not waited for."`
	Progress   MigrationProgress `json:"progress" doc:"How far it is."`
	CreatedAt  time.Time         `json:"created_at" doc:"When it was asked for."`
	StartedAt  *time.Time        `json:"started_at" doc:"When it began; null: not yet."`
	FinishedAt *time.Time        `json:"finished_at" doc:"When it ended; null: not yet."`
	UpdatedAt  time.Time         `json:"updated_at" doc:"When it last got on."`
}

// MigrationFolder is the progress of one source folder.
type MigrationFolder struct {
	Name         string  `json:"name" doc:"The folder at the source." example:"INBOX.Sent Items"`
	Target       string  `json:"target" doc:"The folder here." example:"Sent"`
	Status       string  `json:"status" enum:"waiting,done,failed" doc:"waiting also while it is copied."`
	Detail       *string `json:"detail" doc:"Why it failed; null for nothing." example:"The source refuses it."`
	Messages     int64   `json:"messages" doc:"How many messages there were at the beginning." example:"1200"`
	MessagesDone int64   `json:"messages_done" doc:"How many were looked at." example:"1200"`
	Copied       int64   `json:"copied" doc:"How many were copied." example:"1200"`
	Skipped      int64   `json:"skipped" doc:"How many were there already." example:"0"`
	Failed       int64   `json:"failed" doc:"How many could not be copied." example:"0"`
}

// MigrationFailure describes a message or folder that could not be copied.
type MigrationFailure struct {
	Folder string  `json:"folder" doc:"The folder at the source." example:"INBOX"`
	UID    *uint32 `json:"uid" doc:"The message's UID there; null for the folder as a whole." example:"4711"`
	Detail string  `json:"detail" doc:"Why, in words." example:"The message is larger than 50 MB."`
}

// MigrationNote describes how copied messages differ from the source.
type MigrationNote struct {
	Folder   string `json:"folder" doc:"The folder at the source." example:"INBOX"`
	UID      uint32 `json:"uid" doc:"The UID of the first of these messages at the source." example:"4711"`
	Messages int64  `json:"messages" doc:"How many messages of the folder it is said of." example:"12"`
	Detail   string `json:"detail" doc:"What is different here, in words." example:"The keyword [Work] is left out: it has characters that no keyword can have, or is too long."`
}

// MigrationDetailResponse is a migration with all details.
type MigrationDetailResponse struct {
	MigrationResponse
	Folders  []MigrationFolder  `json:"folders" doc:"The source's folders, once they are known."`
	Failures []MigrationFailure `json:"failures" doc:"What could not be copied: the first 100."`
	Notes    []MigrationNote    `json:"notes" doc:"What was copied otherwise than it was at the source, such as a message without a keyword that can't be kept: the first 100."`
}

func newMigrationResponse(g migration.Migration) MigrationResponse {
	p := g.Progress
	out := MigrationResponse{
		ID: g.ID, MailboxID: g.Mailbox, Status: g.State, Detail: optionalString(g.Error), Retries: g.Retries, RetryAt: optionalTime(g.RetryAt),
		Source: MigrationSource{
			Host: g.Source.Host, Port: g.Source.Port, TLS: g.Source.TLS, Username: g.Source.Username, InsecureSkipVerify: g.Source.Insecure,
			Folders: append([]string{}, g.Source.Folders...),
		},
		Progress: MigrationProgress{
			Folders: p.Folders, FoldersDone: p.FoldersDone, Messages: p.Messages, MessagesDone: p.MessagesDone, Copied: p.Copied,
			Skipped: p.Skipped, Failed: p.Failed, Bytes: p.Bytes, BytesCopied: p.BytesCopied,
			MessagesPerSecond: p.MessagesPerSecond, BytesPerSecond: p.BytesPerSecond,
		},
		CreatedAt: utcTime(g.CreatedAt), StartedAt: optionalTime(g.StartedAt), FinishedAt: optionalTime(g.FinishedAt), UpdatedAt: utcTime(g.UpdatedAt),
	}
	if p.Remaining > 0 {
		left := int64(p.Remaining / time.Second)
		out.Progress.SecondsLeft = &left
	}
	return out
}

type migrationSourceRequest struct {
	Host               string   `json:"host" doc:"The source's host name, on the public Internet unless the operator allows other places." example:"imap.example.com"`
	Port               int      `json:"port,omitempty" minimum:"1" maximum:"65535" doc:"993 when left out, 143 unless tls is implicit." example:"993"`
	TLS                string   `json:"tls,omitempty" enum:"implicit,starttls,none" doc:"TLS from the start, after STARTTLS, or none; implicit when left out."`
	Username           string   `json:"username" doc:"The user name there." example:"ann@example.com"`
	Password           string   `json:"password" doc:"The password there, or an app password."`
	InsecureSkipVerify bool     `json:"insecure_skip_verify,omitempty" doc:"Accept any certificate: somebody in between could then read the password and the mail."`
	Folders            []string `json:"folders,omitempty" doc:"The only folders to copy, by their names there; all when left out."`
}

func (s *migrationSourceRequest) source() migration.Source {
	return migration.Source{
		Host: strings.TrimSpace(s.Host), Port: s.Port, TLS: s.TLS, Username: s.Username, Password: s.Password, Insecure: s.InsecureSkipVerify, Folders: s.Folders,
	}
}

type createMigrationRequest struct {
	MailboxID string                 `json:"mailbox_id" format:"uuid" doc:"The mailbox of yours that is copied to."`
	Source    migrationSourceRequest `json:"source" doc:"Where the mail comes from."`
}

type createMigrationInput struct{ Body createMigrationRequest }

func (a *API) createMigration(ctx context.Context, p account.Principal, in *createMigrationInput) (MigrationResponse, error) {
	source := in.Body.Source.source()
	var bad fault.FieldErrors
	var into migration.Target
	id, err := a.mailboxID(ctx, p, &idParams{in.Body.MailboxID})
	if err == nil {
		m, found := a.Mailboxes.Get(ctx, p.Account, id)
		into, err = migration.Target{Account: p.Account, Domain: m.Domain, Mailbox: m.ID}, found
	}
	if err := mergeFaults(&bad, notFoundAsFieldFault(err, "mailbox_id", "There is no mailbox of yours with this id.")); err != nil {
		return MigrationResponse{}, err
	}
	bad = append(bad, source.Check()...)
	if err := bad.Err(); err != nil {
		return MigrationResponse{}, err
	}
	g, err := a.Migrations.Create(ctx, into, source)
	return convertResult(g, err, newMigrationResponse)
}

type testMigrationSourceRequest struct {
	Source migrationSourceRequest `json:"source" doc:"Where the mail would come from; which folders are chosen makes no difference."`
}

type testMigrationSourceInput struct{ Body testMigrationSourceRequest }

// MigrationSourceFolder is a folder on the source.
type MigrationSourceFolder struct {
	Name     string `json:"name" doc:"Its name there." example:"INBOX.Sent Items"`
	Messages int64  `json:"messages" doc:"How many messages are in it." example:"1200"`
	Bytes    *int64 `json:"bytes" doc:"Their size in bytes; null if the source does not tell." example:"73400320"`
	Copied   bool   `json:"copied" doc:"Whether it is copied when no folders are named."`
}

// MigrationSourceTestResponse lists the contents of a source.
type MigrationSourceTestResponse struct {
	Folders []MigrationSourceFolder `json:"folders" doc:"The folders that can be copied, INBOX first."`
}

func (a *API) testMigrationSource(ctx context.Context, p account.Principal, in *testMigrationSourceInput) (MigrationSourceTestResponse, error) {
	source := in.Body.Source.source()
	source.Folders = nil
	found, err := a.Migrations.Probe(ctx, p.Account, source)
	out := MigrationSourceTestResponse{Folders: []MigrationSourceFolder{}}
	for _, f := range found {
		shown := MigrationSourceFolder{Name: f.Name, Messages: f.Messages, Copied: f.CopiedByDefault}
		if f.Bytes >= 0 {
			shown.Bytes = &f.Bytes
		}
		out.Folders = append(out.Folders, shown)
	}
	return out, err
}

func (a *API) listMigrations(ctx context.Context, p account.Principal, in *pageParams) (listResponse[MigrationResponse], error) {
	only, ok, err := a.keyDomainID(ctx, p)
	if err != nil {
		return listResponse[MigrationResponse]{}, err
	}
	return listPage(in, func(at db.Page) ([]migration.Migration, bool, error) {
		if !ok {
			return nil, false, nil
		}
		return a.Migrations.List(ctx, p.Account, only, at)
	}, newMigrationResponse, func(g migration.Migration) db.ID { return g.ID })
}

// migration returns a migration that the principal may see.
func (a *API) migration(ctx context.Context, p account.Principal, text string) (migration.Migration, error) {
	id, err := db.ParseID(text)
	if err != nil {
		return migration.Migration{}, err
	}
	g, err := a.Migrations.Get(ctx, p.Account, id)
	if err != nil {
		return g, err
	}
	only, ok, err := a.keyDomainID(ctx, p)
	if err == nil && (!ok || only != 0 && only != g.Domain) {
		err = errNotFound
	}
	return g, err
}

func (a *API) getMigration(ctx context.Context, p account.Principal, in *idParams) (MigrationDetailResponse, error) {
	g, err := a.migration(ctx, p, in.ID)
	if err != nil {
		return MigrationDetailResponse{}, err
	}
	folders, err := a.Migrations.Folders(ctx, g.ID)
	if err != nil {
		return MigrationDetailResponse{}, err
	}
	failures, err := a.Migrations.Failures(ctx, g.ID, maxShownFailures)
	if err != nil {
		return MigrationDetailResponse{}, err
	}
	notes, err := a.Migrations.Notes(ctx, g.ID, maxShownFailures)
	if err != nil {
		return MigrationDetailResponse{}, err
	}
	out := MigrationDetailResponse{MigrationResponse: newMigrationResponse(g), Folders: []MigrationFolder{}, Failures: []MigrationFailure{}, Notes: []MigrationNote{}}
	for _, f := range folders {
		out.Folders = append(out.Folders, MigrationFolder{f.Name, f.Target, f.State, optionalString(f.Error), f.Messages, f.Done, f.Copied, f.Skipped, f.Failed})
	}
	for _, f := range failures {
		shown := MigrationFailure{Folder: f.Folder, Detail: f.Reason}
		if f.UID != 0 {
			shown.UID = &f.UID
		}
		out.Failures = append(out.Failures, shown)
	}
	for _, n := range notes {
		out.Notes = append(out.Notes, MigrationNote{n.Folder, n.UID, n.Messages, n.Text})
	}
	return out, nil
}

func (a *API) cancelMigration(ctx context.Context, p account.Principal, in *idParams) (MigrationResponse, error) {
	g, err := a.migration(ctx, p, in.ID)
	if err != nil {
		return MigrationResponse{}, err
	}
	g, err = a.Migrations.Cancel(ctx, p.Account, g.ID)
	if fault.Is(err, fault.NotFound) {
		err = errNotFound
	}
	return convertResult(g, err, newMigrationResponse)
}
