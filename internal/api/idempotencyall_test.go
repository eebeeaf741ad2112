// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/web"
)

func secretKey(t *testing.T, s *servertest.Server) *secret.Key {
	t.Helper()
	k, err := secret.ReadKey(filepath.Join(s.Config.Data, "secret.key"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// anotherNode serves the API of a second node as far as idempotency keys are concerned: it shares
// only the database with the first.
func anotherNode(t *testing.T, s *servertest.Server) string {
	t.Helper()
	node := httptest.NewServer((&api.API{
		Services: web.Services{
			Accounts: s.Accounts, Audit: s.Audit, Domains: s.Domains, Mailboxes: s.Mailboxes, Folders: s.Folders, Searcher: s.Searcher, Outbox: s.Outbox, Events: s.Events,
			Suppressions: s.Suppressions, Templates: s.Templates, Webhooks: s.Webhooks, Migrations: s.Migrations, MailIO: s.Transfers, Stats: s.Stats, Limits: s.Limits,
			QueueAdmin: s.Operator, Log: slog.New(slog.DiscardHandler),
		},
		IdempotencyKeys: idempotency.New(s.DB, secretKey(t, s), time.Now), Inbound: s.Inbound,
	}).Handler())
	t.Cleanup(node.Close)
	return node.URL
}

// onceRequest is a valid request of an operation.
type onceRequest struct {
	path  string
	body  any    // JSON, or a string; nil for none
	media string // of a string
}

// reordered encodes JSON with the members in reverse order, with spaces, and with other escapes.
func reordered(t *testing.T, v any) string {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		var all []string
		for _, name := range slices.Backward(slices.Sorted(maps.Keys(v))) {
			all = append(all, reordered(t, name)+" :\n"+reordered(t, v[name]))
		}
		return "{ " + strings.Join(all, " , ") + "}"
	case []any:
		var all []string
		for _, element := range v {
			all = append(all, reordered(t, element))
		}
		return "[" + strings.Join(all, ",\t") + "]"
	case string:
		if v != "" && v[0] < 0x80 {
			text, err := json.Marshal(v[1:])
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf(`"\u%04x%s`, v[0], text[1:])
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Every POST takes effect once for an idempotency key: repeated, also with its JSON in another
// order, it gets the first response; at once on two nodes, one is carried out.
func TestEveryPostTakesEffectOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
		if err != nil {
			t.Fatal(err)
		}
		receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer receiver.Close()
		made := func(path string, body any) string {
			t.Helper()
			a := s.API("POST", path, body)
			if a.Status/100 != 2 {
				t.Fatalf("%s: %d %s", path, a.Status, a.Body)
			}
			id, _ := into(t, a)["id"].(string)
			return id
		}
		domain, box := s.Dev.Domain.ID.String(), s.Dev.Mailboxes[0].ID.String()
		hook := made("/webhooks", object{"url": receiver.URL, "events": []string{"all"}})
		template := made("/templates", object{"name": "x", "subject": "x", "text": "x"})
		tested := made("/webhooks/"+hook+"/test", nil)
		aMail := object{"from_email": "alice@demo.test", "to": []any{"delivered@simulator.test"}, "subject": "x", "text": "y"}
		scheduled := func() string {
			return made("/outbound/send", mail(object{"send_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)}))
		}
		migration := func() object {
			return object{"mailbox_id": box, "source": object{"host": "localhost", "port": 1, "tls": "none", "username": "u", "password": "p"}}
		}
		requests := map[string]func(n int) onceRequest{
			"createAlias": func(n int) onceRequest {
				return onceRequest{path: "/aliases", body: object{"address": fmt.Sprintf("alias%d@demo.test", n), "targets": []any{"alice@demo.test"}}}
			},
			"createAppPassword": func(n int) onceRequest {
				return onceRequest{path: "/mailboxes/" + box + "/app-passwords", body: object{"name": fmt.Sprint(n)}}
			},
			"createAppleProfile": func(int) onceRequest {
				return onceRequest{path: "/mailboxes/" + box + "/apple-profile", body: object{"name": "Phone"}}
			},
			"addDKIMKey": func(n int) onceRequest {
				return onceRequest{path: "/domains/" + made("/domains", object{"name": fmt.Sprintf("dkim%d.test", n)}) + "/dkim", body: object{"selector": fmt.Sprintf("s%d", n), "private_key": dkimKey(t)}}
			},
			"rotateDKIM": func(n int) onceRequest {
				return onceRequest{path: "/domains/" + made("/domains", object{"name": fmt.Sprintf("rotate%d.test", n)}) + "/dkim/rotate"}
			},
			"importMailbox": func(n int) onceRequest {
				return onceRequest{path: "/mailboxes/" + box + "/import?dedup=false", media: "message/rfc822", body: fmt.Sprintf("Subject: %d\r\n\r\nx\r\n", n)}
			},
			"createMigration": func(int) onceRequest { return onceRequest{path: "/migrations", body: migration()} },
			"cancelMigration": func(int) onceRequest {
				return onceRequest{path: "/migrations/" + made("/migrations", migration()) + "/cancel"}
			},
			"createAccount": func(n int) onceRequest {
				return onceRequest{path: "/operator/accounts", body: object{"email": fmt.Sprintf("owner%d@example.net", n)}}
			},
			"retryQueue": func(int) onceRequest {
				becomes(t, s, made("/outbound/send", mail(object{"to": []string{"deferred@simulator.test"}})), "deferred")
				return onceRequest{path: "/operator/queue/retry", body: object{"all": true}}
			},
			"holdQueue": func(n int) onceRequest {
				return onceRequest{path: "/operator/queue/hold", body: object{"destination": fmt.Sprintf("hold%d.test", n), "detail": "x"}}
			},
			"releaseQueue": func(n int) onceRequest {
				to := object{"destination": fmt.Sprintf("release%d.test", n)}
				status(t, "holding", s.APIWithKey(operator, "POST", "/operator/queue/hold", to), 200)
				return onceRequest{path: "/operator/queue/release", body: to}
			},
			"dropQueue": func(int) onceRequest {
				id := made("/outbound/send", mail(object{"to": []string{"deferred@simulator.test"}}))
				becomes(t, s, id, "deferred")
				return onceRequest{path: "/operator/queue/drop", body: object{"message": id}}
			},
			"createDomain": func(n int) onceRequest {
				return onceRequest{path: "/domains", body: object{"name": fmt.Sprintf("new%d.test", n)}}
			},
			"verifyDomain":    func(int) onceRequest { return onceRequest{path: "/domains/" + domain + "/verify"} },
			"verifyDomainDNS": func(int) onceRequest { return onceRequest{path: "/domains/" + domain + "/verify-dns"} },
			"createMailbox": func(n int) onceRequest {
				return onceRequest{path: "/mailboxes", body: object{"domain_id": domain, "local_part": fmt.Sprintf("box%d", n)}}
			},
			"restoreMailbox": func(n int) onceRequest {
				id := made("/mailboxes", object{"domain_id": domain, "local_part": fmt.Sprintf("deleted%d", n)})
				status(t, "deleting", s.API("DELETE", "/mailboxes/"+id, nil), 204)
				return onceRequest{path: "/mailboxes/" + id + "/restore"}
			},
			"setMailboxPassword": func(int) onceRequest { return onceRequest{path: "/mailboxes/" + box + "/password"} },
			"createAPIKey": func(n int) onceRequest {
				return onceRequest{path: "/api-keys", body: object{"name": fmt.Sprint(n), "scopes": []any{"mail.read"}}}
			},
			"simulateInbound": func(n int) onceRequest {
				return onceRequest{path: "/sandbox/inbound", body: object{"from": "a@far.example", "to": []any{"alice@demo.test"}, "subject": fmt.Sprint(n), "text": "x", "attachments": []any{object{"filename": "a", "content": "eA=="}, object{"filename": "b", "content": "eQ=="}}}}
			},
			"send": func(int) onceRequest { return onceRequest{path: "/outbound/send", body: aMail} },
			"sendBatch": func(int) onceRequest {
				return onceRequest{path: "/outbound/batch", body: object{"messages": []any{aMail, aMail}}}
			},
			"sendTemplate": func(int) onceRequest {
				return onceRequest{path: "/outbound/send-template", body: object{"template_id": template, "from_email": "alice@demo.test", "to": []any{"delivered@simulator.test"}}}
			},
			"cancelMessage": func(int) onceRequest { return onceRequest{path: "/outbound/messages/" + scheduled() + "/cancel"} },
			"retryMessage": func(int) onceRequest {
				id := made("/outbound/send", mail(object{"to": []string{"deferred@simulator.test"}}))
				becomes(t, s, id, "deferred")
				return onceRequest{path: "/outbound/messages/" + id + "/retry"}
			},
			"addSuppression": func(n int) onceRequest {
				return onceRequest{path: "/suppressions", body: object{"email": fmt.Sprintf("s%d@far.example", n)}}
			},
			"addSuppressions": func(n int) onceRequest {
				return onceRequest{path: "/suppressions/batch", body: object{"emails": []any{fmt.Sprintf("b%d@far.example", n)}}}
			},
			"importSuppressions": func(n int) onceRequest {
				return onceRequest{path: "/suppressions/import", media: "text/csv", body: fmt.Sprintf("email\nfile%d@far.example\n", n)}
			},
			"createTemplate": func(n int) onceRequest {
				return onceRequest{path: "/templates", body: object{"name": fmt.Sprint(n), "subject": "x", "text": "x"}}
			},
			"duplicateTemplate": func(n int) onceRequest {
				return onceRequest{path: "/templates/" + template + "/duplicate", body: object{"name": fmt.Sprint("copy", n)}}
			},
			"publishTemplate": func(int) onceRequest {
				return onceRequest{path: "/templates/" + template + "/publish", body: object{"version": 1}}
			},
			"createWebhook": func(n int) onceRequest {
				return onceRequest{path: "/webhooks", body: object{"url": fmt.Sprintf("%s/%d", receiver.URL, n), "events": []any{"all"}}}
			},
			"testWebhook": func(int) onceRequest { return onceRequest{path: "/webhooks/" + hook + "/test"} },
			"redeliverWebhookDelivery": func(int) onceRequest {
				return onceRequest{path: "/webhooks/" + hook + "/deliveries/" + tested + "/redeliver"}
			},
			"replayWebhook": func(int) onceRequest {
				return onceRequest{path: "/webhooks/" + hook + "/replay?created_after=" + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}
			},
			"rotateWebhookSecret": func(int) onceRequest { return onceRequest{path: "/webhooks/" + hook + "/rotate-secret"} },
		}
		unaudited := api.Unaudited()
		nodes := []string{s.Dev.BaseURL, anotherNode(t, s)}
		customer, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		done := func(of db.ID, action string) (n int) {
			t.Helper()
			all, _, err := s.Audit.List(t.Context(), of, db.Page{Limit: 1000})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				if e.Action == action && e.State == audit.StateDone {
					n++
				}
			}
			return n
		}
		for path, item := range document(t, s).Paths.Map() {
			op := item.Post
			if op == nil || op.Parameters.GetByInAndName("header", "Idempotency-Key") == nil {
				continue
			}
			request, ok := requests[op.OperationID]
			if delete(requests, op.OperationID); !ok {
				t.Errorf("no request for %s", op.OperationID)
				continue
			}
			t.Run(op.OperationID, func(t *testing.T) {
				apiKey, owner := s.Dev.APIKey, customer.ID
				if strings.HasPrefix(path, "/api/v1/operator") {
					apiKey, owner = operator, account.OperatorAccount
				}
				try := func(node, key string, r onceRequest, body string) servertest.Response {
					media := r.media
					if media == "" {
						media = "application/json"
					}
					req, err := http.NewRequestWithContext(t.Context(), "POST", node+"/api/v1"+r.path, strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					req.Header = http.Header{"Authorization": {"Bearer " + apiKey}, "Idempotency-Key": {key}}
					if body != "" {
						req.Header.Set("Content-Type", media)
					}
					return do(t, req)
				}
				text := func(r onceRequest) (plain, same string) {
					switch body := r.body.(type) {
					case nil:
						return "", ""
					case string:
						return body, body
					}
					encoded, err := json.Marshal(r.body)
					if err != nil {
						t.Fatal(err)
					}
					return string(encoded), reordered(t, r.body)
				}
				first := request(1)
				plain, same := text(first)
				before := done(owner, op.OperationID)
				answer := try(nodes[0], "key", first, plain)
				if answer.Status/100 != 2 || answer.Header.Get("Idempotency-Replayed") != "" {
					t.Fatalf("%d %s", answer.Status, answer.Body)
				}
				again := try(nodes[0], "key", first, same)
				if again.Status != answer.Status || !bytes.Equal(again.Body, answer.Body) || again.Header.Get("Idempotency-Replayed") != "true" ||
					again.Header.Get("Content-Type") != answer.Header.Get("Content-Type") {
					t.Errorf("again: %d %s, first %d %s", again.Status, again.Body, answer.Status, answer.Body)
				}
				if other := map[bool]string{true: `{"other":1}`, false: "other"}[first.media == ""]; plain != "" {
					refused(t, "other content", try(nodes[0], "key", first, other), 422, "idempotency_key_reused")
				}
				if a := try(nodes[0], "", first, plain); a.Status != 422 || !bytes.Contains(a.Body, []byte("invalid_idempotency_key")) {
					t.Errorf("with an empty key: %d %s", a.Status, a.Body)
				}
				if n := done(owner, op.OperationID) - before; n != 1 && unaudited[op.OperationID] == "" {
					t.Errorf("it was carried out %d times", n)
				}
				if op.OperationID == "simulateInbound" || op.OperationID == "createAppleProfile" { // the other node lacks what they need
					return
				}
				second := request(2)
				plain, same = text(second)
				var all sync.WaitGroup
				answers := make([]servertest.Response, 6)
				begin := make(chan struct{})
				for i := range answers {
					all.Go(func() {
						<-begin
						answers[i] = try(nodes[i%2], "race", second, []string{plain, same}[i/2%2])
					})
				}
				close(begin)
				all.Wait()
				bodies := map[string]bool{}
				for _, a := range answers {
					if a.Status == 409 {
						refused(t, "at once", a, 409, "idempotency_in_flight")
						continue
					}
					if a.Status/100 != 2 {
						t.Errorf("at once: %d %s", a.Status, a.Body)
					}
					bodies[string(a.Body)] = true
				}
				// A queue command that comes second may find nothing left to do, which is no change.
				once := unaudited[op.OperationID] == "" && !strings.HasPrefix(path, "/api/v1/operator/queue/")
				if n := done(owner, op.OperationID) - before; len(bodies) != 1 || n != 2 && once {
					t.Errorf("at once: %d answers, carried out %d times in all", len(bodies), n)
				}
			})
		}
		for id := range requests {
			t.Errorf("there is no operation %s with an idempotency key", id)
		}
	})
}

// A key whose request was interrupted between its changes and its response is answered with what is
// known, and never carried out again.
func TestIdempotencyInterrupted(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		id, token := newKey(t, s, object{"scopes": []string{"domains.write", "domains.read"}})
		apiKey, err := db.ParseID(id)
		if err != nil {
			t.Fatal(err)
		}
		customer, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		try := func(key string) servertest.Response {
			return call(t, s, "POST", "/api/v1/domains", map[string]string{"Authorization": "Bearer " + token, "Content-Type": "application/json", "Idempotency-Key": key},
				newReader(`{"name":"`+key+`.test"}`))
		}
		for key, c := range map[string]struct {
			at   time.Time
			code string
		}{"running": {time.Now(), "idempotency_in_flight"}, "ended": {time.Now().Add(-2 * time.Minute), "idempotency_result_unknown"}} {
			elsewhere := idempotency.New(s.DB, secretKey(t, s), func() time.Time { return c.at })
			claim, err := elsewhere.Claim(customer.ID, idempotency.APIKeyPrincipal(apiKey), "/domains", key)
			if err != nil {
				t.Fatal(err)
			}
			guard := claim.CommitGuard(func() (sum [sha256.Size]byte) { return sum })
			if err := s.DB.Run(db.WithCommitGuard(t.Context(), guard)); err != nil || !guard.Committed() {
				t.Fatalf("reserving: %v", err)
			}
			refused(t, key, try(key), 409, c.code)
		}
		if n := len(ids(t, s.APIWithKey(token, "GET", "/domains", nil))); n != 1 {
			t.Errorf("%d domains", n)
		}
		// What is refused may be corrected, also after the key was reserved.
		refused(t, "refused", try("a b"), 422, "validation_failed", "name invalid_domain")
		refused(t, "again", try("a b"), 422, "validation_failed", "name invalid_domain")
		// A response that is too large is not kept, and its request not carried out again.
		large := object{"name": "large", "subject": "x", "html": strings.Repeat("x", 200<<10), "text": "x"}
		text, err := json.Marshal(large)
		if err != nil {
			t.Fatal(err)
		}
		post := func() servertest.Response {
			return call(t, s, "POST", "/api/v1/templates", map[string]string{"Content-Type": "application/json", "Idempotency-Key": "large"}, bytes.NewReader(text))
		}
		status(t, "a large one", post(), 201)
		again := post()
		if again.Status != 409 || !bytes.Contains(again.Body, []byte("idempotency_response_too_large")) {
			t.Errorf("again: %d %s", again.Status, again.Body)
		}
		if n := len(ids(t, s.API("GET", "/templates", nil))); n != 1 {
			t.Errorf("%d templates", n)
		}
	})
}
