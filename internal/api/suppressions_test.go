// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// addresses returns the addresses in a list response.
func addresses(t *testing.T, a servertest.Response) (all []string) {
	t.Helper()
	status(t, "listing", a, 200)
	var list struct{ Data []struct{ Email string } }
	a.Decode(t, &list)
	for _, e := range list.Data {
		all = append(all, e.Email)
	}
	return all
}

func TestSuppressions(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/suppressions", object{"email": "Gone@Example.org"})
		status(t, "adding", a, 201)
		gone := into(t, a)
		if gone["email"] != "gone@example.org" || gone["reason"] != "manual" || gone["message"] != nil || gone["diagnostic"] != nil || gone["simulated"] != false {
			t.Errorf("%s", a.Body)
		}
		a = s.API("POST", "/suppressions", object{"email": "gone@example.org", "reason": "bounce"})
		if o := into(t, a); a.Status != 201 || o["id"] != gone["id"] || o["reason"] != "manual" {
			t.Errorf("again: %d %s", a.Status, a.Body)
		}
		a = s.API("POST", "/suppressions/batch", object{"emails": []string{"left@example.org", "gone@example.org"}, "reason": "unsubscribe"})
		if got := into(t, a)["data"].([]any); a.Status != 201 || len(got) != 2 || got[1].(object)["id"] == gone["id"] || got[1].(object)["reason"] != "unsubscribe" {
			t.Errorf("several: %d %s", a.Status, a.Body)
		}

		for what, c := range map[string]struct {
			path   string
			body   object
			faults []string
		}{
			"nothing":        {"", object{}, []string{"email required"}},
			"empty":          {"", object{"email": ""}, []string{"email invalid_address"}},
			"no address":     {"", object{"email": "s3cret", "reason": "x"}, []string{"reason unknown_value", "email invalid_address"}},
			"simulator":      {"", object{"email": "bounced+x@simulator.test"}, []string{"email simulator_address"}},
			"a named one":    {"", object{"email": "Bob <bob@example.org>"}, []string{"email invalid_address"}},
			"none of many":   {"/batch", object{"emails": []string{}}, []string{"emails wrong_number"}},
			"too many":       {"/batch", object{"emails": slices.Repeat([]string{"a@example.org"}, 1001)}, []string{"emails wrong_number"}},
			"some of many":   {"/batch", object{"emails": []string{"new@example.org", "x", "delivered@simulator.test"}}, []string{"emails[1] invalid_address", "emails[2] simulator_address"}},
			"unknown fields": {"", object{"email": "a@example.org", "mail": "s3cret"}, []string{"mail unknown_field"}},
			"all":            {"", object{"email": "s3cret", "reason": "x", "mail": "s3cret"}, []string{"mail unknown_field", "reason unknown_value", "email invalid_address"}},
			"all of many":    {"/batch", object{"emails": []any{5, "x"}, "reason": "x", "y": 1}, []string{"emails[0] wrong_type", "reason unknown_value", "y unknown_field", "emails[1] invalid_address"}},
		} {
			a := s.API("POST", "/suppressions"+c.path, c.body)
			refused(t, what, a, 422, "validation_failed", c.faults...)
			if strings.Contains(string(a.Body), "s3cret") {
				t.Errorf("%s: %s", what, a.Body)
			}
		}

		for query, want := range map[string]string{
			"": "[gone@example.org left@example.org gone@example.org]", "?reason=manual": "[gone@example.org]", "?reason=complaint": "[]",
			"?email=GONE@example.org": "[gone@example.org gone@example.org]", "?email=gone@example.org&reason=unsubscribe": "[gone@example.org]",
			"?email=nobody@example.org": "[]", "?limit=1": "[gone@example.org]",
		} {
			if got := fmt.Sprint(addresses(t, s.API("GET", "/suppressions"+query, nil))); got != want {
				t.Errorf("%s: %s, want %s", query, got, want)
			}
		}
		refused(t, "a query", s.API("GET", "/suppressions?limit=0&reason=x&email=y&after=z&word=", nil), 422, "validation_failed",
			"limit out_of_range", "reason unknown_value", "word unknown_parameter", "email invalid_address", "after invalid_cursor")
		var forth []string
		walk(t, s, "/suppressions", "after", "", func(page []string) { forth = append(forth, page...) })
		if len(forth) != 3 || forth[2] != gone["id"] {
			t.Errorf("page by page: %v", forth)
		}
		refused(t, "bad filters", s.API("GET", "/suppressions?reason=x&email=y&after=z", nil), 422, "validation_failed",
			"reason unknown_value", "email invalid_address", "after invalid_cursor")

		for _, path := range []string{gone["id"].(string), "gone@example.org", "GONE%40example.org"} {
			if a := s.API("GET", "/suppressions/"+path, nil); a.Status != 200 || into(t, a)["id"] != gone["id"] {
				t.Errorf("%s: %d %s", path, a.Status, a.Body)
			}
		}
		rival := stranger(t, s)
		_, restricted := newKey(t, s, object{"domain": "demo.test"})
		_, reader := newKey(t, s, object{"scopes": []string{"suppressions.read"}})
		for _, path := range []string{gone["id"].(string), "gone@example.org", "nobody@example.org", "x"} {
			for _, method := range []string{"GET", "DELETE"} {
				refused(t, "a stranger", s.APIWithKey(rival, method, "/suppressions/"+path, nil), 404, "not_found")
				refused(t, "a key of one domain", s.APIWithKey(restricted, method, "/suppressions/"+path, nil), 403, "domain_restricted")
			}
			refused(t, "a reader", s.APIWithKey(reader, "DELETE", "/suppressions/"+path, nil), 403, "missing_scope")
		}
		if got := addresses(t, s.APIWithKey(rival, "GET", "/suppressions", nil)); len(got) != 0 {
			t.Errorf("a stranger sees %v", got)
		}
		for _, path := range []string{"GET /suppressions", "GET /suppressions/export", "POST /suppressions", "POST /suppressions/batch"} {
			method, path, _ := strings.Cut(path, " ")
			var body any
			if method == "POST" {
				body = object{"email": "a@example.org"}
				if strings.HasSuffix(path, "batch") {
					body = object{"emails": []string{"a@example.org"}}
				}
				refused(t, "a reader", s.APIWithKey(reader, method, path, body), 403, "missing_scope")
			}
			refused(t, "a key of one domain", s.APIWithKey(restricted, method, path, body), 403, "domain_restricted")
		}

		status(t, "deleting", s.API("DELETE", "/suppressions/"+gone["id"].(string), nil), 204)
		refused(t, "deleting again", s.API("DELETE", "/suppressions/"+gone["id"].(string), nil), 404, "not_found")
		if got := addresses(t, s.API("GET", "/suppressions?email=gone@example.org", nil)); len(got) != 1 {
			t.Errorf("left are %v", got)
		}
		status(t, "deleting by address", s.API("DELETE", "/suppressions/gone@example.org", nil), 204)
		if got := addresses(t, s.API("GET", "/suppressions", nil)); fmt.Sprint(got) != "[left@example.org]" {
			t.Errorf("left are %v", got)
		}
	})
}

