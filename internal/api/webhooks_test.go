// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// sink accepts any request.
func sink(t *testing.T) (url string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(s.Close)
	return s.URL
}

// A domain-restricted key sees and creates webhooks of its domain only.
func TestWebhooksOfOneDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		url := sink(t)
		other := into(t, s.API("POST", "/domains", object{"name": "other.test"}))["id"].(string)
		_, key := newKey(t, s, object{"scopes": []string{"webhooks.read", "webhooks.write", "mail.read"}, "domain": "other.test"})
		demo, alice := s.Dev.Domain.ID.String(), s.Dev.Mailboxes[0].ID.String()
		made := func(as string, more object) string {
			t.Helper()
			body := object{"url": url, "events": []string{"all"}}
			for name, value := range more {
				body[name] = value
			}
			a := s.APIWithKey(as, "POST", "/webhooks", body)
			status(t, "making a webhook", a, 201)
			return into(t, a)["id"].(string)
		}
		foreign := []string{
			made(s.Dev.APIKey, nil), made(s.Dev.APIKey, object{"domains": []string{demo}}), made(s.Dev.APIKey, object{"domains": []string{demo, other}}),
			made(s.Dev.APIKey, object{"mailboxes": []string{alice}}), made(s.Dev.APIKey, object{"domains": []string{other}, "mailboxes": []string{alice}}),
		}
		own := []string{made(s.Dev.APIKey, object{"domains": []string{other}}), made(key, nil), made(key, object{"domains": []string{other}})}
		for _, id := range foreign {
			path := "/webhooks/" + id
			for what, a := range map[string]servertest.Response{
				"showing": s.APIWithKey(key, "GET", path, nil), "changing": s.APIWithKey(key, "PATCH", path, object{"description": "mine"}), "deleting": s.APIWithKey(key, "DELETE", path, nil),
				"testing": s.APIWithKey(key, "POST", path+"/test", nil), "rotating": s.APIWithKey(key, "POST", path+"/rotate-secret", nil), "listing": s.APIWithKey(key, "GET", path+"/deliveries", nil),
				"one": s.APIWithKey(key, "GET", path+"/deliveries/"+id, nil), "redelivering": s.APIWithKey(key, "POST", path+"/deliveries/"+id+"/redeliver", nil),
				"replaying": s.APIWithKey(key, "POST", path+"/replay?created_after=2026-01-01T00:00:00Z", nil),
			} {
				refused(t, what, a, 404, "not_found")
			}
		}
		var l struct {
			Data []struct {
				ID      string
				Domains []string
			}
		}
		s.APIWithKey(key, "GET", "/webhooks", nil).Decode(t, &l)
		if len(l.Data) != len(own) {
			t.Errorf("the key sees %v", l.Data)
		}
		for i, w := range l.Data {
			if w.ID != own[len(own)-1-i] || len(w.Domains) != 1 || w.Domains[0] != other {
				t.Errorf("the key sees %v", w)
			}
			status(t, "testing", s.APIWithKey(key, "POST", "/webhooks/"+w.ID+"/test", nil), 200)
		}
		body := object{"url": "x", "events": []string{"all"}, "domains": []string{other, demo}, "mailboxes": []string{alice}}
		refused(t, "another's", s.APIWithKey(key, "POST", "/webhooks", body), 422, "validation_failed", "url invalid_url", "domains[1] not_found", "mailboxes[0] not_found")
		path := "/webhooks/" + own[0]
		refused(t, "no filter", s.APIWithKey(key, "PATCH", path, object{"domains": []string{}}), 403, "domain_restricted")
		refused(t, "another filter", s.APIWithKey(key, "PATCH", path, object{"domains": []string{demo}}), 422, "validation_failed", "domains[0] not_found")
		refused(t, "one more", s.APIWithKey(key, "PATCH", path, object{"mailboxes": []string{alice}}), 422, "validation_failed", "mailboxes[0] not_found")
		status(t, "a change", s.APIWithKey(key, "PATCH", path, object{"events": []string{"bounce"}}), 200)
		status(t, "deleting", s.APIWithKey(key, "DELETE", path, nil), 204)

		// This webhook is now limited to its domain, but its earlier deliveries concern others.
		narrowed := foreign[0]
		status(t, "a new mailbox", s.API("POST", "/mailboxes", object{"domain_id": demo, "local_part": "more"}), 201)
		servertest.Eventually(t, func() string {
			if s.API("GET", "/webhooks/"+narrowed+"/deliveries?status=delivered", nil).Decode(t, &l); len(l.Data) == 0 {
				return "it got nothing yet"
			}
			return ""
		})
		status(t, "narrowing", s.API("PATCH", "/webhooks/"+narrowed, object{"domains": []string{other}}), 200)
		status(t, "testing", s.APIWithKey(key, "POST", "/webhooks/"+narrowed+"/test", nil), 200)
		path = "/webhooks/" + narrowed + "/deliveries/" + l.Data[0].ID
		refused(t, "what it got before", s.APIWithKey(key, "GET", path, nil), 404, "not_found")
		refused(t, "what it got before, again", s.APIWithKey(key, "POST", path+"/redeliver", nil), 404, "not_found")
		var seen struct{ Data []struct{ Test bool } }
		s.APIWithKey(key, "GET", "/webhooks/"+narrowed+"/deliveries", nil).Decode(t, &seen)
		if len(seen.Data) != 1 || !seen.Data[0].Test {
			t.Errorf("the key sees %v", seen.Data)
		}

		_, nowhere := newKey(t, s, object{"domain": "nowhere.test"})
		refused(t, "a domain that is not there", s.APIWithKey(nowhere, "POST", "/webhooks", object{"url": url, "events": []string{"all"}}), 403, "domain_restricted")
	})
}

