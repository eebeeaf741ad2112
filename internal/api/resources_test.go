// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

const nobody = "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21" // an id that doesn't exist

func TestDomains(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/domains", object{"name": "Bücher.test."})
		status(t, "adding", a, 201)
		d := into(t, a)
		if d["name"] != "xn--bcher-kva.test" || d["display_name"] != "bücher.test" || d["status"] != "pending" || d["ownership_status"] != "pending" {
			t.Errorf("got %s", a.Body)
		}
		kinds := map[any]bool{}
		for _, r := range d["records"].([]any) {
			r := r.(object)
			kinds[r["kind"]] = true
			for _, field := range []string{"type", "name", "value", "ttl", "required", "status", "observed", "error", "last_checked_at"} {
				if _, ok := r[field]; !ok {
					t.Errorf("a record lacks %s: %v", field, r)
				}
			}
		}
		for _, kind := range []string{"MX", "SPF", "DKIM", "DMARC", "OWNERSHIP"} {
			if !kinds[kind] {
				t.Errorf("there is no %s record", kind)
			}
		}
		at, err := time.Parse(time.RFC3339Nano, d["created_at"].(string))
		if err != nil || !strings.HasSuffix(d["created_at"].(string), "Z") || !at.Equal(at.Truncate(time.Microsecond)) {
			t.Errorf("created_at %v: %v", d["created_at"], err)
		}
		path := "/domains/" + d["id"].(string)
		if shown := s.API("GET", path, nil); !bytes.Equal(shown.Body, a.Body) {
			t.Errorf("added as %s, shown as %s", a.Body, shown.Body)
		}
		refused(t, "again", s.API("POST", "/domains", object{"name": "bücher.test"}), 409, "domain_exists")
		refused(t, "a public suffix", s.API("POST", "/domains", object{"name": "co.uk"}), 422, "validation_failed", "name public_suffix")
		refused(t, "the simulator", s.API("POST", "/domains", object{"name": "simulator.test"}), 422, "validation_failed", "name reserved_domain")

		a = s.API("GET", path+"/verify", nil)
		status(t, "the ownership", a, 200)
		if o := into(t, a); o["ownership_status"] != "pending" || o["record"].(object)["kind"] != "OWNERSHIP" {
			t.Errorf("got %s", a.Body)
		}
		a = s.API("POST", path+"/verify", nil)
		status(t, "verifying", a, 200)
		if o := into(t, a); o["ownership_status"] != "verified" || o["status"] != "pending" {
			t.Errorf("got %s", a.Body)
		}
		a = s.API("POST", path+"/verify-dns", nil)
		status(t, "verifying all", a, 200)
		if o := into(t, a); o["status"] != "verified" || o["verified_at"] == nil {
			t.Errorf("got %s", a.Body)
		}
		a = s.API("GET", path+"/zone", nil)
		if a.Status != 200 || a.Header.Get("Content-Type") != "text/dns; charset=utf-8" || !bytes.Contains(a.Body, []byte("v=DMARC1; p=none")) {
			t.Errorf("%d %v %s", a.Status, a.Header, a.Body)
		}
		refused(t, "deleting one with mailboxes", s.API("DELETE", "/domains/"+s.Dev.Domain.ID.String(), nil), 409, "domain_has_mailboxes")
		if a := s.API("DELETE", path, nil); a.Status != 204 || len(a.Body) != 0 || a.Header.Get("Content-Type") != "" {
			t.Errorf("deleting: %d %v %s", a.Status, a.Header, a.Body)
		}
		refused(t, "when gone", s.API("GET", path, nil), 404, "not_found")
	})
}

