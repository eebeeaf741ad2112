// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
)

// migrationRoutes are the pages of mailboxes that are copied from elsewhere.
func (d *Dashboard) migrationRoutes(r *router) {
	r.view("/migrations", d.migrations)
	r.view("/migrations/progress", d.migrationsProgress)
	r.viewFor(working, "/migrations/new", d.newMigration)
	r.viewFor(working, "/migrations/many", d.newMigrations)
	r.act("/migrations", d.addMigration, d.newMigration)
	r.act("/migrations/test", d.testSource, d.newMigration)
	r.act("/migrations/many", d.addMigrations, d.newMigrations)
	r.view("/migrations/{id}", d.migration)
	r.view("/migrations/{id}/progress", d.migrationProgress)
	r.act("/migrations/{id}/cancel", d.cancelMigration, d.migration)
}

// shownMigration is a migration as pages tell of it.
type shownMigration struct {
	migration.Migration
	Address  string // of the mailbox; "" for one that was deleted
	Trouble  string
	Percent  int // of the messages; -1 while it is not known how many there are
	Folders  []migration.Folder
	Failures []migration.Failure
	Notes    []migration.Note
	Left     string
	Pace     string
}

func (d *Dashboard) shownMigration(v *visit, g migration.Migration) (*shownMigration, error) {
	s := &shownMigration{Migration: g, Trouble: inThePage(g.Trouble), Percent: -1}
	m, err := d.Mailboxes.Get(v.ctx, v.in.Account, g.Mailbox)
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
		s.Pace = fmt.Sprintf("%.0f messages and %s a second", max(1, p.MessagesPerSecond), size(int64(p.BytesPerSecond)))
	}
	if p.Left > 0 {
		s.Left = span(p.Left)
	}
	return s, nil
}

// inThePage says with the words of the form what the room says with those of
// the API.
func inThePage(words string) string {
	return strings.ReplaceAll(words, "insecure_skip_verify accepts it nevertheless.", "Tick “Accept any certificate” to copy from it nevertheless.")
}

type shownMigrations struct {
	List  []*shownMigration
	Pager pager
	Moves bool   // something on this page goes on
	Query string // of the page
	Boxes bool   // there is a mailbox to copy to
}

func (d *Dashboard) migrations(v *visit) (page, error) {
	p := v.pageOf()
	found, more, err := d.Migrations.List(v.ctx, v.in.Account, 0, p)
	if err != nil {
		return page{}, err
	}
	s := shownMigrations{Query: v.r.URL.RawQuery}
	for _, g := range found {
		one, err := d.shownMigration(v, g)
		if err != nil {
			return page{}, err
		}
		s.List, s.Moves = append(s.List, one), s.Moves || !g.Ended()
	}
	if n := len(found); n > 0 {
		s.Pager = pagerOf("/migrations", p, n, more, found[0].ID, found[n-1].ID)
	} else if s.Boxes, err = d.anyBox(v); err != nil {
		return page{}, err
	}
	return page{Template: "migrations", Title: "Migrations", Section: "mailboxes", Data: s}, nil
}

func (d *Dashboard) migrationsProgress(v *visit) (page, error) {
	p, err := d.migrations(v)
	p.Part = true
	return p, err
}

// theMigration finds the migration that the path names.
func (d *Dashboard) theMigration(v *visit) (migration.Migration, error) {
	id, err := v.id("id")
	if err != nil {
		return migration.Migration{}, err
	}
	return d.Migrations.Get(v.ctx, v.in.Account, id)
}

func (d *Dashboard) migration(v *visit) (page, error) {
	g, err := d.theMigration(v)
	if err != nil {
		return page{}, err
	}
	s, err := d.shownMigration(v, g)
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
		s.Folders[i].Trouble = inThePage(s.Folders[i].Trouble)
	}
	return page{Template: "migration", Title: "From " + g.Source.Username + " at " + g.Source.Host, Section: "mailboxes", Data: s}, nil
}

func (d *Dashboard) migrationProgress(v *visit) (page, error) {
	p, err := d.migration(v)
	p.Part = true
	return p, err
}

func (d *Dashboard) cancelMigration(v *visit) (done, error) {
	g, err := d.theMigration(v)
	if err != nil {
		return done{}, err
	}
	told := "Cancelled copying " + from(g.Source) + ". What was copied stays."
	if g.Ended() {
		told = ""
	}
	_, err = d.Migrations.Cancel(v.ctx, v.in.Account, g.ID)
	return done{To: "/migrations/" + g.ID.String(), Told: told}, err
}

// from names a source, for sentences.
func from(s migration.Source) string { return s.Username + " at " + s.Host }

// anyBox reports whether the account has a mailbox.
func (d *Dashboard) anyBox(v *visit) (bool, error) {
	boxes, err := d.someBoxes(v, 1)
	return len(boxes) > 0, err
}

// boxNamed finds a mailbox of the account by its address. What is none is a
// fault of the field.
func (d *Dashboard) boxNamed(v *visit, bad *fault.Fields, field, text string) (migration.Into, error) {
	found, err := d.Mailboxes.ReadTargets(v.ctx, v.in.Account, []string{text})
	if text == "" || fault.Is(err, fault.Invalid) || err == nil && found[0].Mailbox == 0 {
		bad.Add(field, "not_found", "There is no mailbox of yours with this address.")
		return migration.Into{}, nil
	}
	if err != nil {
		return migration.Into{}, err
	}
	m, err := d.Mailboxes.Get(v.ctx, v.in.Account, found[0].Mailbox)
	return migration.Into{Account: v.in.Account, Domain: m.Domain, Mailbox: m.ID}, err
}

// suggested is how many mailboxes a form offers to choose from.
const suggested = 100

// someBoxes are addresses of mailboxes of the account, the newest.
func (d *Dashboard) someBoxes(v *visit, limit int) (addresses []string, err error) {
	boxes, _, err := d.Mailboxes.List(v.ctx, v.in.Account, everyMailbox, db.Page{Limit: limit})
	for _, b := range boxes {
		addresses = append(addresses, b.Address)
	}
	return addresses, err
}
