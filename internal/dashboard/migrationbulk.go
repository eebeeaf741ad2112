// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/migration"
)

// maxBulkLines is the maximum number of mailboxes in one form.
const maxBulkLines = 100

// newMigrations shows the form to migrate many mailboxes from one server.
func (d *Dashboard) newMigrations(v *requestContext) (page, error) {
	f := migrationForm{Source: migration.Source{TLS: migration.ImplicitTLS}, Securities: securityOptions}
	var err error
	f.Boxes, err = d.suggestMailboxes(v, 1)
	if v.form != nil {
		v.form.Del("lines") // passwords are never shown again
	}
	return page{Template: "migration-many", Title: "Copy many mailboxes", Section: "mailboxes", Data: f, Part: v.isScript()}, err
}

// plannedMigration is one line of the form.
type plannedMigration struct {
	line   int
	into   migration.Target
	source migration.Source
}

// addMigrations starts the migration of all mailboxes in the form, or of none if a line has an
// error.
func (d *Dashboard) addMigrations(v *requestContext) (actionResult, error) {
	var bad fault.FieldErrors
	server := v.formSource(&bad)
	bad = withoutFields(bad, "username", "password") // these are in the lines
	plans, err := d.parsePlannedMigrations(v, &bad, server)
	if err != nil {
		return actionResult{}, err
	}
	if err := bad.Err(); err != nil {
		return actionResult{}, err
	}
	for i, p := range plans {
		if _, err := d.Migrations.Create(v.ctx, p.into, p.source); err != nil {
			return actionResult{}, v.bulkError(err, i, p.line)
		}
	}
	return actionResult{RedirectTo: "/migrations", Summary: bulkSummary(len(plans), server.Host)}, nil
}

func bulkSummary(n int, host string) string {
	if n == 1 {
		return "Began to copy 1 mailbox from " + host + "."
	}
	return fmt.Sprintf("Began to copy %d mailboxes from %s.", n, host)
}

// bulkError reports how many lines were processed before an error.
func (v *requestContext) bulkError(err error, begun, line int) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind == fault.Internal {
		return err
	}
	told := fault.New(f.Kind, f.Code, "%s", f.Message)
	if begun > 0 {
		told = fault.New(f.Kind, f.Code, "The first %d were begun. From line %d on none was: %s Take the lines before it out.", begun, line, f.Message)
	}
	return told
}

// withoutFields removes the faults of some fields.
func withoutFields(bad fault.FieldErrors, fields ...string) (rest fault.FieldErrors) {
next:
	for _, f := range bad {
		for _, name := range fields {
			if f.Path == name {
				continue next
			}
		}
		rest = append(rest, f)
	}
	return rest
}

// parsePlannedMigrations parses the lines. Each has the user name and password on the source, and
// the mailbox here. The mailbox may be omitted if the user name is its address.
func (d *Dashboard) parsePlannedMigrations(v *requestContext, bad *fault.FieldErrors, server migration.Source) (plans []plannedMigration, err error) {
	r := csv.NewReader(strings.NewReader(v.form.Get("lines")))
	r.FieldsPerRecord, r.TrimLeadingSpace, r.LazyQuotes = -1, true, false
	wrong := func(line int, what string) {
		bad.Add("lines", "invalid_line", "Line %d: %s", line, what)
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		var syntax *csv.ParseError
		if errors.As(err, &syntax) {
			wrong(syntax.Line, "a quotation mark is where it can't be.")
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(plans) == maxBulkLines {
			bad.Add("lines", "too_many", "Give at most %d lines at a time.", maxBulkLines)
			return nil, nil
		}
		p, what, err := d.parsePlannedMigration(v, record, server)
		if err != nil {
			return nil, err
		}
		if what != "" {
			wrong(line, what)
			return nil, nil
		}
		p.line = line
		plans = append(plans, p)
	}
	if len(plans) == 0 {
		bad.Add("lines", "required", "Give a line for each mailbox.")
	}
	return plans, nil
}

// parsePlannedMigration parses one line. wrong describes an error without repeating the line's
// content.
func (d *Dashboard) parsePlannedMigration(v *requestContext, record []string, server migration.Source) (p plannedMigration, wrong string, err error) {
	if len(record) < 2 || len(record) > 3 {
		return p, "it needs a user name, a password and a mailbox, with commas between them.", nil
	}
	p.source = server
	p.source.Username, p.source.Password = strings.TrimSpace(record[0]), strings.TrimRight(record[1], "\r")
	to := p.source.Username
	if len(record) == 3 && strings.TrimSpace(record[2]) != "" {
		to = strings.TrimSpace(record[2])
	}
	for _, f := range p.source.Check() {
		if f.Path == "source.username" || f.Path == "source.password" {
			return p, f.Message, nil
		}
	}
	var bad fault.FieldErrors
	if p.into, err = d.mailboxByAddress(v, &bad, "mailbox", to); err != nil {
		return p, "", err
	}
	if len(bad) > 0 {
		return p, "the mailbox here is none of yours.", nil
	}
	return p, "", nil
}
