// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// listPaths returns the path of every list in the document, by operation, and the operations that
// have pages without an order.
func listPaths(t *testing.T, s *servertest.Server) (lists map[string]string, unordered []string) {
	t.Helper()
	lists = map[string]string{}
	for path, item := range document(t, s).Paths.Map() {
		op := item.Get
		if op == nil || op.Responses.Value("200") == nil {
			continue
		}
		media := op.Responses.Value("200").Value.Content["application/json"]
		switch {
		case media == nil || media.Schema.Value.Properties["has_more"] == nil:
		case slices.ContainsFunc(op.Parameters, func(p *openapi3.ParameterRef) bool { return p.Value.Name == "order" }):
			lists[op.OperationID] = strings.TrimPrefix(path, "/api/v1")
		default:
			unordered = append(unordered, op.OperationID)
		}
	}
	slices.Sort(unordered)
	return lists, unordered
}

// fillLists creates entries of all lists, and returns what stands for {id} in their paths.
func fillLists(t *testing.T, s *servertest.Server) map[string]string {
	t.Helper()
	made := func(path string, body object) string {
		t.Helper()
		a := s.API("POST", path, body)
		if a.Status/100 != 2 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		id, _ := into(t, a)["id"].(string)
		return id
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(receiver.Close)
	ids := map[string]string{"mailboxes": s.Dev.Mailboxes[0].ID.String(), "domains": s.Dev.Domain.ID.String()}
	for n := range 3 {
		made("/domains", object{"name": fmt.Sprintf("d%d.test", n)})
		newKey(t, s, object{})
		made("/mailboxes", object{"domain_id": ids["domains"], "local_part": fmt.Sprint("m", n), "password": "Aa1!aaaa"})
		made("/aliases", object{"address": fmt.Sprintf("a%d@demo.test", n), "targets": []string{s.Dev.Mailboxes[0].Address}})
		made("/suppressions", object{"email": fmt.Sprintf("x%d@example.org", n)})
		made("/mailboxes/"+ids["mailboxes"]+"/app-passwords", object{"name": "x"})
		ids["webhooks"] = made("/webhooks", object{"url": receiver.URL, "events": []string{"bounce"}})
		ids["templates"] = made("/templates", object{"name": "x", "subject": "x", "text": "x"})
		made("/outbound/send", mail(object{"to": []string{"x@example.org"}}))
		if _, err := s.Accounts.Create(t.Context(), fmt.Sprintf("c%d@example.com", n), ""); err != nil {
			t.Fatal(err)
		}
		receive(t, s, object{})
	}
	for n := range 3 {
		made("/webhooks/"+ids["webhooks"]+"/test", object{})
		status(t, "a version", s.API("PATCH", "/templates/"+ids["templates"], object{"text": fmt.Sprint(n)}), 200)
	}
	servertest.Eventually(t, func() string {
		if got := entries(t, s.API("GET", "/sandbox/outbox", nil)); len(got) < 3 {
			return fmt.Sprint("captured: ", got)
		}
		for _, kind := range []string{"delivery_status", "inbound_email", "mailbox_created"} {
			if got := entries(t, s.API("GET", "/events?type="+kind, nil)); len(got) < 3 {
				return fmt.Sprint(kind, ": ", got)
			}
		}
		return ""
	})
	return ids
}

// entries returns the ids of a page's entries; of versions, their numbers.
func entries(t *testing.T, a servertest.Response) (all []string) {
	t.Helper()
	status(t, "listing", a, http.StatusOK)
	for _, one := range into(t, a)["data"].([]any) {
		id, ok := one.(object)["id"]
		if !ok {
			id = one.(object)["version"]
		}
		all = append(all, fmt.Sprint(id))
	}
	return all
}

// Every list has two orders, and continues at its cursors and at the ids of its entries, but not at
// those of others.
func TestLists(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		lists, unordered := listPaths(t, s)
		if want := []string{"getThread", "listQueueDeliveries", "listQueueDestinations"}; !slices.Equal(unordered, want) {
			t.Errorf("without an order: %v, want %v", unordered, want)
		}
		known := fillLists(t, s)
		_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
		if err != nil {
			t.Fatal(err)
		}
		rival := stranger(t, s)
		theirs := into(t, s.APIWithKey(rival, "POST", "/domains", object{"name": "rival.test"}))["id"].(string)
		cursors := map[string]string{}
		key := func(path string) string {
			if strings.HasPrefix(path, "/operator") {
				return operator
			}
			return s.Dev.APIKey
		}
		for name, path := range lists {
			for kind, id := range known {
				if strings.HasPrefix(path, "/"+kind+"/{") {
					path = strings.Replace(path, "{id}", id, 1)
				}
			}
			lists[name] = path
			cursors[name], _ = into(t, s.APIWithKey(key(path), "GET", path, nil))["next_cursor"].(string)
		}
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			path := lists[name]
			get := func(query string) servertest.Response {
				return s.APIWithKey(key(path), "GET", path+"?"+query, nil)
			}
			down := entries(t, get("limit=100&order=desc"))
			if len(down) < 3 && !slices.Contains([]string{"listMailboxSessions", "listSignIns", "listMigrations", "listDKIMKeys"}, name) {
				t.Errorf("%s: only %d entries", name, len(down))
			}
			up := slices.Clone(down)
			slices.Reverse(up)
			for order, whole := range map[string][]string{"asc": up, "desc": down} {
				testListOrder(t, name, order, whole, get)
			}
			if got := entries(t, get("limit=100")); !slices.Equal(got, down) {
				t.Errorf("%s: the default is %v, want %v", name, got, down)
			}
			foreign := map[string]string{"an id of another account": theirs, "an id of another type": s.Dev.Mailboxes[0].ID.String(), "nonsense": "x"}
			for other, cursor := range cursors {
				if other != name && cursor != "" {
					foreign["the cursor of "+other] = cursor
				}
			}
			if cursors[name] != "" {
				foreign["the cursor of another order"] = into(t, get("order=asc"))["next_cursor"].(string)
			}
			for what, cursor := range foreign {
				for _, field := range []string{"after", "before"} {
					if what == "an id of another type" && name == "listMailboxes" {
						continue
					}
					refused(t, name+" "+field+" "+what, get(field+"="+cursor), 422, "validation_failed", field+" invalid_cursor")
				}
			}
		}
	})
}

