// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

func TestKeys(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		end := time.Now().Add(time.Hour).UTC().Truncate(time.Second).Format(apijson.TimeFormat)
		a := s.API("POST", "/api-keys", object{"name": "shop", "scopes": []string{"domains.read"}, "allowed_ips": []string{"127.0.0.1"}, "expires_at": end})
		status(t, "making", a, 201)
		made := into(t, a)
		key, id := made["key"].(string), made["id"].(string)
		if made["expires_at"] != end || made["domain"] != nil || fmt.Sprint(made["allowed_ips"]) != "[127.0.0.1/32]" || made["last_used_at"] != nil {
			t.Errorf("made %s", a.Body)
		}
		status(t, "reading", s.APIWithKey(key, "GET", "/domains", nil), 200)
		refused(t, "writing", s.APIWithKey(key, "POST", "/domains", object{"name": "x.test"}), 403, "missing_scope")
		refused(t, "others", s.APIWithKey(key, "GET", "/mailboxes", nil), 403, "missing_scope")
		refused(t, "sending", s.APIWithKey(key, "POST", "/outbound/send", mail(nil)), 403, "missing_scope")
		for _, k := range into(t, s.API("GET", "/api-keys", nil))["data"].([]any) {
			if k.(object)["key"] != nil {
				t.Errorf("a list shows a key: %v", k)
			}
		}
		refused(t, "no scopes", s.API("POST", "/api-keys", object{"name": "x", "scopes": []string{}}), 422, "validation_failed", "scopes required")
		refused(t, "all faults", s.API("POST", "/api-keys", object{"name": " ", "scopes": []string{"x"}, "domain": "-", "allowed_ips": []string{"300.1.1.1"}, "expires_at": "2001-01-01T00:00:00Z"}),
			422, "validation_failed", "name invalid_name", "scopes[0] unknown_scope", "domain invalid_domain", "allowed_ips[0] invalid_network", "expires_at in_the_past")

		status(t, "deleting", s.API("DELETE", "/api-keys/"+id, nil), 204)
		refused(t, "a deleted key", s.APIWithKey(key, "GET", "/domains", nil), 401, "invalid_api_key")
		refused(t, "deleting again", s.API("DELETE", "/api-keys/"+id, nil), 404, "not_found")
		_, far := newKey(t, s, object{"allowed_ips": []string{"192.0.2.0/24"}})
		refused(t, "from elsewhere", s.APIWithKey(far, "GET", "/domains", nil), 403, "ip_not_allowed")
		_, own := newKey(t, s, object{"scopes": []string{"api_keys.write"}})
		mine := into(t, s.APIWithKey(own, "GET", "/api-keys?limit=1", nil))["data"].([]any)[0].(object)["id"].(string)
		status(t, "a key deletes itself", s.APIWithKey(own, "DELETE", "/api-keys/"+mine, nil), 204)
		refused(t, "afterwards", s.APIWithKey(own, "GET", "/api-keys", nil), 401, "invalid_api_key")
	})
}

// A key can't create a key with more rights than its own.
func TestPrivilege(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		make := func(key string, spec object) servertest.Response {
			spec["name"] = "made"
			return s.APIWithKey(key, "POST", "/api-keys", spec)
		}
		end := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		_, weak := newKey(t, s, object{"scopes": []string{"api_keys.write", "domains.write"}, "domain": "demo.test",
			"allowed_ips": []string{"127.0.0.0/8"}, "expires_at": end})
		for what, c := range map[string]struct {
			spec object
			code string
		}{
			"everything":        {object{"scopes": []string{"*"}}, "scope_exceeded"},
			"sending":           {object{"scopes": []string{"domains.read", "outbound.send"}}, "scope_exceeded"},
			"all accounts":      {object{"scopes": []string{"operator"}}, "scope_exceeded"},
			"another domain":    {object{"domain": "other.test"}, "domain_exceeded"},
			"a longer life":     {object{"expires_at": end.Add(time.Second)}, "expiry_exceeded"},
			"all networks":      {object{"allowed_ips": []string{"0.0.0.0/0"}}, "networks_exceeded"},
			"another network":   {object{"allowed_ips": []string{"127.0.0.1", "192.0.2.1"}}, "networks_exceeded"},
			"everything mapped": {object{"allowed_ips": []string{"::/0"}}, "networks_exceeded"},
		} {
			refused(t, what, make(weak, c.spec), 403, c.code)
		}
		a := make(weak, object{})
		status(t, "as it is itself", a, 201)
		got := into(t, a)
		if fmt.Sprint(got["scopes"]) != "[api_keys.write domains.write]" || got["domain"] != "demo.test" ||
			fmt.Sprint(got["allowed_ips"]) != "[127.0.0.0/8]" || got["expires_at"] != apijson.FormatTime(end) {
			t.Errorf("got %s", a.Body)
		}
		status(t, "less", make(weak, object{"scopes": []string{"domains.read"}, "domain": "DEMO.test", "allowed_ips": []string{"127.0.0.1"}, "expires_at": end.Add(-time.Minute)}), 201)
		_, reader := newKey(t, s, object{"scopes": []string{"api_keys.read"}})
		refused(t, "with a key that may only read", make(reader, object{}), 403, "missing_scope")
	})
}

