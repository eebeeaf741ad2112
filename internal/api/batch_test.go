// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

func batch(n int, change func(i int, m object)) object {
	list := make([]object, n)
	for i := range list {
		list[i] = mail(object{"to": []string{"delivered@simulator.test"}, "subject": fmt.Sprint("No. ", i)})
		if change != nil {
			change(i, list[i])
		}
	}
	return object{"messages": list}
}

// The API accepts a hundred messages together and keeps their order.
func TestBatch(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/batch", batch(100, func(i int, m object) {
			m["metadata"] = object{"i": i}
			if i%10 == 0 {
				m["attachments"] = []object{{"filename": "a.txt", "content": "aGk="}, {"filename": "b.txt", "content": strings.Repeat("QUJD", 1+30_000*(i%20))}}
			}
		}))
		status(t, "a hundred", a, 202)
		data := into(t, a)["data"].([]any)
		seen := map[any]bool{}
		for i, item := range data {
			m := item.(object)
			seen[m["id"]] = true
			if fmt.Sprint(m["metadata"]) != fmt.Sprintf("map[i:%d]", i) || m["status"] != "queued" || m["thread_id"] == "" {
				t.Errorf("%d: %v", i, m)
			}
		}
		if len(data) != 100 || len(seen) != 100 || messages(t, s) != 100 {
			t.Errorf("%d answers, %d messages, %d listed", len(data), len(seen), messages(t, s))
		}
		last := data[90].(object)["id"].(string)
		shown := into(t, s.API("GET", "/outbound/messages/"+last, nil))
		if shown["subject"] != "No. 90" || shown["size"].(float64) < 1_200_000 {
			t.Errorf("got %v", shown)
		}
	})
}

// The largest batch: a hundred messages to fifty recipients each.
func TestLargestBatch(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		a := s.API("POST", "/outbound/batch", batch(100, func(_ int, m object) {
			m["to"], m["send_at"] = many(50, "r%d@simulator.test"), at(time.Hour)
		}))
		status(t, "a hundred to fifty", a, 202)
		data := into(t, a)["data"].([]any)
		if got := getMessage(t, s, data[99].(object)["id"].(string)); len(data) != 100 || got["status"] != "scheduled" || len(got["recipients"].([]any)) != 50 {
			t.Errorf("%d answers; the last is %v", len(data), got)
		}
	})
}

// One fault among a hundred messages, and nothing is sent. All faults are reported with the message
// that they belong to.
func TestBatchRefused(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		post := func(body any) servertest.Response { return s.API("POST", "/outbound/batch", body) }
		refused(t, "one bad of a hundred", post(batch(100, func(i int, m object) {
			if i == 97 {
				m["to"] = []string{"x@y.test", "nobody"}
			}
		})), 422, "validation_failed", "messages[97].to[1] invalid_address")
		refused(t, "faults of all kinds", post(batch(5, func(i int, m object) {
			switch i {
			case 0:
				m["to"], m["text"] = 5, ""
			case 1:
				m["bogus"] = true
			case 3:
				m["attachments"] = []object{{"filename": "x", "content": "@"}}
				m["from_email"] = "x@rival.test"
			case 4:
				m["subject"] = ""
			}
		})), 422, "validation_failed", "messages[0].to wrong_type", "messages[0].text text_or_html_required", "messages[1].bogus unknown_field",
			"messages[3].attachments[0].content invalid_base64", "messages[4].subject required")
		refused(t, "a foreign sender", post(batch(3, func(i int, m object) {
			if i > 0 {
				m["from_email"] = fmt.Sprintf("x@rival%d.test", i)
			}
		})), 403, "sender_not_allowed", "messages[1].from_email sender_not_allowed", "messages[2].from_email sender_not_allowed")
		refused(t, "101", post(batch(101, nil)), 422, "validation_failed", "messages too_many_messages")
		refused(t, "none", post(object{"messages": []object{}}), 422, "validation_failed", "messages required")
		refused(t, "nothing", post(object{}), 422, "validation_failed", "messages required")
		refused(t, "no list", post(object{"messages": "x"}), 422, "validation_failed", "messages wrong_type")
		refused(t, "no messages", post(`{"messages":[5,[],null],"partial":"yes","x":1}`), 422, "validation_failed",
			"partial wrong_type", "x unknown_field", "messages[0] wrong_type", "messages[1] wrong_type", "messages[2] wrong_type")
		refused(t, "a list", post(`[]`), 422, "validation_failed", "body wrong_type")
		_, one := newKey(t, s, object{"domain": "other.test"})
		refused(t, "a key of another domain", s.APIWithKey(one, "POST", "/outbound/batch", batch(1, nil)), 403, "sender_not_allowed", "messages[0].from_email sender_not_allowed")
		_, reader := newKey(t, s, object{"scopes": []string{"messages.write"}})
		refused(t, "a key that may not send", s.APIWithKey(reader, "POST", "/outbound/batch", batch(1, nil)), 403, "missing_scope")
		if n := messages(t, s); n != 0 {
			t.Errorf("%d messages", n)
		}
	})
}

