// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/dashboard"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The requests that the reference shows succeed as they are printed, when names of the reader's own
// domain and ids are replaced.
func TestReferenceExamples(t *testing.T) {
	s := servertest.Start(t)
	_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
	if err != nil {
		t.Fatal(err)
	}
	document := s.APIWithKey("", "GET", "/openapi.json", nil).Body
	bodies, err := dashboard.ReferenceBodies(document)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		t.Fatal(err)
	}
	created := func(path string, body map[string]any) string {
		t.Helper()
		a := s.API("POST", path, body)
		if a.Status/100 != 2 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		var made struct{ ID string }
		a.Decode(t, &made)
		return made.ID
	}
	mailbox, other := s.Dev.Mailboxes[0].ID.String(), created("/domains", map[string]any{"name": "other.test"})
	template := created("/templates", map[string]any{"name": "Order confirmation", "alias": "order-confirmation", "subject": "Your order {{order}}", "text": "Hello {{user.name}}"})
	s.API("PATCH", "/templates/"+template, map[string]any{"text": "Hi {{user.name}}"}) // version 2
	later := time.Now().Add(48 * time.Hour).UTC().Format(time.RFC3339)
	scheduled := created("/outbound/send", map[string]any{"from_email": "you@demo.test", "to": []string{"bob@example.org"}, "subject": "x", "text": "x", "send_at": later})
	var customer string
	a := s.APIWithKey(operator, "POST", "/operator/accounts", map[string]any{"email": "other@example.net"})
	var made struct{ ID string }
	if a.Decode(t, &made); made.ID == "" {
		t.Fatalf("%s", a.Body)
	}
	customer = made.ID
	ids := map[string]string{
		"/mailboxes": mailbox, "/domains": other, "/aliases": created("/aliases", map[string]any{"address": "sales@demo.test", "targets": []string{s.Dev.Mailboxes[0].Address}}),
		"/webhooks": created("/webhooks", map[string]any{"url": "https://app.example.com/first", "events": []string{"all"}}), "/templates": template,
		"/outbound/messages": scheduled, "/operator/domains": "other.test", "/operator/accounts": customer,
	}
	replace := func(text string) string {
		return strings.NewReplacer(`"ann@example.com"`, `"`+s.Dev.Mailboxes[0].Address+`"`, "@example.com", "@"+s.Dev.Domain.Name).Replace(text)
	}
	ofOperator := func(path string) bool { return strings.HasPrefix(path, "/api/v1/operator") }
	paths := slices.Sorted(maps.Keys(doc.Paths))
	slices.SortStableFunc(paths, func(a, b string) int { // those of the operator, which suspend and drop, last
		switch {
		case ofOperator(a) == ofOperator(b):
			return 0
		case ofOperator(a):
			return 1
		}
		return -1
	})
	for _, path := range paths {
		for method, o := range doc.Paths[path] {
			body, ok := bodies[o.OperationID]
			if !ok {
				continue
			}
			text, err := json.Marshal(body)
			if err != nil {
				t.Fatal(err)
			}
			var sent map[string]any
			if err := json.Unmarshal([]byte(replace(string(text))), &sent); err != nil {
				t.Fatal(err)
			}
			if sent["domain_id"] != nil {
				sent["domain_id"] = s.Dev.Domain.ID.String()
			}
			if sent["mailbox_id"] != nil {
				sent["mailbox_id"] = mailbox
			}
			to, key := strings.TrimPrefix(path, "/api/v1"), s.Dev.APIKey
			if ofOperator(path) {
				key = operator
			}
			for prefix, id := range ids {
				if strings.HasPrefix(to, prefix+"/{") {
					to = prefix + "/" + id + strings.TrimPrefix(to[len(prefix):], "/{"+strings.SplitN(strings.SplitN(to, "{", 2)[1], "}", 2)[0]+"}")
				}
			}
			switch o.OperationID {
			case "testMigrationSource": // the host of the example doesn't exist
				continue
			case "rotateDKIM": // one key of an algorithm at a time
				to = "/domains/" + s.Dev.Domain.ID.String() + "/dkim/rotate"
			case "addDKIMKey": // the key is the reader's
				sent["private_key"] = privateKey(t)
			}
			if a := s.APIWithKey(key, strings.ToUpper(method), to, sent); a.Status/100 != 2 {
				t.Errorf("%s: %s %s with %s: %d %s", o.OperationID, method, to, replace(string(text)), a.Status, a.Body)
			}
		}
	}
}

func privateKey(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}
