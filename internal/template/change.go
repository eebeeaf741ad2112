// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"slices"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Change is a change of a template; nil fields stay as they are.
type Change struct {
	Name, Alias         *string // "" removes the alias
	Subject, HTML, Text *string
	InlineCSS           *bool
	Variables           *[]Variable
	Draft               bool // the new version is not published
}

func (c Change) changesContent() bool {
	return c.Subject != nil || c.HTML != nil || c.Text != nil || c.InlineCSS != nil || c.Variables != nil
}

var (
	renameQuery = db.SQL(`UPDATE template SET name = COALESCE(CAST($3 AS TEXT), name), alias = COALESCE(CAST($4 AS TEXT), alias), updated_at = $5
		WHERE id = $1 AND account = $2
		RETURNING ` + templateColumns)
	// addVersionNumberQuery takes the next version number. Concurrent changes wait for each other,
	// and each builds on the previous one.
	addVersionNumberQuery = db.SQL(`UPDATE template SET name = COALESCE(CAST($3 AS TEXT), name), alias = COALESCE(CAST($4 AS TEXT), alias), updated_at = $5,
			latest = latest + 1, published = CASE WHEN $6 THEN published ELSE latest + 1 END
		WHERE id = $1 AND account = $2
		RETURNING ` + templateColumns)
	publishQuery = db.SQL(`UPDATE template SET published = $3, updated_at = $4
		WHERE id = $1 AND account = $2 AND EXISTS (SELECT 1 FROM template_version WHERE template = $1 AND version = $3)
		RETURNING ` + templateColumns)
	pruneVersionsQuery = db.SQL(`DELETE FROM template_version WHERE template = $1 AND version <= $2 AND version <> $3 RETURNING bytes`)
	addBytesQuery      = db.SQL(`UPDATE template SET bytes = bytes + $2 WHERE id = $1`)
)

// nameFaults returns the faults of name and alias.
func (c Change) nameFaults() (bad fault.FieldErrors) {
	name, alias := "x", ""
	assign(&name, c.Name)
	assign(&alias, c.Alias)
	checkNames(name, alias, &bad)
	return bad
}

// Check validates a change by itself, without the template that it changes.
func (c Change) Check() error {
	bad := c.nameFaults()
	if _, err := Compile(c.apply(Content{Subject: "x", HTML: "x", Text: "x"})); bad.Merge(err) != nil {
		return err
	}
	return bad.Err()
}

// Update changes a template. A change of its content creates a new version, which is published
// unless Change.Draft is set. Errors are fault.NotFound and those of Create; then nothing was
// changed.
func (t *Templates) Update(ctx context.Context, account, id db.ID, c Change) (Template, error) {
	if db.IsReadOnly(ctx) { // the write itself validates the result of change and template
		return Template{}, c.Check()
	}
	bad := c.nameFaults()
	if len(bad) > 0 { // report the other faults too; PostgreSQL would even reject some of these values
		c.Name, c.Alias = nil, nil
	}
	var out Template
	err := t.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		out, err = t.update(ctx, tx, account, id, c, bad)
		return err
	})
	if err != nil {
		return Template{}, t.translateAliasError(err)
	}
	return out, nil
}

func (t *Templates) update(ctx context.Context, tx *db.Tx, account, id db.ID, c Change, bad fault.FieldErrors) (Template, error) {
	now := t.Now().UTC()
	text := renameQuery.With(id, account, nullable(c.Name), nullable(c.Alias), db.Micros(now))
	if c.changesContent() {
		if err := lockAccount(ctx, tx, account); err != nil { // before the template's row, in the same order as Create
			return Template{}, err
		}
		text = addVersionNumberQuery.With(id, account, nullable(c.Name), nullable(c.Alias), db.Micros(now), c.Draft)
	}
	out, err := findTemplate(ctx, tx, text)
	if err != nil {
		return out, err
	}
	number := out.Latest
	if c.changesContent() {
		number--
	}
	if out.Version, err = findVersion(ctx, tx, id, number); err != nil {
		return out, err
	}
	if !c.changesContent() {
		return out, bad.Err()
	}
	out.Version = Version{Number: out.Latest, Content: c.apply(out.Content), CreatedAt: now}
	if _, err := Compile(out.Content); bad.Merge(err) != nil {
		return out, err
	}
	if err := bad.Err(); err != nil {
		return out, err
	}
	next, bytes, err := out.Version.insertStatement(id)
	if err != nil {
		return out, err
	}
	if err := checkLimits(ctx, tx, account, 0, bytes); err != nil {
		return out, err
	}
	if err := tx.Run(ctx, next); err != nil {
		return out, err
	}
	err = tx.Each(ctx, pruneVersionsQuery.With(id, out.Latest-MaxVersions, out.Published), func(r db.Row) error {
		var gone int
		err := r.Scan(&gone)
		bytes -= gone
		return err
	})
	if err != nil {
		return out, err
	}
	return out, tx.Run(ctx, addBytesQuery.With(id, bytes))
}

