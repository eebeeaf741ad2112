// SPDX-License-Identifier: Apache-2.0

package template

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// Limits of an account's templates.
const (
	MaxTemplates  = 10_000
	MaxVersions   = 1_000   // versions of a template; the oldest are deleted, but never the published one
	MaxTotalBytes = 1 << 30 // all versions of all templates

	maxName  = 200 // bytes
	maxAlias = 64
)

// Templates stores and renders the templates of accounts. DB and Now must be set.
type Templates struct {
	DB  *db.DB
	Now func() time.Time

	cache      cache
	semaphores notify.KeyedSemaphore[db.ID] // limits concurrent renderings per account
}

// Template is a stored template with one of its versions: the newest, unless another was requested.
type Template struct {
	ID        db.ID
	Name      string
	Alias     string // "" for none
	Latest    int
	Published int
	CreatedAt time.Time
	UpdatedAt time.Time
	Version
}

// Version is one version of a template, numbered from 1.
type Version struct {
	Number int
	Content
	CreatedAt time.Time
	bytes     int // of its texts and variables, as stored
}

// CreateParams are the parameters of a new template.
type CreateParams struct {
	Name, Alias string
	Content
}

// templateColumns are the columns that a template is scanned from.
const templateColumns = `id, name, alias, latest, published, created_at, updated_at`