// With partial, each message is accepted or rejected on its own.
func TestBatchPartial(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		body := batch(7, func(i int, m object) {
			switch i {
			case 1:
				m["to"], m["text"], m["x"] = 5, "", 1
			case 2:
				m["from_email"] = "x@rival.test"
			case 4:
				m["to"] = []string{"a@b.test", "a@b.test", "A@B.test"} // a single recipient
			case 5:
				m["attachments"] = []object{{"filename": "x", "content": "@"}, {"filename": "y", "content": "aGk="}}
			}
		})
		body["partial"] = true
		a := s.API("POST", "/outbound/batch", body)
		status(t, "some", a, 202)
		var got []string
		for _, item := range into(t, a)["data"].([]any) {
			m := item.(object)
			e, ok := m["error"].(object)
			if !ok {
				got = append(got, fmt.Sprint(m["status"], len(m["recipients"].([]any))))
				continue
			}
			what := fmt.Sprint(e["status"], " ", e["code"])
			faults, _ := e["errors"].([]any)
			for _, f := range faults {
				what += fmt.Sprint(" ", f.(object)["field"], " ", f.(object)["code"])
			}
			got = append(got, what)
		}
		want := []string{"queued1", "422 validation_failed to wrong_type x unknown_field text text_or_html_required", "403 sender_not_allowed", "queued1", "queued1",
			"422 validation_failed attachments[0].content invalid_base64", "queued1"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if n := messages(t, s); n != 4 {
			t.Errorf("%d messages", n)
		}
		refused(t, "a fault of the whole", s.API("POST", "/outbound/batch", `{"partial":true,"messages":[`+aSend+`],"x":1}`), 422, "validation_failed", "x unknown_field")
		null := s.API("POST", "/outbound/batch", `{"partial":true,"messages":[null,`+aSend+`]}`)
		if status(t, "a null", null, 202); !strings.Contains(string(null.Body), `"errors":[{"field":"body","code":"wrong_type"`) {
			t.Errorf("%s", null.Body)
		}
		// More faults than the server counts: it no longer knows which messages are valid.
		many := strings.Repeat(`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1},`, 99) + `{` + manyNames(12_000) + `}`
		a = s.API("POST", "/outbound/batch", `{"partial":true,"messages":[`+many+`]}`)
		if a.Status != 422 {
			t.Errorf("%d %.300s", a.Status, a.Body)
		}
	})
}