// A webhook for a deleted mailbox can be changed, as long as the change doesn't name the mailbox
// again.
func TestWebhookOfADeletedMailbox(t *testing.T) {
	s := servertest.Start(t)
	box := into(t, s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": "gone"}))["id"]
	hook := into(t, s.API("POST", "/webhooks", object{"url": sink(t), "events": []string{"all"}, "mailboxes": []any{box}}))["id"].(string)
	status(t, "deleting the mailbox", s.API("DELETE", "/mailboxes/"+box.(string), nil), 204)
	for _, change := range []object{{"description": "the till"}, {"url": sink(t)}, {"status": "disabled"}, {"events": []string{"bounce"}, "status": "enabled"}} {
		a := s.API("PATCH", "/webhooks/"+hook, change)
		status(t, fmt.Sprint(change), a, 200)
		if is := into(t, a); fmt.Sprint(is["mailboxes"]) != fmt.Sprint([]any{box}) {
			t.Errorf("after %v it is for %v", change, is["mailboxes"])
		}
	}
	refused(t, "named anew", s.API("PATCH", "/webhooks/"+hook, object{"mailboxes": []any{box}}), 422, "validation_failed", "mailboxes[0] not_found")
	status(t, "for everything", s.API("PATCH", "/webhooks/"+hook, object{"mailboxes": []any{}}), 200)
}

// All errors of a webhook are reported at once; the response doesn't repeat its values.
func TestWebhookRules(t *testing.T) {
	s := servertest.Start(t)
	url := sink(t)
	for _, k := range []struct {
		what   string
		body   object
		faults []string
	}{
		{"nothing", object{}, []string{"url required", "events required"}},
		{"no kinds", object{"url": url, "events": []string{}}, []string{"events required"}},
		{"unknown kinds", object{"url": url, "events": []string{"bounce", "bounces", "all", "ALL"}}, []string{"events[1] unknown_value", "events[3] unknown_value"}},
		{"everything", object{"url": "http://u:s3cret@127.0.0.1/", "events": []string{"s3cret"}, "description": strings.Repeat("s3cret ", 30), "domains": []string{"s3cret"}},
			[]string{"events[0] unknown_value", "url userinfo_not_allowed", "description too_long", "domains[0] not_found"}},
		{"many domains", object{"url": url, "events": []string{"all"}, "domains": make([]string, 101)}, []string{"domains too_many"}},
		{"an address that is not public", object{"url": "https://10.0.0.1/", "events": []string{"all"}}, []string{"url address_not_allowed"}},
		{"the metadata service", object{"url": "https://169.254.169.254/latest", "events": []string{"all"}}, []string{"url address_not_allowed"}},
		{"in clear", object{"url": "http://203.0.114.1/", "events": []string{"all"}}, []string{"url https_required"}},
		{"what there is not, and more", object{"name": "s3cret", "url": "ftp://s3cret/", "events": []string{"s3cret"}, "description": 5},
			[]string{"description wrong_type", "events[0] unknown_value", "name unknown_field", "url invalid_url"}},
		{"not even a list", object{"events": "s3cret"}, []string{"events wrong_type", "url required"}},
		{"a secret of one's own", object{"url": url, "events": []string{"all"}, "secret": "s3cret"}, []string{"secret unknown_field"}},
	} {
		a := s.API("POST", "/webhooks", k.body)
		refused(t, k.what, a, 422, "validation_failed", k.faults...)
		if strings.Contains(string(a.Body), "s3cret") {
			t.Errorf("%s: it comes back: %s", k.what, a.Body)
		}
	}
	a := s.API("POST", "/webhooks", object{"url": url, "events": []string{"bounce", "all", "bounce"}})
	status(t, "all with others", a, 201)
	w := into(t, a)
	if fmt.Sprint(w["events"]) != "[all]" {
		t.Errorf("made %s", a.Body)
	}
	path := "/webhooks/" + w["id"].(string)
	for _, a := range []servertest.Response{s.API("GET", path, nil), s.API("GET", "/webhooks", nil), s.API("PATCH", path, object{"status": "enabled"})} {
		if strings.Contains(string(a.Body), "whsec_") || !strings.Contains(string(a.Body), `"secret":null`) {
			t.Errorf("the secret shows: %s", a.Body)
		}
	}
	refused(t, "a change", s.API("PATCH", path, object{"name": "x", "url": "ftp://x", "events": []string{}, "status": "gone"}), 422, "validation_failed",
		"name unknown_field", "status unknown_value", "url invalid_url", "events required")
	refused(t, "a rotation", s.API("POST", path+"/rotate-secret", object{"overlap_hours": 25}), 422, "validation_failed", "overlap_hours out_of_range")
	refused(t, "a rotation", s.API("POST", path+"/rotate-secret", object{"overlap_hours": -1}), 422, "validation_failed", "overlap_hours out_of_range")
	refused(t, "a replay", s.API("POST", path+"/replay", nil), 422, "validation_failed", "created_after required")
	refused(t, "a replay", s.API("POST", path+"/replay?created_after=yesterday", nil), 422, "validation_failed", "created_after invalid_time")
	for range 49 {
		status(t, "making", s.API("POST", "/webhooks", object{"url": url, "events": []string{"all"}}), 201)
	}
	refused(t, "one too many", s.API("POST", "/webhooks", object{"url": url, "events": []string{"all"}}), 409, "too_many_webhooks")
}

// Each of two concurrent changes leaves the webhook a filter; both together would remove it. The
// webhook would then get events that its key may not see.
func TestWebhookKeepsItsDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo, alice := s.Dev.Domain.ID.String(), s.Dev.Mailboxes[0].ID.String()
		_, key := newKey(t, s, object{"scopes": []string{"webhooks.read", "webhooks.write"}, "domain": "demo.test"})
		for range 20 {
			a := s.APIWithKey(key, "POST", "/webhooks", object{"url": sink(t), "events": []string{"all"}, "domains": []string{demo}, "mailboxes": []string{alice}})
			status(t, "making a webhook", a, 201)
			path := "/webhooks/" + into(t, a)["id"].(string)
			var both sync.WaitGroup
			for _, field := range []string{"domains", "mailboxes"} {
				both.Go(func() { s.APIWithKey(key, "PATCH", path, object{field: []string{}}) })
			}
			both.Wait()
			w := into(t, s.API("GET", path, nil))
			if len(w["domains"].([]any))+len(w["mailboxes"].([]any)) == 0 {
				t.Fatal("the webhook gets the events of the whole account")
			}
			status(t, "deleting a webhook", s.API("DELETE", path, nil), 204)
		}
	})
}