var (
	insertTemplateQuery = db.SQL(`INSERT INTO template (id, account, name, alias, latest, published, created_at, updated_at, bytes)
		VALUES ($1, $2, $3, $4, 1, 1, $5, $5, $6)`)
	usageQuery         = db.SQL(`SELECT COUNT(*), CAST(COALESCE(SUM(bytes), 0) AS BIGINT) FROM template WHERE account = $1`)
	insertVersionQuery = db.SQL(`INSERT INTO template_version (template, version, subject, html, text, inline_css, variables, created_at, bytes)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	templateByIDQuery    = db.SQL(`SELECT ` + templateColumns + ` FROM template WHERE id = $1 AND account = $2`)
	templateByAliasQuery = db.SQL(`SELECT ` + templateColumns + ` FROM template WHERE account = $1 AND alias = $2 AND alias <> ''`)
	listTemplatesQuery   = db.PagedSQL(`SELECT ` + templateColumns + ` FROM template WHERE {page account = $1}`)
	versionQuery         = db.SQL(`SELECT version, subject, html, text, inline_css, variables, created_at FROM template_version
		WHERE template = $1 AND version = $2`)
	deleteTemplateQuery = db.SQL(`DELETE FROM template WHERE id = $1 AND account = $2`)
)

func scanTemplate(r db.Row) (t Template, err error) {
	return t, r.Scan(&t.ID, &t.Name, &t.Alias, &t.Latest, &t.Published, db.TimeScanner(&t.CreatedAt), db.TimeScanner(&t.UpdatedAt))
}

// storedVariable is a variable as stored in its row.
type storedVariable struct {
	Key      string `json:"key"`
	Type     string `json:"type,omitempty"`
	Required bool   `json:"required,omitempty"`
	Fallback any    `json:"fallback,omitempty"`
}

// insertStatement returns the statement that inserts a version, and the bytes that the version
// takes.
func (v Version) insertStatement(template db.ID) (s db.Statement, bytes int, err error) {
	list := make([]storedVariable, len(v.Variables))
	for i, one := range v.Variables {
		list[i] = storedVariable(one)
	}
	variables, err := json.Marshal(list)
	bytes = len(v.Subject) + len(v.HTML) + len(v.Text) + len(variables)
	return insertVersionQuery.With(template, v.Number, v.Subject, v.HTML, v.Text, v.InlineCSS, string(variables), db.Micros(v.CreatedAt), bytes), bytes, err
}

// lockAccount locks the account against concurrent creation and growth of templates.
func lockAccount(ctx context.Context, tx *db.Tx, account db.ID) error {
	return tx.Lock(ctx, "templates", account)
}

// checkLimits returns a fault if the account would have too many templates or too many bytes. The
// caller has called lockAccount.
func checkLimits(ctx context.Context, tx *db.Tx, account db.ID, templates, bytes int) error {
	var n, has int
	if err := tx.One(ctx, usageQuery.With(account), &n, &has); err != nil {
		return err
	}
	if n+templates > MaxTemplates {
		return fault.New(fault.Conflict, "too_many_templates", "An account can have %d templates. Delete one first.", MaxTemplates)
	}
	if has+bytes > MaxTotalBytes {
		return fault.New(fault.OverQuota, "templates_full", "The templates of an account, with their old versions, can have %d MB together. Delete one first.", MaxTotalBytes>>20)
	}
	return nil
}

func scanVersion(r db.Row) (v Version, err error) {
	var variables string
	if err := r.Scan(&v.Number, &v.Subject, &v.HTML, &v.Text, &v.InlineCSS, &variables, db.TimeScanner(&v.CreatedAt)); err != nil {
		return v, err
	}
	v.bytes = len(v.HTML) + len(v.Text) + len(variables)
	d := json.NewDecoder(strings.NewReader(variables))
	d.UseNumber()
	var list []storedVariable
	err = d.Decode(&list)
	for _, one := range list {
		v.Variables = append(v.Variables, Variable(one))
	}
	return v, err
}

func notFound() error { return fault.New(fault.NotFound, "not_found", "There is no such template.") }

// checkNames validates name and alias.
func checkNames(name, alias string, bad *fault.FieldErrors) {
	if strings.TrimSpace(name) == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		bad.Add("name", "invalid_name", "A name has 1 to %d bytes and no control characters.", maxName)
	}
	if _, err := db.ParseID(alias); err == nil {
		bad.Add("alias", "invalid_alias", "An alias must not look like an id: both name templates.")
	} else if alias != "" && !isAlias(alias) {
		bad.Add("alias", "invalid_alias", "An alias has 1 to %d lower-case letters, digits, _ and -, and begins with a letter or digit.", maxAlias)
	}
}

func isAlias(s string) bool {
	return s != "" && len(s) <= maxAlias && s[0] != '_' && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
}

// Check validates the parameters of a new template.
func (n CreateParams) Check() error {
	var bad fault.FieldErrors
	checkNames(n.Name, n.Alias, &bad)
	if _, err := Compile(n.Content); bad.Merge(err) != nil {
		return err
	}
	return bad.Err()
}

// Create creates a template and publishes its first version. Errors are fault.Invalid with every
// invalid field, fault.Conflict for an alias in use or too many templates, and fault.OverQuota for
// more than MaxTotalBytes.
func (t *Templates) Create(ctx context.Context, account db.ID, n CreateParams) (Template, error) {
	if err := n.Check(); err != nil {
		return Template{}, err
	}
	return t.insert(ctx, account, n)
}

func (t *Templates) insert(ctx context.Context, account db.ID, n CreateParams) (Template, error) {
	now := t.Now().UTC()
	out := Template{ID: t.DB.NewID(), Name: n.Name, Alias: n.Alias, Latest: 1, Published: 1, CreatedAt: now, UpdatedAt: now,
		Version: Version{Number: 1, Content: n.Content, CreatedAt: now}}
	first, bytes, err := out.Version.insertStatement(out.ID)
	if err != nil {
		return Template{}, err
	}
	err = t.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := lockAccount(ctx, tx, account); err != nil {
			return err
		}
		if err := checkLimits(ctx, tx, account, 1, bytes); err != nil {
			return err
		}
		return tx.Run(ctx, insertTemplateQuery.With(out.ID, account, out.Name, out.Alias, db.Micros(now), bytes), first)
	})
	return out, t.translateAliasError(err)
}

// translateAliasError translates a violation of the unique index.
func (t *Templates) translateAliasError(err error) error {
	if err != nil && t.DB.IsConflict(err) {
		return fault.Wrap(err, fault.Conflict, "alias_taken", "Another template has this alias.")
	}
	return err
}

// Get returns a template with its newest version, or fault.NotFound.
func (t *Templates) Get(ctx context.Context, account, id db.ID) (Template, error) {
	return t.load(ctx, templateByIDQuery.With(id, account), 0)
}

// FindID returns the id of the template with an id or alias, or fault.NotFound. It doesn't check
// whether a template with that id exists.
func (t *Templates) FindID(ctx context.Context, account db.ID, name string) (db.ID, error) {
	if id, err := db.ParseID(name); err == nil {
		return id, nil
	}
	if !isAlias(name) {
		return 0, notFound()
	}
	found, err := findTemplate(ctx, t.DB, templateByAliasQuery.With(account, name))
	return found.ID, err
}

// GetVersion returns a template with one of its versions, or fault.NotFound.
func (t *Templates) GetVersion(ctx context.Context, account, id db.ID, number int) (Template, error) {
	return t.load(ctx, templateByIDQuery.With(id, account), number)
}

// load loads a template and the version with a number, 0 for the newest.
func (t *Templates) load(ctx context.Context, s db.Statement, number int) (Template, error) {
	out, err := findTemplate(ctx, t.DB, s)
	if err != nil {
		return out, err
	}
	out.Version, err = findVersion(ctx, t.DB, out.ID, cmp.Or(number, out.Latest))
	return out, err
}

// findTemplate returns the template that a statement reads or changes, or fault.NotFound.
func findTemplate(ctx context.Context, r db.Reader, s db.Statement) (Template, error) {
	return db.Find(ctx, r, s, notFound(), scanTemplate)
}

func findVersion(ctx context.Context, r db.Reader, id db.ID, number int) (Version, error) {
	return db.Find(ctx, r, versionQuery.With(id, number), fault.New(fault.NotFound, "not_found", "The template has no such version."), scanVersion)
}

// List returns an account's templates, newest first, without content.
func (t *Templates) List(ctx context.Context, account db.ID, page db.Page) ([]Template, bool, error) {
	return db.ReadPage(ctx, t.DB, listTemplatesQuery, page, scanTemplate, account)
}

// Delete deletes a template with all its versions, or returns fault.NotFound. Messages that were
// sent with it don't change.
func (t *Templates) Delete(ctx context.Context, account, id db.ID) error {
	return t.DB.ExecOrFail(ctx, deleteTemplateQuery.With(id, account), notFound())
}

// Duplicate creates a template from another's newest version, under a new name and without its
// alias.
func (t *Templates) Duplicate(ctx context.Context, account, id db.ID, name string) (Template, error) {
	from, err := t.Get(ctx, account, id)
	if err != nil {
		return Template{}, err
	}
	if name == "" {
		name = "Copy of " + from.Name
		for len(name) > maxName {
			name = strings.ToValidUTF8(name[:len(name)-1], "")
		}
	}
	var bad fault.FieldErrors
	checkNames(name, "", &bad)
	if err := bad.Err(); err != nil {
		return Template{}, err
	}
	return t.insert(ctx, account, CreateParams{Name: name, Content: from.Content})
}