// The list can be exported and imported as a file.
func TestSuppressionFiles(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		load := func(query, media, text string) servertest.Response {
			return call(t, s, "POST", "/api/v1/suppressions/import"+query, map[string]string{"Content-Type": media}, strings.NewReader(text))
		}
		a := load("", "text/csv; charset=utf-8", "Email,Reason\r\na@example.org,HardBounce\r\n=x@example.org,\r\nnone,\r\nA@example.org,spam\r\n")
		status(t, "importing", a, 200)
		if got, want := strings.TrimSpace(string(a.Body)),
			`{"added":2,"existing":1,"rejected":1,"errors":[{"line":4,"code":"invalid_address","message":"This line has no address such as you@example.com."}]}`; got != want {
			t.Errorf("%s", got)
		}
		status(t, "importing", load("?reason=unsubscribe", "text/csv", "c@example.org\n"), 200)
		refused(t, "JSON", load("", "application/json", "{}"), 415, "unsupported_media_type")
		refused(t, "UTF-16", load("", "text/csv; charset=utf-16", "x"), 415, "unsupported_media_type")
		refused(t, "a bad reason", load("?reason=x", "text/csv", "d@example.org"), 422, "validation_failed", "reason unknown_value")
		refused(t, "a bad parameter", load("?x=y", "text/csv", "d@example.org"), 422, "validation_failed", "x unknown_parameter")
		refused(t, "an endless row", load("", "text/csv", "d@example.org\n\""+strings.Repeat("x", 1<<20)), 422, "row_too_long")
		refused(t, "a large file", load("", "text/csv", strings.Repeat("x,\n", 6<<20)), 413, "too_many_rows")
		refused(t, "a larger file", load("", "text/csv", strings.Repeat(strings.Repeat(" ", 1000)+"\n", 17<<10)), 413, "body_too_large")
		_, restricted := newKey(t, s, object{"domain": "demo.test"})
		refused(t, "a key of one domain", s.APIWithKey(restricted, "POST", "/suppressions/import", "x"), 403, "domain_restricted")

		a = s.API("GET", "/suppressions/export", nil)
		rows, err := csv.NewReader(strings.NewReader(string(a.Body))).ReadAll()
		if err != nil || a.Status != 200 || a.Header.Get("Content-Type") != "text/csv; charset=utf-8" ||
			a.Header.Get("Content-Disposition") != `attachment; filename="suppressions.csv"` {
			t.Fatalf("%d %v %s: %v", a.Status, a.Header, a.Body, err)
		}
		var got []string
		for _, r := range rows[1:] {
			got = append(got, r[0]+" "+r[1])
		}
		if want := "[a@example.org bounce '=x@example.org manual c@example.org unsubscribe d@example.org manual]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		again := load("", "text/csv", string(a.Body))
		if o := into(t, again); again.Status != 200 || o["existing"] != 4.0 || o["added"] != 0.0 || o["rejected"] != 0.0 {
			t.Errorf("%d %s", again.Status, again.Body)
		}
		if a := s.APIWithKey(stranger(t, s), "GET", "/suppressions/export", nil); a.Status != 200 || strings.Count(string(a.Body), "\n") != 1 {
			t.Errorf("a stranger's export: %d %q", a.Status, a.Body)
		}
	})
}

