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

// allMailboxes is an empty filter.
var allMailboxes mailbox.Filter

// securityOptions are the options of the form.
var securityOptions = [][2]string{{migration.ImplicitTLS, "SSL/TLS (mostly port 993)"}, {migration.StartTLS, "STARTTLS (mostly port 143)"}, {migration.NoTLS, "None: everything in clear"}}

// migrationForm is the data of the forms for one and for many mailboxes.
type migrationForm struct {
	Source     migration.Source // initial values
	Address    string
	Boxes      []string // suggested mailboxes
	Securities [][2]string
	Port       string // "" for the default port
	Offered    []folderOption
	Tested     bool
	Messages   int64 // number in the offered folders
	Again      bool
}

// folderOption is a source folder that can be selected.
type folderOption struct {
	migration.SourceFolder
	Text   string // its encoding in the form
	Ticked bool
}

// newMigration shows the form to migrate one mailbox.
func (d *Dashboard) newMigration(v *requestContext) (page, error) {
	f := migrationForm{Source: migration.Source{TLS: migration.ImplicitTLS}, Securities: securityOptions}
	var err error
	if f.Boxes, err = d.suggestMailboxes(v, maxSuggestions); err != nil {
		return page{}, err
	}
	if len(f.Boxes) == 1 {
		f.Address = f.Boxes[0]
	}
	q := v.r.URL.Query()
	if text := q.Get("mailbox"); text != "" {
		m, err := d.mailboxByID(v, text)
		if err != nil {
			return page{}, err
		}
		f.Address = m.Address
	}
	if id, err := db.ParseID(q.Get("again")); err == nil {
		g, err := d.Migrations.Get(v.ctx, v.session.Account, id)
		if err != nil {
			return page{}, err
		}
		s, err := d.newMigrationView(v, g)
		if err != nil {
			return page{}, err
		}
		f.Source, f.Address, f.Again, f.Port = g.Source, s.Address, true, strconv.Itoa(g.Source.Port)
		for _, name := range g.Source.Folders {
			f.Offered = append(f.Offered, newFolderOption(migration.SourceFolder{Name: name, Bytes: -1}, true))
		}
	}
	if v.form.Has("folder") {
		f.Offered = v.formFolders()
	}
	for _, o := range f.Offered {
		f.Messages += o.Messages
	}
	if v.form != nil {
		v.form.Del("password") // never shown again
	}
	return page{Template: "migration-new", Title: "Copy a mailbox", Section: "mailboxes", Data: f, Part: v.isScript()}, nil
}

func newFolderOption(o migration.SourceFolder, ticked bool) folderOption {
	copied := 0
	if o.CopiedByDefault {
		copied = 1
	}
	return folderOption{o, fmt.Sprintf("%d %d %d %s", copied, o.Messages, o.Bytes, o.Name), ticked}
}

// formFolders reads the offered folders from the form, and which of them are ticked.
func (v *requestContext) formFolders() (all []folderOption) {
	for _, text := range v.form["folder"] {
		part := strings.SplitN(text, " ", 4)
		if len(part) != 4 || part[3] == "" || len(all) == migration.MaxSourceFolders {
			continue
		}
		o := migration.SourceFolder{Name: part[3], CopiedByDefault: part[0] == "1"}
		o.Messages, _ = strconv.ParseInt(part[1], 10, 64)
		o.Bytes, _ = strconv.ParseInt(part[2], 10, 64)
		all = append(all, newFolderOption(o, slices.Contains(v.form["folders"], o.Name)))
	}
	return all
}

// formSource reads the source from the form and reports all its faults under the form's field
// names.
func (v *requestContext) formSource(bad *fault.FieldErrors) (s migration.Source) {
	s = migration.Source{Host: v.formText("host"), TLS: v.formText("tls"), Username: v.formText("username"), Password: v.form.Get("password"), Insecure: v.form.Has("insecure")}
	if text := v.formText("port"); text != "" {
		var err error
		if s.Port, err = strconv.Atoi(text); err != nil || s.Port == 0 {
			s.Port = -1 // an invalid port
		}
	}
	for _, f := range s.Check() {
		bad.Add(sourceFormField(f.Path), f.Code, "%s", f.Message)
	}
	return s
}

// sourceFormField returns the form's name for an API field.
func sourceFormField(name string) string {
	if name = strings.TrimPrefix(name, "source."); name == "insecure_skip_verify" {
		return "insecure"
	}
	return name
}

// renameSourceFields changes field errors of a source to the form's names.
func renameSourceFields(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || len(f.Fields) == 0 {
		return err
	}
	var bad fault.FieldErrors
	for _, field := range f.Fields {
		bad.Add(sourceFormField(field.Path), field.Code, "%s", formWording(field.Message))
	}
	return bad.Err()
}

// testSource tests the connection and shows the form with the source's folders.
func (d *Dashboard) testSource(v *requestContext) (actionResult, error) {
	var bad fault.FieldErrors
	source := v.formSource(&bad)
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	found, err := d.Migrations.Probe(v.ctx, v.session.Account, source)
	if err != nil {
		return actionResult{}, renameSourceFields(err)
	}
	v.form.Del("folder")
	v.form.Del("folders")
	p, err := d.newMigration(v)
	if err != nil {
		return actionResult{}, err
	}
	f := p.Data.(migrationForm)
	f.Tested, f.Offered, f.Messages = true, nil, 0
	for _, o := range found {
		f.Offered = append(f.Offered, newFolderOption(o, o.CopiedByDefault))
		f.Messages += o.Messages
	}
	p.Data = f
	return actionResult{Page: &p}, nil
}

// addMigration starts the migration of a mailbox.
func (d *Dashboard) addMigration(v *requestContext) (actionResult, error) {
	var bad fault.FieldErrors
	into, err := d.mailboxByAddress(v, &bad, "mailbox", v.formText("mailbox"))
	if err != nil {
		return actionResult{}, err
	}
	source := v.formSource(&bad)
	source.Folders = v.selectedFolders(&bad)
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	g, err := d.Migrations.Create(v.ctx, into, source)
	if err != nil {
		return actionResult{}, renameSourceFields(err)
	}
	s, err := d.newMigrationView(v, g)
	return actionResult{RedirectTo: "/migrations/" + g.ID.String(), Summary: "Began to copy " + sourceName(g.Source) + " into " + s.Address + "."}, err
}

// selectedFolders returns the folders to copy, or none for the default selection.
func (v *requestContext) selectedFolders(bad *fault.FieldErrors) (chosen []string) {
	offered := v.formFolders()
	usual := true
	for _, o := range offered {
		usual = usual && o.Ticked == o.CopiedByDefault
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