// Deliveries queued before a webhook was limited to one domain concern others: a key of that domain
// can't redirect them.
func TestWebhookKeepsWhatWaits(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		fails := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
		t.Cleanup(fails.Close)
		other := into(t, s.API("POST", "/domains", object{"name": "other.test"}))["id"].(string)
		_, key := newKey(t, s, object{"scopes": []string{"webhooks.write", "mail.read"}, "domain": "other.test"})
		path := "/webhooks/" + into(t, s.API("POST", "/webhooks", object{"url": fails.URL, "events": []string{"mailbox_created"}}))["id"].(string)
		status(t, "a new mailbox", s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": "more"}), 201)
		servertest.Eventually(t, func() string {
			if l := into(t, s.API("GET", path+"/deliveries?status=pending", nil))["data"].([]any); len(l) == 0 {
				return "nothing waits yet"
			}
			return ""
		})
		status(t, "narrowing", s.API("PATCH", path, object{"domains": []string{other}}), 200)
		refused(t, "what waits, elsewhere", s.APIWithKey(key, "PATCH", path, object{"url": sink(t)}), 409, "deliveries_wait")
		status(t, "the same place", s.APIWithKey(key, "PATCH", path, object{"url": fails.URL, "description": "mine"}), 200)
		status(t, "a key for all domains", s.API("PATCH", path, object{"url": sink(t)}), 200)
		servertest.Eventually(t, func() string {
			if l := into(t, s.API("GET", path+"/deliveries?status=pending", nil))["data"].([]any); len(l) > 0 {
				return "it still waits"
			}
			return ""
		})
		status(t, "once nothing waits", s.APIWithKey(key, "PATCH", path, object{"url": fails.URL}), 200)
	})
}
