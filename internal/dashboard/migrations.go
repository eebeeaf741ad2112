// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
)

// migrationRoutes registers the pages for migrations from other servers.
func (d *Dashboard) migrationRoutes(r *router) {
	r.view("/migrations", d.migrations)
	r.view("/migrations/progress", d.migrationsProgress)
	r.viewFor(permWrite, "/migrations/new", d.newMigration)
	r.viewFor(permWrite, "/migrations/many", d.newMigrations)
	r.action("/migrations", d.addMigration, d.newMigration)
	r.action("/migrations/test", d.testSource, d.newMigration)
	r.action("/migrations/many", d.addMigrations, d.newMigrations)
	r.view("/migrations/{id}", d.migration)
	r.view("/migrations/{id}/progress", d.migrationProgress)
	r.action("/migrations/{id}/cancel", d.cancelMigration, d.migration)
}

// migrationView is a migration for the pages.
type migrationView struct {
	migration.Migration
	Address  string // address of the mailbox; "" if it was deleted
	Trouble  string
	Percent  int // percentage of the messages; -1 while their number is unknown
	Folders  []migration.Folder
	Failures []migration.Failure
	Notes    []migration.Note
	Left     string
	Pace     string
}

func (d *Dashboard) newMigrationView(v *requestContext, g migration.Migration) (*migrationView, error) {
	s := &migrationView{Migration: g, Trouble: formWording(g.Error), Percent: -1}
	m, err := d.Mailboxes.Get(v.ctx, v.session.Account, g.Mailbox)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return s, err
	}
	s.Address = m.Address
	p := g.Progress
	switch {
	case g.State == migration.Completed:
		s.Percent = 100
	case p.Messages > 0:
		s.Percent = int(min(100, 100*p.MessagesDone/p.Messages))
	}
	if p.MessagesPerSecond > 0 {
		s.Pace = fmt.Sprintf("%.0f messages and %s a second", max(1, p.MessagesPerSecond), bytesize.Format(int64(p.BytesPerSecond)))
	}
	if p.Remaining > 0 {
		s.Left = formatDuration(p.Remaining)
	}
	return s, nil
}

// formWording replaces API terms in an error message by the form's terms.
func formWording(words string) string {
	return strings.ReplaceAll(words, "insecure_skip_verify accepts it nevertheless.", "Tick “Accept any certificate” to copy from it nevertheless.")
}

type migrationsPage struct {
	List  []*migrationView
	Pager pager
	Moves bool   // whether a migration on this page is running
	Query string // query of the page
	Boxes bool   // whether there is a target mailbox
}

func (d *Dashboard) migrations(v *requestContext) (page, error) {
	p := v.listPage()
	found, more, err := d.Migrations.List(v.ctx, v.session.Account, 0, p)
	if err != nil {
		return page{}, err
	}
	s := migrationsPage{Query: v.r.URL.RawQuery}
	for _, g := range found {
		one, err := d.newMigrationView(v, g)
		if err != nil {
			return page{}, err
		}
		s.List, s.Moves = append(s.List, one), s.Moves || !g.Finished()
	}
	if n := len(found); n > 0 {
		s.Pager = newPager("/migrations", p, n, more, found[0].ID, found[n-1].ID)
	} else if s.Boxes, err = d.hasMailbox(v); err != nil {
		return page{}, err
	}
	return page{Template: "migrations", Title: "Migrations", Section: "mailboxes", Data: s}, nil
}

func (d *Dashboard) migrationsProgress(v *requestContext) (page, error) {
	p, err := d.migrations(v)
	p.Part = true
	return p, err
}

// findMigration returns the migration that the path names.
func (d *Dashboard) findMigration(v *requestContext) (migration.Migration, error) {
	id, err := v.pathID("id")
	if err != nil {
		return migration.Migration{}, err
	}
	return d.Migrations.Get(v.ctx, v.session.Account, id)
}

func (d *Dashboard) migration(v *requestContext) (page, error) {
	g, err := d.findMigration(v)
	if err != nil {
		return page{}, err
	}
	s, err := d.newMigrationView(v, g)
	if err != nil {
		return page{}, err
	}
	if s.Folders, err = d.Migrations.Folders(v.ctx, g.ID); err != nil {
		return page{}, err
	}
	if s.Failures, err = d.Migrations.Failures(v.ctx, g.ID, migration.MaxFailures); err != nil {
		return page{}, err
	}
	if s.Notes, err = d.Migrations.Notes(v.ctx, g.ID, migration.MaxFailures); err != nil {
		return page{}, err
	}
	for i := range s.Folders {
		s.Folders[i].Error = formWording(s.Folders[i].Error)
	}
	return page{Template: "migration", Title: "From " + g.Source.Username + " at " + g.Source.Host, Section: "mailboxes", Data: s}, nil
}

func (d *Dashboard) migrationProgress(v *requestContext) (page, error) {
	p, err := d.migration(v)
	p.Part = true
	return p, err
}

func (d *Dashboard) cancelMigration(v *requestContext) (actionResult, error) {
	g, err := d.findMigration(v)
	if err != nil {
		return actionResult{}, err
	}
	told := "Cancelled copying " + sourceName(g.Source) + ". What was copied stays."
	if g.Finished() {
		told = ""
	}
	_, err = d.Migrations.Cancel(v.ctx, v.session.Account, g.ID)
	return actionResult{RedirectTo: "/migrations/" + g.ID.String(), Summary: told}, err
}

// sourceName describes a source for use in a sentence.
func sourceName(s migration.Source) string { return s.Username + " at " + s.Host }

// hasMailbox reports whether the account has a mailbox.
func (d *Dashboard) hasMailbox(v *requestContext) (bool, error) {
	boxes, err := d.suggestMailboxes(v, 1)
	return len(boxes) > 0, err
}

// mailboxByAddress returns the account's mailbox with an address. It adds a fault of the field if
// there is none.
func (d *Dashboard) mailboxByAddress(v *requestContext, bad *fault.FieldErrors, field, text string) (migration.Target, error) {
	found, err := d.Mailboxes.ParseTargets(v.ctx, v.session.Account, []string{text})
	if text == "" || fault.Is(err, fault.Invalid) || err == nil && found[0].Mailbox == 0 {
		bad.Add(field, "not_found", "There is no mailbox of yours with this address.")
		return migration.Target{}, nil
	}
	if err != nil {
		return migration.Target{}, err
	}
	m, err := d.Mailboxes.Get(v.ctx, v.session.Account, found[0].Mailbox)
	return migration.Target{Account: v.session.Account, Domain: m.Domain, Mailbox: m.ID}, err
}

// maxSuggestions is the maximum number of suggested mailboxes in a form.
const maxSuggestions = 100

// suggestMailboxes returns the addresses of the account's newest mailboxes.
func (d *Dashboard) suggestMailboxes(v *requestContext, limit int) (addresses []string, err error) {
	boxes, _, err := d.Mailboxes.List(v.ctx, v.session.Account, allMailboxes, db.Page{Limit: limit})
	for _, b := range boxes {
		addresses = append(addresses, b.Address)
	}
	return addresses, err
}
