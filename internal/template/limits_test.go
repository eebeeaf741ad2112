// SPDX-License-Identifier: Apache-2.0

package template_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/template"
)

var (
	newAccount = db.SQL(`INSERT INTO account (id, email, name, status, created_at) VALUES ($1, 'ann@example.com', '', 'active', 0)`)
	many       = db.SQL(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
		INSERT INTO template (id, account, name, alias, latest, published, created_at, updated_at) SELECT i, $1, 'x', '', 1, 1, 0, 0 FROM n`)
	large            = db.SQL(`UPDATE template SET bytes = $2 WHERE id = $1`)
	bytesOf          = db.SQL(`SELECT bytes FROM template WHERE id = $1`)
	storedBytesQuery = db.SQL(`SELECT CAST(SUM(octet_length(subject) + octet_length(html) + octet_length(text) + octet_length(variables)) AS BIGINT) FROM template_version WHERE template = $1`)
	renumber         = db.SQL(`UPDATE template SET latest = $2 WHERE id = $1`)
	again            = db.SQL(`INSERT INTO template_version (template, version, subject, html, text, inline_css, variables, created_at, bytes)
		SELECT template, CAST($2 AS BIGINT), subject, html, text, inline_css, variables, created_at, bytes FROM template_version WHERE template = $1 AND version = 1`)
)

func codes(t *testing.T, errs []error, want string) (made int) {
	t.Helper()
	for _, err := range errs {
		var f *fault.Error
		if err == nil {
			made++
		} else if !errors.As(err, &f) || f.Code != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	return made
}

// concurrently runs do 20 times concurrently.
func concurrently(do func(n int) error) []error {
	var all sync.WaitGroup
	errs := make([]error, 20)
	for n := range errs {
		all.Go(func() { errs[n] = do(n) })
	}
	all.Wait()
	return errs
}

// An account can't exceed its number of templates or the bytes of all versions, even with
// concurrent requests.
func TestMostTemplates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, account := t.Context(), d.NewID()
		dbtest.Exec(t, d, newAccount.With(account))
		all := &template.Templates{DB: d, Now: time.Now}
		content := template.Content{Subject: "Hi", Text: strings.Repeat("é", 500)}
		create := func(n int) error {
			_, err := all.Create(ctx, account, template.CreateParams{Name: fmt.Sprint(n), Content: content})
			return err
		}
		first, err := all.Create(ctx, account, template.CreateParams{Name: "first", Alias: "first", Content: content})
		if err != nil {
			t.Fatal(err)
		}
		bytes := func(id db.ID) (n int) {
			t.Helper()
			if err := d.One(ctx, bytesOf.With(id), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		const size = 2 + 1000 + 2 // variables are []
		if n := bytes(first.ID); n != size {
			t.Errorf("it has %d bytes", n)
		}
		dbtest.Exec(t, d, large.With(first.ID, template.MaxTotalBytes-3*size))
		if made := codes(t, concurrently(create), "templates_full"); made != 3 {
			t.Errorf("%d were made where 3 had room", made)
		}
		dbtest.Exec(t, d, large.With(first.ID, template.MaxTotalBytes-5*size))
		made := codes(t, concurrently(func(n int) error {
			text := strings.Repeat("x", 1000)
			_, err := all.Update(ctx, account, first.ID, template.Change{Text: &text})
			return err
		}), "templates_full")
		if made != 2 {
			t.Errorf("%d changes were made where 2 had room", made)
		}
		if _, err := all.Update(ctx, account, first.ID, template.Change{Name: new("Second")}); err != nil {
			t.Errorf("a new name needs room: %v", err)
		}
		if err := all.Delete(ctx, account, first.ID); err != nil {
			t.Fatal(err)
		}
		last, err := all.Create(ctx, account, template.CreateParams{Name: "last", Content: content})
		if err != nil {
			t.Fatalf("after one was deleted: %v", err)
		}

		// Deleted versions free their bytes.
		dbtest.Exec(t, d, again.With(last.ID, 2), again.With(last.ID, template.MaxVersions+1),
			renumber.With(last.ID, template.MaxVersions+1), large.With(last.ID, 3*size))
		if _, err := all.Update(ctx, account, last.ID, template.Change{Text: new("short"), Draft: true}); err != nil {
			t.Fatal(err)
		}
		var there int
		if err := d.One(ctx, storedBytesQuery.With(last.ID), &there); err != nil || there != bytes(last.ID) || there != 2*size+len("Hi[]short") {
			t.Errorf("%d bytes are counted of %d, %v", bytes(last.ID), there, err)
		}
		dbtest.Exec(t, d, many.With(account, template.MaxTemplates-4-2))
		if made := codes(t, concurrently(create), "too_many_templates"); made != 2 {
			t.Errorf("%d were made where 2 had a place", made)
		}
	})
}
