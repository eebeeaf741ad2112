// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// bodies are requests that are valid except for the account's permissions. Add a new operation with
// a body here.
func bodies(t *testing.T, s *servertest.Server) map[string]map[string]any {
	var walked struct{ ID string }
	s.API("POST", "/templates", map[string]any{"name": "walk", "subject": "walk", "text": "walk"}).Decode(t, &walked)
	return map[string]map[string]any{
		"createAPIKey":       {"name": "walk"},
		"createAlias":        {"address": "walk@demo.test", "targets": []string{"bob@demo.test"}},
		"updateAlias":        {"targets": []string{"bob@demo.test"}},
		"createAppPassword":  {"name": "walk"},
		"createAppleProfile": {"name": "walk"},
		"createDomain":       {"name": "walk.test"},
		"createMailbox":      {"domain_id": s.Dev.Domain.ID.String(), "local_part": "walk"},
		"updateDomain":       {"dkim_rotation_days": 90, "dmarc_enforcement": "junk", "spam_filtering": "junk", "mta_sts": "enforce"},
		"addDKIMKey":         {"selector": "own", "private_key": ownKey},
		"rotateDKIM":         {"algorithm": "ed25519"},
		"updateMailbox":      {"display_name": "Walked over", "forward_to": []string{"alice@demo.test"}, "keep_copy": true},
		"setVacation":        {"text": "walk"},
		"setMailboxPassword": {"password": "Walked-0ver!"},
		"simulateInbound":    {"from": "walk@elsewhere.example.net", "to": []string{"bob@demo.test"}, "text": "walk", "check_results": map[string]any{"spf": "pass"}},
		"addSuppression":     {"email": "gone@elsewhere.example.net"},
		"addSuppressions":    {"emails": []string{"gone@elsewhere.example.net"}},
		"createTemplate":     {"name": "walk", "subject": "walk", "text": "walk"},
		"updateTemplate":     {"text": "walked"},
		"publishTemplate":    {"version": 1},
		"renderTemplate":     {"variables": map[string]any{}},
		"duplicateTemplate":  {"name": "walk"},
		"sendTemplate":       {"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "template_id": walked.ID, "variables": map[string]any{}},
		"sendBatch":          {"messages": []any{map[string]any{"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "walk", "text": "walk"}}},
		"retryQueue":         {"destination": "nowhere.test", "dry_run": true},
		"holdQueue":          {"destination": "nowhere.test", "dry_run": true},
		"releaseQueue":       {"destination": "nowhere.test", "dry_run": true},
		"dropQueue":          {"destination": "nowhere.test", "dry_run": true},
		"setAccountLimits":   {"sends_per_hour": 1_000_000},
		"createAccount":      {"email": "walked@customer.example"},
		"updateAccount":      {"status": "active"},
		"suspendDomain":      {"suspended": false},
		"rescheduleMessage":  {"send_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
		"send":               {"from_email": "alice@demo.test", "to": []string{"bob@demo.test"}, "subject": "walk", "text": "walk"},

		"createWebhook":       {"url": "http://localhost:65535/walk", "events": []string{"domain_verified"}},
		"updateWebhook":       {"description": "walked"},
		"rotateWebhookSecret": {"overlap_hours": 1},
		"testWebhook":         {"event": "bounce"},

		"testMigrationSource": {"source": map[string]any{"host": "localhost", "port": s.Dev.Ports["imaps"], "username": s.Dev.Mailboxes[1].Address, "password": s.Dev.Mailboxes[1].Password, "insecure_skip_verify": true}},
		"createMigration":     {"mailbox_id": s.Dev.Mailboxes[1].ID.String(), "source": map[string]any{"host": "localhost", "port": 1, "tls": "none", "username": "walk", "password": "walk"}},
	}
}

// ownKey is an unused Ed25519 key.
const ownKey = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n-----END PRIVATE KEY-----\n"

// owned creates one of each resource for the demonstration account: ids by path. Add a new resource
// here.
func owned(t *testing.T, s *servertest.Server) map[string]string {
	t.Helper()
	made := func(path string, body any) string {
		answer := s.API("POST", path, body)
		if answer.Status != 201 && answer.Status != 202 {
			t.Fatalf("POST %s: %d %s", path, answer.Status, answer.Body)
		}
		var one struct{ ID string }
		answer.Decode(t, &one)
		return one.ID
	}
	return map[string]string{
		"/aliases/{id}":      made("/aliases", map[string]any{"address": "team@demo.test", "targets": []string{"bob@demo.test"}}),
		"/api-keys/{id}":     made("/api-keys", map[string]any{"name": "mine"}),
		"/domains/{id}":      made("/domains", map[string]any{"name": "mine.test"}),
		"/mailboxes/{id}":    s.Dev.Mailboxes[1].ID.String(),
		"/templates/{id}":    made("/templates", bodies(t, s)["createTemplate"]),
		"/webhooks/{id}":     made("/webhooks", bodies(t, s)["createWebhook"]),
		"/migrations/{id}":   made("/migrations", bodies(t, s)["createMigration"]),
		"/suppressions/{id}": made("/suppressions", map[string]any{"email": "left@elsewhere.example.net"}),
		"/threads/{id}": func() string {
			message := bodies(t, s)["send"]
			message["thread_id"] = "walked"
			made("/outbound/send", message)
			return "walked"
		}(),
		"/outbound/messages/{id}":       made("/outbound/send", bodies(t, s)["send"]),
		"/sandbox/outbox/{id}":          captured(t, s, made),
		"/operator/queue/messages/{id}": made("/outbound/send", bodies(t, s)["send"]),
		"/operator/domains/{id}":        "demo.test",
		"/operator/accounts/{id}": func() string {
			acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
			if err != nil {
				t.Fatal(err)
			}
			return acc.ID.String()
		}(),
	}
}

// captured sends to the outside, and returns the id of the captured message.
func captured(t *testing.T, s *servertest.Server, made func(path string, body any) string) string {
	t.Helper()
	made("/outbound/send", map[string]any{"from_email": "alice@demo.test", "to": []string{"x@elsewhere.example.net"}, "subject": "walk", "text": "walk"})
	quiet(t, s)
	var all struct{ Data []struct{ ID string } }
	s.API("GET", "/sandbox/outbox", nil).Decode(t, &all)
	if len(all.Data) == 0 {
		t.Fatal("nothing was captured")
	}
	return all.Data[0].ID
}