// testListOrder reads a list in one order, by cursors and by ids.
func testListOrder(t *testing.T, name, order string, whole []string, get func(query string) servertest.Response) {
	t.Helper()
	var forth []string
	cursor := ""
	for range len(whole) + 1 {
		a := get("limit=1&order=" + order + cursor)
		forth = append(forth, entries(t, a)...)
		next, ok := into(t, a)["next_cursor"].(string)
		if !ok && len(whole) > 0 {
			t.Errorf("%s %s: no cursor: %s", name, order, a.Body)
			return
		}
		if into(t, a)["has_more"] == false {
			break
		}
		cursor = "&after=" + next
	}
	if !slices.Equal(forth, whole) {
		t.Errorf("%s %s: one by one %v, want %v", name, order, forth, whole)
	}
	for i, id := range whole {
		if got := entries(t, get("limit=100&order="+order+"&after="+id)); !slices.Equal(got, whole[i+1:]) {
			t.Errorf("%s %s: after %s come %v of %v", name, order, id, got, whole)
		}
		if got := entries(t, get("limit=100&order="+order+"&before="+id)); !slices.Equal(got, whole[:i]) {
			t.Errorf("%s %s: before %s come %v of %v", name, order, id, got, whole)
		}
	}
	if len(whole) == 0 {
		return
	}
	end := get("limit=1&order=" + order + "&after=" + whole[len(whole)-1])
	again, _ := into(t, end)["next_cursor"].(string)
	if len(entries(t, end)) != 0 || again == "" || len(entries(t, get("order="+order+"&after="+again))) != 0 {
		t.Errorf("%s %s: at the end: %s", name, order, end.Body)
	}
}