// nullable returns NULL for nil.
func nullable(s *string) any {
	if s == nil {
		return nil
	}
	return *s
}

func (c Change) apply(to Content) Content {
	assign(&to.Subject, c.Subject)
	assign(&to.HTML, c.HTML)
	assign(&to.Text, c.Text)
	assign(&to.InlineCSS, c.InlineCSS)
	assign(&to.Variables, c.Variables)
	return to
}

func assign[T any](dst, value *T) {
	if value != nil {
		*dst = *value
	}
}

// Publish publishes a version, the one that is sent. It returns fault.NotFound if there is no such
// version.
func (t *Templates) Publish(ctx context.Context, account, id db.ID, number int) (Template, error) {
	var out Template
	err := t.DB.Tx(ctx, func(tx *db.Tx) (err error) {
		if out, err = findTemplate(ctx, tx, publishQuery.With(id, account, number, db.Micros(t.Now()))); err != nil {
			return err
		}
		out.Version, err = findVersion(ctx, tx, id, number)
		return err
	})
	if fault.Is(err, fault.NotFound) { // find out whether the template or the version is missing
		if _, missing := t.GetVersion(ctx, account, id, number); missing != nil {
			err = missing
		}
	}
	return out, err
}

var (
	versionsQuery = db.SQL(`SELECT version, subject, html, text, inline_css, variables, created_at FROM template_version
	WHERE template = $1 AND version < $2 ORDER BY version DESC LIMIT $3`)
	versionsAboveQuery = db.SQL(`SELECT version, subject, html, text, inline_css, variables, created_at FROM template_version
	WHERE template = $1 AND version > $2 ORDER BY version LIMIT $3`)
)

// maxPageBytes limits the size of a page of versions, except for its first one: a hundred of them
// may have 100 MB.
const maxPageBytes = 2 << 20

// errPageFull ends the reading of versions.
var errPageFull = errors.New("enough")

// Versions returns up to limit versions of a template below a number (0: from the newest), newest
// first, and whether there are more. It returns fewer if they are long. It returns fault.NotFound
// for another account's template.
func (t *Templates) Versions(ctx context.Context, account, id db.ID, below, limit int) ([]Version, bool, error) {
	found, err := findTemplate(ctx, t.DB, templateByIDQuery.With(id, account))
	if err != nil {
		return nil, false, err
	}
	if below == 0 {
		below = found.Latest + 1
	}
	return t.readVersions(ctx, versionsQuery.With(id, below, limit+1), limit)
}

// VersionsAbove returns up to limit versions just above a number, newest first, and whether there
// are more above them. It returns fault.NotFound for another account's template.
func (t *Templates) VersionsAbove(ctx context.Context, account, id db.ID, above, limit int) ([]Version, bool, error) {
	if _, err := findTemplate(ctx, t.DB, templateByIDQuery.With(id, account)); err != nil {
		return nil, false, err
	}
	list, more, err := t.readVersions(ctx, versionsAboveQuery.With(id, above, limit+1), limit)
	slices.Reverse(list)
	return list, more, err
}

func (t *Templates) readVersions(ctx context.Context, s db.Statement, limit int) (list []Version, more bool, err error) {
	size := 0
	err = t.DB.Each(ctx, s, func(r db.Row) error {
		v, err := scanVersion(r)
		if err != nil {
			return err
		}
		if size += v.bytes; len(list) == limit || len(list) > 0 && size > maxPageBytes {
			return errPageFull
		}
		list = append(list, v)
		return nil
	})
	if errors.Is(err, errPageFull) {
		return list, true, nil
	}
	return list, false, err
}