// Messages of a batch may have their own text or a template, each with its own variables. All get the
// same version of a template.
func TestBatchTemplates(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		made := newTemplate(t, s, object{"alias": "order-1"})
		use := func(i int, m object) {
			delete(m, "subject")
			delete(m, "text")
			m["template_id"], m["variables"] = "order-1", object{"order": i, "user": object{"name": fmt.Sprint("U", i)}}
			if i == 1 {
				m["template_id"], m["tags"] = made["id"], []string{"receipt"}
			}
		}
		a := s.API("POST", "/outbound/batch", batch(4, func(i int, m object) {
			if i > 0 {
				use(i, m)
			}
		}))
		status(t, "a mixed batch", a, 202)
		for i, item := range into(t, a)["data"].([]any) {
			m := getMessage(t, s, item.(object)["id"].(string))
			subject, id := fmt.Sprintf("Order %d for U%d", i, i), made["id"]
			if i == 0 {
				subject, id = batch(1, nil)["messages"].([]object)[0]["subject"].(string), nil
			}
			if m["subject"] != subject || m["template_id"] != id || i == 1 && fmt.Sprint(m["tags"]) != "[receipt]" {
				t.Errorf("message %d: %v", i, m)
			}
		}

		faulty := batch(8, func(i int, m object) {
			if i > 0 {
				use(i, m)
			}
			switch i {
			case 2:
				m["variables"] = object{}
			case 3:
				m["template_id"] = "none"
			case 4:
				m["subject"], m["text"], m["html"] = "x", "", "x"
			case 5:
				delete(m, "template_id")
			case 6:
				m["template_id"], m["to"] = 5, []string{"x"}
			case 7:
				m["variables"], m["bogus"] = 5, 1
			}
		})
		refused(t, "faults", s.API("POST", "/outbound/batch", faulty), 422, "validation_failed",
			"messages[2].variables.order required", "messages[3].template_id no_such_template",
			"messages[4].subject not_with_template", "messages[4].text not_with_template", "messages[4].html not_with_template",
			"messages[5].template_id required", "messages[6].template_id wrong_type", "messages[6].to[0] invalid_address",
			"messages[7].bogus unknown_field", "messages[7].variables wrong_type")
		faulty["partial"] = true
		a = s.API("POST", "/outbound/batch", faulty)
		status(t, "partial", a, 202)
		accepted := 0
		for _, item := range into(t, a)["data"].([]any) {
			if item.(object)["id"] != nil {
				accepted++
			}
		}
		if accepted != 2 {
			t.Errorf("%d of a partial batch: %s", accepted, a.Body)
		}

		large := newTemplate(t, s, object{"html": "{{#each list}}" + strings.Repeat("x", 100_000) + "{{/each}}", "text": "x", "variables": []object{}})
		refused(t, "too much text", s.API("POST", "/outbound/batch", batch(4, func(_ int, m object) {
			use(1, m)
			m["template_id"], m["variables"] = large["id"], object{"list": make([]int, 100), "order": 1}
		})), 413, "texts_too_large")
	})
}

func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"x%d":1,`, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// The limits of a batch: in total, per message, and without attachments.
func TestBatchSizes(t *testing.T) {
	s := servertest.Start(t)
	post := func(parts ...io.Reader) servertest.Response {
		return call(t, s, "POST", "/api/v1/outbound/batch", asJSON, io.MultiReader(parts...))
	}
	list := func(sizes ...int) io.Reader {
		parts := []io.Reader{strings.NewReader(`{"messages":[`)}
		for i, size := range sizes {
			if i > 0 {
				parts = append(parts, strings.NewReader(","))
			}
			parts = append(parts, sendBody("delivered@simulator.test", size, 5))
		}
		return io.MultiReader(append(parts, strings.NewReader(`]}`))...)
	}
	const most = 25<<20 - 5
	status(t, "three full ones", post(list(most, most, 1, most-(5<<20))), 202)
	refused(t, "one too large", post(list(1, most+1)), 422, "validation_failed", "messages[1].attachments attachments_too_large")
	refused(t, "100 MiB", post(list(most, most, most, most)), 413, "body_too_large")
	refused(t, "24 MiB of text", post(strings.NewReader(`{"messages":[{"text":"`), io.LimitReader(repeat('x'), 25<<20), strings.NewReader(`"}]}`)), 413, "body_too_large")
	refused(t, "many values", post(strings.NewReader(`{"messages":[0`), strings.NewReader(strings.Repeat(",0", 200_000)), strings.NewReader(`]}`)), 413, "too_many_values")
}