func TestMailboxes(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		spec := func(change object) object {
			m := object{"domain_id": s.Dev.Domain.ID, "local_part": "carol"}
			for k, v := range change {
				m[k] = v
			}
			return m
		}
		for what, c := range map[string]struct {
			change object
			faults []string
		}{
			"a weak password":  {object{"password": "weak"}, []string{"password too_short", "password missing_uppercase", "password missing_digit", "password missing_special"}},
			"another's domain": {object{"domain_id": nobody}, []string{"domain_id not_found"}},
			"no id":            {object{"domain_id": "x", "password": "weak0000A"}, []string{"domain_id not_found", "password missing_special"}},
			"a huge quota":     {object{"quota_mb": 1 << 40}, []string{"quota_mb out_of_range"}},
			"half a quota":     {object{"quota_mb": 1.5}, []string{"quota_mb wrong_type"}},
			"shape and values": {object{"quota_mb": "2", "password": "Sh0rt!", "display_name": "a\nb", "local_part": "a b"}, []string{"quota_mb wrong_type", "local_part invalid_local_part", "password too_short", "display_name invalid_display_name"}},
			"a line":           {object{"display_name": "a\nb"}, []string{"display_name invalid_display_name"}},
			"a null part":      {object{"local_part": nil, "x": 1}, []string{"x unknown_field", "local_part required"}},
		} {
			refused(t, what, s.API("POST", "/mailboxes", spec(c.change)), 422, "validation_failed", c.faults...)
		}
		refused(t, "beyond all numbers", s.API("POST", "/mailboxes", `{"domain_id":"x","local_part":"x","quota_mb":1`+strings.Repeat("0", 400)+`}`),
			422, "validation_failed", "quota_mb out_of_range", "domain_id not_found")

		a := s.API("POST", "/mailboxes", spec(object{"display_name": "<Carol> & 'co'", "quota_mb": 5, "password": nil}))
		status(t, "making", a, 201)
		m := into(t, a)
		if m["password"] == nil || m["address"] != "carol@demo.test" || m["quota_mb"] != 5.0 || m["status"] != "active" || !bytes.Contains(a.Body, []byte(`"<Carol> & 'co'"`)) {
			t.Errorf("got %s", a.Body)
		}
		path := "/mailboxes/" + m["id"].(string)
		a = s.API("GET", path, nil)
		if shown := into(t, a); shown["password"] != nil || shown["created_at"] != m["created_at"] {
			t.Errorf("made %v, shown %v", m, shown)
		}
		refused(t, "again", s.API("POST", "/mailboxes", spec(object{"local_part": "Carol"})), 409, "address_taken")

		status(t, "changing nothing", s.API("PATCH", path, object{}), 200)
		a = s.API("PATCH", path, object{"display_name": "", "quota_mb": 7, "status": "suspended"})
		if got := into(t, a); a.Status != 200 || got["display_name"] != "" || got["quota_mb"] != 7.0 || got["status"] != "suspended" {
			t.Errorf("changed to %s", a.Body)
		}
		a = s.API("PATCH", path, object{"status": "active", "quota_mb": nil})
		if got := into(t, a); a.Status != 200 || got["quota_mb"] != 7.0 || got["status"] != "active" {
			t.Errorf("changed to %s", a.Body)
		}
		refused(t, "an unknown status", s.API("PATCH", path, object{"status": "asleep", "quota_mb": -1}), 422, "validation_failed", "quota_mb out_of_range", "status unknown_value")
		refused(t, "an address", s.API("PATCH", path, object{"address": "x@y.test"}), 422, "validation_failed", "address unknown_field")
		refused(t, "no change at all", s.API("PATCH", path, ""), 400, "invalid_json")

		passwords(t, s, path)
		restoring(t, s, path)
	})
}

func passwords(t *testing.T, s *servertest.Server, path string) {
	t.Helper()
	for what, body := range map[string]any{"no body": nil, "an empty body": "", "an empty object": object{}, "null": object{"password": nil}} {
		a := s.API("POST", path+"/password", body)
		status(t, what, a, 200)
		if p, _ := into(t, a)["password"].(string); len(p) < 8 {
			t.Errorf("%s: %s", what, a.Body)
		}
	}
	a := s.API("POST", path+"/password", object{"password": "C0rrect<horse>"})
	if a.Status != 200 || string(bytes.TrimSpace(a.Body)) != `{"password":null}` {
		t.Errorf("a given password: %d %s", a.Status, a.Body)
	}
	a = s.API("POST", path+"/password", object{"password": "onlylowercase"})
	refused(t, "a weak one", a, 422, "validation_failed", "password missing_uppercase", "password missing_digit", "password missing_special")
	if bytes.Contains(a.Body, []byte("onlylowercase")) {
		t.Errorf("the password is repeated: %s", a.Body)
	}
	refused(t, "bad JSON", s.API("POST", path+"/password", "secret"), 400, "invalid_json")
	refused(t, "a form", call(t, s, "POST", "/api/v1"+path+"/password", nil, newReader("password=x")), 415, "unsupported_media_type")
}