// A suppressed recipient is reported in the response and by an event, and gets no mail; the others
// do. The recipient is a mailbox that doesn't exist, suppressed after a bounce.
func TestSuppressedRecipients(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		id, _ := sent(t, s, object{"to": []string{"Nobody@demo.test"}})
		happens(t, s, id, isBounced)
		a := s.API("GET", "/suppressions/nobody@demo.test", nil)
		status(t, "the entry", a, 200)
		if o := into(t, a); o["reason"] != "bounce" || o["message"] != id || !strings.Contains(fmt.Sprint(o["diagnostic"]), "5.1.1") {
			t.Errorf("%s", a.Body)
		}
		id, answer := sent(t, s, object{"to": []string{"bob@demo.test", "NOBODY@demo.test"}, "cc": []string{"nobody+tag@simulator.test"}})
		if r := recipient(answer, 1); answer["status"] != "queued" || r["status"] != "suppressed" || r["reason"] != "bounce" || recipient(answer, 0)["reason"] != nil {
			t.Errorf("%v", answer)
		}
		arrived(t, s)
		if r := recipient(message(t, s, id), 1); r["status"] != "suppressed" || r["diagnostic"] != "The recipient is on the account's suppression list (bounce)." {
			t.Errorf("%v", r)
		}
		// A scheduled message is checked when it is accepted, and a batch like a send.
		a = s.API("POST", "/outbound/batch", object{"messages": []object{mail(nil), mail(object{"to": []string{"nobody@demo.test"}}), mail(object{"unsubscribe": object{}})}})
		status(t, "a batch", a, 202)
		var batch struct{ Data []struct{ ID, Status string } }
		a.Decode(t, &batch)
		if len(batch.Data) != 3 || batch.Data[0].Status != "queued" || batch.Data[1].Status != "suppressed" || batch.Data[2].Status != "queued" {
			t.Errorf("%s", a.Body)
		}
		happens(t, s, batch.Data[1].ID, "delivery_status suppressed bounce")
		status(t, "allowing", s.API("DELETE", "/suppressions/nobody@demo.test", nil), 204)
		id, _ = sent(t, s, object{"to": []string{"Nobody@demo.test"}})
		happens(t, s, id, isBounced)
	})
}

// While a bounce arrives, others send to the same address: each message is delivered or suppressed
// as a whole. All messages sent after the bounce are suppressed.
func TestBounceMeetsSends(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		to := object{"to": []string{"nobody@demo.test"}}
		var group sync.WaitGroup
		ids := make([]string, 12)
		for i := range ids {
			group.Go(func() {
				a := s.API("POST", "/outbound/send", mail(to))
				if a.Status == 202 {
					ids[i] = into(t, a)["id"].(string)
				}
			})
		}
		group.Wait()
		suppressed := 0
		for _, id := range ids {
			want := isBounced
			if recipient(message(t, s, id), 0)["status"] == "suppressed" {
				want = "delivery_status suppressed bounce"
				suppressed++
			}
			happens(t, s, id, want)
		}
		id, _ := sent(t, s, to)
		happens(t, s, id, "delivery_status suppressed bounce")
		all, _, err := s.Suppressions.List(t.Context(), demo(t, s), everything, db.Page{})
		if err != nil || len(all) != 1 || all[0].Reason != suppression.ReasonBounce || suppressed == len(ids) {
			t.Errorf("%+v, %v, %d of %d suppressed", all, err, suppressed, len(ids))
		}
	})
}
