// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/bytesize"
)

type migrateCommand struct {
	Mailbox string `required:"" help:"The mailbox here that is copied to." placeholder:"ADDRESS" field:"mailbox_id"`

	SourceHost         string   `required:"" help:"Host name of the IMAP server to copy from." placeholder:"HOST"`
	SourcePort         int      `help:"Its port; 993 by default, 143 unless --source-tls is implicit." placeholder:"PORT"`
	SourceTLS          string   `name:"source-tls" help:"TLS from the start (implicit), after STARTTLS (starttls), or none." default:"implicit" enum:"implicit,starttls,none"`
	SourceUser         string   `required:"" help:"User name there." placeholder:"USER" field:"source.username"`
	SourcePasswordFile string   `field:"source.password" help:"File whose first line is the password there; else it is $$MAILSTEAD_SOURCE_PASSWORD, or asked for." type:"existingfile" placeholder:"FILE"`
	Insecure           bool     `name:"source-insecure" help:"Accept any certificate of the source." field:"source.insecure_skip_verify"`
	Folders            []string `help:"The only folders to copy, by their names there, separated by commas." placeholder:"FOLDER" field:"source.folders"`

	apiFlags `embed:"" set:"scopes=the scopes migrations.write and mailboxes.read"`
}

// Run copies a mailbox, and shows the progress.
func (c *migrateCommand) Run() error {
	ctx, stop := signalContext()
	defer stop()
	return c.migrate(ctx)
}

func (c *migrateCommand) migrate(ctx context.Context) error {
	api, box, err := c.openMailbox(ctx, c.Mailbox)
	if err != nil {
		return err
	}
	password, err := c.password(ctx)
	if err != nil {
		return err
	}
	m, err := api.CreateMigration(ctx, client.NewMigration{MailboxID: box, Source: client.NewMigrationSource{
		Host: c.SourceHost, Port: c.SourcePort, TLS: c.SourceTLS, Username: c.SourceUser, Password: password, InsecureSkipVerify: c.Insecure, Folders: c.Folders,
	}})
	if err != nil {
		return err
	}
	fmt.Printf("Migration %s\n", m.ID)
	return followMigration(ctx, api, m.ID)
}

// password returns the source's password from a file, the environment or the terminal.
func (c *migrateCommand) password(ctx context.Context) (string, error) {
	if c.SourcePasswordFile != "" {
		text, err := os.ReadFile(c.SourcePasswordFile)
		if err != nil {
			return "", fmt.Errorf("--source-password-file: %w", err)
		}
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return strings.TrimSuffix(string(line), "\r"), nil
	}
	if given := os.Getenv("MAILSTEAD_SOURCE_PASSWORD"); given != "" {
		return given, nil
	}
	if !isTerminal(os.Stdin) {
		return "", errors.New("the source's password is missing: give --source-password-file, or $MAILSTEAD_SOURCE_PASSWORD")
	}
	fmt.Fprintf(os.Stderr, "Password of %s at %s: ", c.SourceUser, c.SourceHost)
	defer fmt.Fprintln(os.Stderr)
	return readSecret(ctx, int(os.Stdin.Fd()))
}

// readSecret reads a line from a terminal without showing it. Only a line ends the read: after a
// cancellation, the caller stops waiting and restores the terminal.
func readSecret(ctx context.Context, terminal int) (string, error) {
	type line struct {
		text []byte
		err  error
	}
	before, err := term.GetState(terminal)
	if err != nil {
		return "", err
	}
	read := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(terminal)
		read <- line{text, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		return "", errors.Join(errors.New("interrupted; nothing was begun"), term.Restore(terminal, before))
	}
}

// followMigration shows a migration until it has finished. An interruption leaves it running.
func followMigration(ctx context.Context, api *client.Client, id string) error {
	var last client.Migration
	show := newMigrationProgress(os.Stdout, isTerminal(os.Stdout))
	for m, err := range api.FollowMigration(ctx, id) {
		if ctx.Err() != nil {
			fmt.Printf("\nThe migration goes on without this command. See it at GET /api/v1/migrations/%[1]s, cancel it with POST /api/v1/migrations/%[1]s/cancel.\n", id)
			return nil
		}
		if err != nil {
			return err
		}
		last = m
		show.update(&m)
	}
	show.end()
	d, err := api.GetMigration(ctx, id)
	if err != nil {
		return err
	}
	for _, f := range d.Failures {
		what := f.Folder
		if f.UID != 0 {
			what = fmt.Sprintf("%s, message %d", f.Folder, f.UID)
		}
		fmt.Printf("not copied: %s: %s\n", what, f.Detail)
	}
	for _, n := range d.Notes {
		fmt.Printf("note: %s, message %d and %d more: %s\n", n.Folder, n.UID, n.Messages-1, n.Detail)
	}
	p := last.Progress
	fmt.Printf("%s: %d copied (%s), %d were there already, %d could not be copied\n", last.Status, p.Copied, bytesize.Format(p.BytesCopied), p.Skipped, p.Failed)
	if last.Status != "completed" {
		return fmt.Errorf("the migration was not completed: %s", last.Detail)
	}
	return nil
}

// migrationProgress is a bar on a terminal, otherwise lines.
type migrationProgress struct {
	w         io.Writer
	bar       *progressbar.ProgressBar // nil for lines
	printedAt time.Time
	lastError string // the last error shown
}

func newMigrationProgress(to io.Writer, terminal bool) *migrationProgress {
	d := &migrationProgress{w: to}
	if terminal {
		d.bar = progressbar.NewOptions64(1, progressbar.OptionSetWriter(to), progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth(), progressbar.OptionShowCount())
	}
	return d
}

// lineInterval is how often a line is printed while only numbers change.
const lineInterval = 10 * time.Second

func (d *migrationProgress) update(m *client.Migration) {
	p := m.Progress
	text := fmt.Sprintf("%d of %d messages, %d of %d folders, %s", p.MessagesDone, p.Messages, p.FoldersDone, p.Folders, bytesize.Format(p.BytesCopied))
	if p.BytesPerSecond > 0 {
		text += fmt.Sprintf(", %s/s", bytesize.Format(int64(p.BytesPerSecond)))
	}
	if p.SecondsLeft != nil {
		text += fmt.Sprintf(", %v left", time.Duration(*p.SecondsLeft)*time.Second)
	}
	trouble := m.Detail != d.lastError
	if d.lastError = m.Detail; m.Detail != "" {
		text += ": " + m.Detail
	}
	if d.bar != nil {
		d.bar.ChangeMax64(max(1, p.Messages))
		d.bar.Describe(text)
		_ = d.bar.Set64(min(p.MessagesDone, p.Messages))
		return
	}
	if trouble || m.Ended() || time.Since(d.printedAt) >= lineInterval {
		d.printedAt = time.Now()
		_, _ = fmt.Fprintln(d.w, text)
	}
}

func (d *migrationProgress) end() {
	if d.bar != nil {
		_ = d.bar.Exit()
		_, _ = fmt.Fprintln(d.w)
	}
}