func restoring(t *testing.T, s *servertest.Server, path string) {
	t.Helper()
	refused(t, "one that lives", s.API("POST", path+"/restore", nil), 409, "not_deleted")
	status(t, "deleting", s.API("DELETE", path, nil), 204)
	refused(t, "when deleted", s.API("GET", path, nil), 404, "not_found")
	refused(t, "again", s.API("DELETE", path, nil), 404, "not_found")
	a := s.API("GET", "/mailboxes?deleted=true", nil)
	if data := into(t, a)["data"].([]any); len(data) != 1 || data[0].(object)["deleted_at"] == nil {
		t.Errorf("deleted ones: %s", a.Body)
	}
	a = s.API("POST", path+"/restore", nil)
	status(t, "restoring", a, 200)
	if into(t, a)["deleted_at"] != nil {
		t.Errorf("restored: %s", a.Body)
	}
}

// Paging forward and back shows each item once, newest first.
func TestPages(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		for i := range 5 {
			status(t, "adding", s.API("POST", "/domains", object{"name": fmt.Sprintf("d%d.test", i)}), 201)
			newKey(t, s, object{})
			status(t, "a mailbox", s.API("POST", "/mailboxes", object{"domain_id": s.Dev.Domain.ID, "local_part": fmt.Sprint("m", i), "password": "Aa1!aaaa"}), 201)
			status(t, "sending", s.API("POST", "/outbound/send", mail(object{"to": []string{"x@simulator.test"}})), 202)
		}
		for _, path := range []string{"/domains", "/api-keys", "/mailboxes", "/outbound/messages"} {
			whole := ids(t, s.API("GET", path+"?limit=100", nil))
			if len(whole) < 5 {
				t.Errorf("%s: only %d", path, len(whole))
			}
			var forth, back []string
			cursor := walk(t, s, path, "after", "", func(page []string) { forth = append(forth, page...) })
			if fmt.Sprint(forth) != fmt.Sprint(whole) {
				t.Errorf("%s: forth %v, whole %v", path, forth, whole)
			}
			walk(t, s, path, "before", cursor, func(page []string) { back = append(page, back...) })
			if want := whole[:len(whole)-1]; fmt.Sprint(back) != fmt.Sprint(want) {
				t.Errorf("%s: back %v, want %v", path, back, want)
			}
		}
	})
}

// walk follows the cursors of a list in pages of two, and returns the last id.
func walk(t *testing.T, s *servertest.Server, path, direction, cursor string, see func(page []string)) (last string) {
	t.Helper()
	for range 100 {
		to := path + "?limit=2"
		if cursor != "" {
			to += "&" + direction + "=" + cursor
		}
		a := s.API("GET", to, nil)
		page := ids(t, a)
		see(page)
		o := into(t, a)
		if len(page) > 2 || len(page) > 0 && o["next_cursor"] == nil || o["has_more"] == true && len(page) != 2 {
			t.Fatalf("%s: a strange page: %s", path, a.Body)
		}
		if len(page) > 0 {
			last = page[len(page)-1]
		}
		if o["has_more"] == false {
			return last
		}
		cursor = o["next_cursor"].(string)
	}
	t.Fatalf("%s has no end", path)
	return ""
}

func ids(t *testing.T, a servertest.Response) (all []string) {
	t.Helper()
	status(t, "listing", a, http.StatusOK)
	for _, one := range into(t, a)["data"].([]any) {
		all = append(all, one.(object)["id"].(string))
	}
	return all
}
