// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// ownEvents fails the test unless a domain-restricted key sees only its domain's events, on every
// endpoint, among them those of a sent message.
func ownEvents(t *testing.T, s *servertest.Server, key, domain, message string) {
	t.Helper()
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})
	defer sub.Close()
	for len(ids(t, s.APIWithKey(key, "GET", "/events?message="+message, nil))) == 0 { // it may take a moment
		select {
		case <-sub.C:
		case <-t.Context().Done():
			t.Fatal("no event of the message")
		}
	}
	var all []string
	kinds := map[string]bool{}
	for _, e := range into(t, s.APIWithKey(key, "GET", "/events?limit=100", nil))["data"].([]any) {
		event := e.(object)
		data := event["data"].(object)
		if data["domain_id"] != domain && data["id"] != message {
			t.Errorf("another domain's event: %v", event)
		}
		all = append(all, event["id"].(string))
		kinds[event["type"].(string)] = true
	}
	if !kinds["domain_verified"] || !kinds["mailbox_created"] || !kinds["delivery_status"] {
		t.Errorf("kinds of event: %v", kinds)
	}
	var paged []string
	after := ""
	for {
		page := s.APIWithKey(key, "GET", "/events?limit=1"+after, nil)
		paged = append(paged, ids(t, page)...)
		if into(t, page)["has_more"] == false {
			break
		}
		after = "&after=" + into(t, page)["next_cursor"].(string)
	}
	if !slices.Equal(paged, all) {
		t.Errorf("one by one: %v, want %v", paged, all)
	}
	back := s.APIWithKey(key, "GET", "/events?limit=1&order=asc", nil)
	if got := ids(t, back); len(all) < 2 || !slices.Equal(got, all[len(all)-1:]) {
		t.Errorf("from the beginning: %v, want %v", got, all[len(all)-1])
	}
	refused(t, "one kind", s.APIWithKey(key, "GET", "/events?type=x", nil), 422, "validation_failed", "type unknown_value")
}
