// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Each operator command that changes something adds an audit log entry, without secrets; rejected,
// read-only and counting commands add none.
func TestOperatorsCommandsAreAudited(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.NewProcess(t, binary, t.TempDir(), url)
		s.Start()
		d, err := server.OpenAdminTools(t.Context(), s.Data, s.Database)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck // only read
		demo, err := d.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		const ops = account.OperatorAccount
		entries := func(of db.ID) []audit.Entry {
			t.Helper()
			list, _, err := d.Audit.List(t.Context(), of, db.Page{Limit: db.MaxPageSize})
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		var key string
		for _, c := range []struct {
			args   string
			of     db.ID
			action string
			what   string // "": no entry
		}{
			{"account create --email new@else.example --name New", ops, "account create", "Created the account new@else.example."},
			{"account limits --email you@demo.test --burst 100", demo.ID, "account limits", "Set the limits of the account you@demo.test."},
			{"account limits --email you@demo.test", demo.ID, "", ""},
			{"account suspend --email new@else.example", 0, "account status", "Suspended the account new@else.example."},
			{"account resume --email new@else.example", 0, "account status", "Resumed the account new@else.example."},
			{"key create --email you@demo.test --name shop --scope outbound.send", demo.ID, "key create", `Created the API key "shop" (scopes outbound.send).`},
			{"key create --scope operator --name ops", ops, "key create", `Created the API key "ops" (scopes operator).`},
			{"key delete KEY --email you@demo.test", demo.ID, "key delete", "Deleted an API key."},
			{"user link --email you@demo.test --host mail.example.net", demo.ID, "user link", "Made a link for you@demo.test to choose a new password."},
			{"user link --email bob@else.example --account you@demo.test --role reader --host mail.example.net", demo.ID, "user link", "Made a link for bob@else.example to join as reader."},
			{"queue hold --destination far.example --reason x", ops, "queue", "Queued deliveries are held, destination far.example."},
			{"queue hold --destination far.example --dry-run", ops, "", ""},
			{"queue release --destination far.example", ops, "queue", "Queued deliveries are released, destination far.example."},
			{"queue retry --account you@demo.test", demo.ID, "queue", "Queued deliveries are due now, account you@demo.test."},
			{"queue drop --destination far.example --yes", ops, "queue", "Queued deliveries are dropped, destination far.example."},
		} {
			of := c.of
			if of == 0 {
				acc, err := d.Accounts.ByEmail(t.Context(), "new@else.example")
				if err != nil {
					t.Fatal(err)
				}
				of = acc.ID
			}
			before := len(entries(of))
			args := strings.Fields(strings.ReplaceAll(c.args, "KEY", key))
			status, out, errs := run(t, nil, append(args, "--data", s.Data, "--database", s.Database)...)
			if status != 0 {
				t.Errorf("%s: status %d, %s", c.args, status, errs)
				continue
			}
			list := entries(of)
			if c.what == "" {
				if len(list) != before {
					t.Errorf("%s: leaves %+v", c.args, list[0])
				}
				continue
			}
			e := list[0]
			if e.Description != c.what || e.Action != c.action || e.State != audit.StateDone || e.Actor != (audit.Actor{Kind: audit.ActorOperator, Name: "command line"}) {
				t.Errorf("%s: leaves %+v", c.args, e)
			}
			for _, word := range strings.Fields(out) {
				if strings.HasPrefix(word, "ms_") && strings.Contains(e.Description+e.Object, word) {
					t.Errorf("%s: the entry has the key", c.args)
				}
			}
			if c.action == "key create" && of == demo.ID {
				keys, _, err := d.Accounts.Keys(t.Context(), demo.ID, db.Page{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				key = keys[0].ID.String()
			}
		}
		before := len(entries(demo.ID))
		if status, _, _ := run(t, nil, "key", "create", "--email", "you@demo.test", "--scope", "nonsense", "--data", s.Data, "--database", s.Database); status != 1 {
			t.Errorf("a key with an unknown scope: status %d", status)
		}
		if after := len(entries(demo.ID)); after != before {
			t.Errorf("what was refused left %d entries", after-before)
		}
	})
}