// A domain-restricted key sees nothing of other domains.
func TestOneDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		demo := s.Dev.Domain.ID.String()
		other := verified(t, s, s.Dev.APIKey, "other.test")
		a := s.API("POST", "/mailboxes", object{"domain_id": other, "local_part": "zoe", "password": "Aa1!aaaa"})
		status(t, "a mailbox there", a, 201)
		box := into(t, a)["id"].(string)
		a = s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": "zed", "password": "Aa1!aaaa"})
		status(t, "a mailbox here", a, 201)
		own := into(t, a)["id"].(string)
		masterID, _ := newKey(t, s, object{})
		keyID, key := newKey(t, s, object{"domain": "demo.test"})

		if got := ids(t, s.APIWithKey(key, "GET", "/domains", nil)); !slices.Equal(got, []string{demo}) {
			t.Errorf("domains: %v", got)
		}
		if got := ids(t, s.APIWithKey(key, "GET", "/domains?after="+demo, nil)); len(got) != 0 {
			t.Errorf("domains after the only one: %v", got)
		}
		if got := ids(t, s.APIWithKey(key, "GET", "/mailboxes", nil)); len(got) != 3 || slices.Contains(got, box) {
			t.Errorf("mailboxes: %v", got)
		}
		if got := ids(t, s.APIWithKey(key, "GET", "/api-keys", nil)); !slices.Equal(got, []string{keyID}) {
			t.Errorf("keys: %v", got)
		}
		refused(t, "a list by another domain", s.APIWithKey(key, "GET", "/mailboxes?domain_id="+other, nil), 422, "validation_failed", "domain_id not_found")
		refused(t, "adding domains", s.APIWithKey(key, "POST", "/domains", object{"name": "new.test"}), 403, "domain_restricted")
		for _, route := range []string{"GET /domains/" + other, "DELETE /domains/" + other, "POST /domains/" + other + "/verify", "GET /domains/" + other + "/verify",
			"POST /domains/" + other + "/verify-dns", "GET /domains/" + other + "/zone", "GET /mailboxes/" + box, "DELETE /mailboxes/" + box,
			"POST /mailboxes/" + box + "/restore", "POST /mailboxes/" + box + "/password", "DELETE /api-keys/" + masterID} {
			var method, path string
			_, _ = fmt.Sscan(route, &method, &path)
			refused(t, route, s.APIWithKey(key, method, path, nil), 404, "not_found")
		}
		refused(t, "changing", s.APIWithKey(key, "PATCH", "/mailboxes/"+box, object{}), 404, "not_found")
		refused(t, "a mailbox there", s.APIWithKey(key, "POST", "/mailboxes", object{"domain_id": other, "local_part": "x"}), 422, "validation_failed", "domain_id not_found")
		status(t, "deleting its own", s.APIWithKey(key, "DELETE", "/mailboxes/"+own, nil), 204)
		status(t, "restoring its own", s.APIWithKey(key, "POST", "/mailboxes/"+own+"/restore", nil), 200)

		refused(t, "sending as another", s.APIWithKey(key, "POST", "/outbound/send", mail(object{"from_email": "zoe@other.test"})), 403, "sender_not_allowed")
		foreign := into(t, s.API("POST", "/outbound/send", mail(object{"from_email": "zoe@other.test", "to": []string{"delivered@simulator.test"}})))["id"].(string)
		a = s.APIWithKey(key, "POST", "/outbound/send", mail(object{"to": []string{"delivered@simulator.test"}}))
		status(t, "sending", a, 202)
		sent := into(t, a)["id"].(string)
		status(t, "its message", s.APIWithKey(key, "GET", "/outbound/messages/"+sent, nil), 200)
		refused(t, "another's message", s.APIWithKey(key, "GET", "/outbound/messages/"+foreign, nil), 404, "not_found")
		status(t, "its text", s.APIWithKey(key, "GET", "/outbound/messages/"+sent+"/raw", nil), 200)
		refused(t, "another's text", s.APIWithKey(key, "GET", "/outbound/messages/"+foreign+"/raw", nil), 404, "not_found")
		_, looks := newKey(t, s, object{"scopes": []string{"messages.read"}})
		refused(t, "a key that may not read mail", s.APIWithKey(looks, "GET", "/outbound/messages/"+sent+"/raw", nil), 403, "missing_scope")
		status(t, "its events", s.APIWithKey(key, "GET", "/events?message="+sent, nil), 200)
		if got := ids(t, s.APIWithKey(key, "GET", "/events?message="+foreign, nil)); len(got) > 0 {
			t.Errorf("another's events: %v", got)
		}
		ownEvents(t, s, key, s.Dev.Domain.ID.String(), sent)
		if got := ids(t, s.APIWithKey(key, "GET", "/outbound/messages", nil)); !slices.Equal(got, []string{sent}) {
			t.Errorf("messages: %v", got)
		}
		refused(t, "messages of another domain", s.APIWithKey(key, "GET", "/outbound/messages?domain_id="+other, nil), 422, "validation_failed", "domain_id not_found")
		refused(t, "messages of another mailbox", s.APIWithKey(key, "GET", "/outbound/messages?mailbox_id="+box, nil), 422, "validation_failed", "mailbox_id not_found")
	})
}

// A key of a suspended account can't be used.
func TestSuspendedAccount(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
		if err != nil {
			t.Fatal(err)
		}
		suspend(t, s, acc.ID)
		for _, route := range [][2]string{{"GET", "/domains"}, {"POST", "/outbound/send"}, {"DELETE", "/api-keys/" + nobody}} {
			refused(t, route[1], s.API(route[0], route[1], nil), 403, "account_suspended")
		}
	})
}
