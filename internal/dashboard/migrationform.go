// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/migration"
)

// everyMailbox is no filter.
var everyMailbox mailbox.Filter

// securities are the choices of the form.
var securities = [][2]string{{migration.Implicit, "SSL/TLS (mostly port 993)"}, {migration.StartTLS, "STARTTLS (mostly port 143)"}, {migration.NoTLS, "None: everything in clear"}}

// migrationForm is what the forms show, for one mailbox and for many.
type migrationForm struct {
	Source     migration.Source // to begin with
	Address    string
	Boxes      []string // to choose from
	Securities [][2]string
	Port       string // "" for the usual one
	Offered    []offeredFolder
	Tested     bool
	Messages   int64 // of the offered folders
	Again      bool
}

// offeredFolder is a folder of the source to choose or not.
type offeredFolder struct {
	migration.Offered
	Text   string // as the form carries it
	Ticked bool
}

// newMigration is the form to have one mailbox copied.
func (d *Dashboard) newMigration(v *visit) (page, error) {
	f := migrationForm{Source: migration.Source{TLS: migration.Implicit}, Securities: securities}
	var err error
	if f.Boxes, err = d.someBoxes(v, suggested); err != nil {
		return page{}, err
	}
	if len(f.Boxes) == 1 {
		f.Address = f.Boxes[0]
	}
	q := v.r.URL.Query()
	if text := q.Get("mailbox"); text != "" {
		m, err := d.chosenBox(v, text)
		if err != nil {
			return page{}, err
		}
		f.Address = m.Address
	}
	if id, err := db.ParseID(q.Get("again")); err == nil {
		g, err := d.Migrations.Get(v.ctx, v.in.Account, id)
		if err != nil {
			return page{}, err
		}
		s, err := d.shownMigration(v, g)
		if err != nil {
			return page{}, err
		}
		f.Source, f.Address, f.Again, f.Port = g.Source, s.Address, true, strconv.Itoa(g.Source.Port)
		for _, name := range g.Source.Folders {
			f.Offered = append(f.Offered, offer(migration.Offered{Name: name, Bytes: -1}, true))
		}
	}
	if v.form.Has("folder") {
		f.Offered = v.offered()
	}
	for _, o := range f.Offered {
		f.Messages += o.Messages
	}
	if v.form != nil {
		v.form.Del("password") // it is never shown again
	}
	return page{Template: "migration-new", Title: "Copy a mailbox", Section: "mailboxes", Data: f, Part: v.scripted()}, nil
}

func offer(o migration.Offered, ticked bool) offeredFolder {
	copied := 0
	if o.Copied {
		copied = 1
	}
	return offeredFolder{o, fmt.Sprintf("%d %d %d %s", copied, o.Messages, o.Bytes, o.Name), ticked}
}

// offered reads the folders that the form has offered, and which are ticked.
func (v *visit) offered() (all []offeredFolder) {
	for _, text := range v.form["folder"] {
		part := strings.SplitN(text, " ", 4)
		if len(part) != 4 || part[3] == "" || len(all) == migration.MaxOffered {
			continue
		}
		o := migration.Offered{Name: part[3], Copied: part[0] == "1"}
		o.Messages, _ = strconv.ParseInt(part[1], 10, 64)
		o.Bytes, _ = strconv.ParseInt(part[2], 10, 64)
		all = append(all, offer(o, slices.Contains(v.form["folders"], o.Name)))
	}
	return all
}

// source reads where the mail comes from; all that is wrong with it is told
// under the form's fields.
func (v *visit) source(bad *fault.Fields) (s migration.Source) {
	s = migration.Source{Host: v.text("host"), TLS: v.text("tls"), Username: v.text("username"), Password: v.form.Get("password"), Insecure: v.form.Has("insecure")}
	if text := v.text("port"); text != "" {
		var err error
		if s.Port, err = strconv.Atoi(text); err != nil || s.Port == 0 {
			s.Port = -1 // none that is possible
		}
	}
	for _, f := range s.Check() {
		bad.Add(sourceField(f.Field), f.Code, "%s", f.Message)
	}
	return s
}

// sourceField is the form's name for a field of the API.
func sourceField(name string) string {
	if name = strings.TrimPrefix(name, "source."); name == "insecure_skip_verify" {
		return "insecure"
	}
	return name
}

// sourceFault tells faults of a source under the form's fields.
func sourceFault(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Fields) == 0 {
		return err
	}
	var bad fault.Fields
	for _, field := range f.Fields {
		bad.Add(sourceField(field.Field), field.Code, "%s", inThePage(field.Message))
	}
	return bad.Err()
}

// testSource tries the source, and shows the form with the folders there.
func (d *Dashboard) testSource(v *visit) (done, error) {
	var bad fault.Fields
	source := v.source(&bad)
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	found, err := d.Migrations.Probe(v.ctx, v.in.Account, source)
	if err != nil {
		return done{}, sourceFault(err)
	}
	v.form.Del("folder")
	v.form.Del("folders")
	p, err := d.newMigration(v)
	if err != nil {
		return done{}, err
	}
	f := p.Data.(migrationForm)
	f.Tested, f.Offered, f.Messages = true, nil, 0
	for _, o := range found {
		f.Offered = append(f.Offered, offer(o, o.Copied))
		f.Messages += o.Messages
	}
	p.Data = f
	return done{Show: &p}, nil
}

// addMigration has a mailbox copied.
func (d *Dashboard) addMigration(v *visit) (done, error) {
	var bad fault.Fields
	into, err := d.boxNamed(v, &bad, "mailbox", v.text("mailbox"))
	if err != nil {
		return done{}, err
	}
	source := v.source(&bad)
	source.Folders = v.chosenFolders(&bad)
	if err := bad.Err(); err != nil {
		return done{}, err
	}
	g, err := d.Migrations.Create(v.ctx, into, source)
	if err != nil {
		return done{}, sourceFault(err)
	}
	s, err := d.shownMigration(v, g)
	return done{To: "/migrations/" + g.ID.String(), Told: "Began to copy " + from(g.Source) + " into " + s.Address + "."}, err
}

// chosenFolders are the folders to copy; none for those that are copied anyway.
func (v *visit) chosenFolders(bad *fault.Fields) (chosen []string) {
	offered := v.offered()
	usual := true
	for _, o := range offered {
		usual = usual && o.Ticked == o.Copied
		if o.Ticked {
			chosen = append(chosen, o.Name)
		}
	}
	if len(offered) > 0 && len(chosen) == 0 {
		bad.Add("folders", "required", "Tick at least one folder.")
	}
	if usual {
		return nil
	}
	return chosen
}
