// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	loseAudit = db.SQL(`ALTER TABLE dashboard_audit RENAME TO audit_lost`)
	findAudit = db.SQL(`ALTER TABLE audit_lost RENAME TO dashboard_audit`)
	wildcards = regexp.MustCompile(`\{[^}]*\}`)
)

// Every operation in the document that changes something writes its audit log entry first: while
// entries can't be written, no operation changes anything. The test covers new operations through
// the document.
func TestEveryOperationIsAudited(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Paths map[string]map[string]struct {
				OperationID string `json:"operationId"`
				RequestBody *struct {
					Content map[string]json.RawMessage
				}
			}
		}
		s.APIWithKey("", "GET", "/openapi.json", nil).Decode(t, &doc)
		unaudited := api.Unaudited()
		dbtest.Exec(t, s.DB, loseAudit.With())
		changing := 0
		for path, methods := range doc.Paths {
			for method, o := range methods {
				if method = strings.ToUpper(method); method == "GET" || o.OperationID == "" {
					continue
				}
				if unaudited[o.OperationID] != "" {
					delete(unaudited, o.OperationID)
					continue
				}
				if !strings.HasPrefix(path, "/api/v1/") { // unsubscribe links need no key
					continue
				}
				changing++
				key := s.Dev.APIKey
				if strings.HasPrefix(path, "/api/v1/operator") {
					key = operator
				}
				header := map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json"}
				if o.RequestBody != nil && o.RequestBody.Content["application/json"] == nil {
					for media := range o.RequestBody.Content {
						header["Content-Type"] = media
					}
				}
				a := call(t, s, method, wildcards.ReplaceAllString(path, s.Dev.Domain.ID.String()), header, newReader("{}"))
				refused(t, o.OperationID+" without the audit log", a, 500, "internal_error")
			}
		}
		dbtest.Exec(t, s.DB, findAudit.With())
		if changing < 50 || len(unaudited) > 0 {
			t.Errorf("%d operations change something; exceptions that are none: %q", changing, unaudited)
		}
	})
}

// An audit log entry names the actor, the action and the object, and contains no secret.
func TestActivity(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		const password = "Correct-Horse-Battery-9"
		alice, demo := s.Dev.Mailboxes[0], s.Dev.Domain.ID.String()
		keyID, key := newKey(t, s, object{"name": "shop", "scopes": []string{"mailboxes.write", "domains.write", "webhooks.write", "templates.write", "suppressions.write"}})
		c := clientOf(t, s, s.Dev.APIKey)
		box := "/mailboxes/" + alice.ID.String()
		latest := func(what, action, state, id, summary string) {
			t.Helper()
			page, err := c.ListActivity(t.Context(), client.Paging{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			e := page.Data[0]
			if e.Action != action || e.Status != state || e.ObjectID != id || e.Summary != summary || e.Actor != (client.ActivityActor{Type: "api_key", ID: keyID, Name: "test", IP: "127.0.0.1"}) {
				t.Errorf("%s: the activity says %+v", what, e)
			}
		}
		status(t, "forwarding", s.APIWithKey(key, "PATCH", box, object{"forward_to": []string{"spy@far.example"}, "display_name": "A"}), 200)
		latest("forwarding", "updateMailbox", audit.StateDone, alice.ID.String(), "Changed the mailbox alice@demo.test (display_name, forward_to [spy@far.example]).")
		status(t, "a password", s.APIWithKey(key, "POST", box+"/password", object{"password": password}), 200)
		latest("a password", "setMailboxPassword", audit.StateDone, alice.ID.String(), "Set the password of alice@demo.test (password).")
		made := s.APIWithKey(key, "POST", "/mailboxes", object{"domain_id": demo, "local_part": "new", "password": password})
		status(t, "a mailbox", made, 201)
		id := into(t, made)["id"].(string)
		latest("a mailbox", "createMailbox", audit.StateDone, id, "Created the mailbox new@demo.test (domain_id, local_part, password).")
		status(t, "deleting it", s.APIWithKey(key, "DELETE", "/mailboxes/"+id, nil), 204)
		latest("deleting it", "deleteMailbox", audit.StateDone, id, "Deleted the mailbox new@demo.test.")
		refused(t, "a fault", s.APIWithKey(key, "PATCH", box, object{"quota_mb": 0}), 422, "validation_failed", "quota_mb out_of_range")
		refused(t, "nothing there", s.APIWithKey(key, "DELETE", "/domains/"+id, nil), 404, "not_found")
		latest("what was refused", "deleteMailbox", audit.StateDone, id, "Deleted the mailbox new@demo.test.")
		site := sink(t)
		hook := s.APIWithKey(key, "POST", "/webhooks", object{"url": site + "/hook/" + password + "?token=" + password, "events": []string{"bounce"}})
		status(t, "a webhook", hook, 201)
		app := s.APIWithKey(key, "POST", box+"/app-passwords", object{"name": "Phone", "protocols": []string{"imap"}})
		status(t, "an app password", app, 201)
		list := s.API("GET", "/activity?limit=100", nil)
		for _, secret := range []string{password, into(t, hook)["secret"].(string), into(t, app)["password"].(string), key} {
			if strings.Contains(string(list.Body), secret) {
				t.Errorf("the activity has the secret %q", secret)
			}
		}
		refused(t, "another scope", s.APIWithKey(key, "GET", "/activity", nil), 403, "missing_scope")
		_, narrow := newKey(t, s, object{"name": "one domain", "scopes": []string{"activity.read"}, "domain": "demo.test"})
		refused(t, "a key of one domain", s.APIWithKey(narrow, "GET", "/activity", nil), 403, "domain_restricted")
	})
}

// An operator's action on an account is in the audit log of both accounts.
func TestActivityOfOperators(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		if err := s.Accounts.EnsureOperatorAccount(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
		if err != nil {
			t.Fatal(err)
		}
		acc, err := s.Accounts.Create(t.Context(), "customer@else.example", "")
		if err != nil {
			t.Fatal(err)
		}
		status(t, "suspending", s.APIWithKey(operator, "PATCH", "/operator/accounts/"+acc.ID.String(), object{"status": "suspended"}), 200)
		for _, of := range []db.ID{account.OperatorAccount, acc.ID} {
			list, _, err := s.Audit.List(t.Context(), of, db.Page{Limit: 1})
			if err != nil || len(list) != 1 || list[0].Description != "Changed the account customer@else.example (status suspended)." || list[0].State != audit.StateDone {
				t.Errorf("the activity of %s is %+v, %v", of, list, err)
			}
			if kind := map[db.ID]string{account.OperatorAccount: audit.ActorAPIKey, acc.ID: audit.ActorOperator}[of]; len(list) == 1 && list[0].Actor.Kind != kind {
				t.Errorf("the actor is %+v", list[0].Actor)
			}
		}
	})
}
