// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/template"
)

func newTemplate(t *testing.T, s *servertest.Server, more object) object {
	t.Helper()
	body := object{
		"name": "Order", "subject": "Order {{order}} for {{user.name}}", "html": "<style>p{color:red}</style><p>Hi {{user.name}}, {{note}}</p>",
		"variables": []object{{"key": "order", "type": "number", "required": true}, {"key": "user.name", "type": "string", "fallback": "you"}},
	}
	for name, value := range more {
		body[name] = value
	}
	a := s.API("POST", "/templates", body)
	status(t, "making a template", a, 201)
	return into(t, a)
}

// A page of long versions holds fewer of them: a hundred would take 100 MB, and several times that
// while they are encoded.
func TestLongVersions(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		path := "/templates/" + newTemplate(t, s, nil)["id"].(string)
		long := strings.Repeat("x", template.MaxSource)
		for i := 2; i <= 12; i++ {
			status(t, "a version", s.API("PATCH", path, object{"html": long, "text": strconv.Itoa(i)}), 200)
		}
		numbers, pages := "", 0
		for cursor := ""; ; pages++ {
			a := s.API("GET", path+"/versions?limit=100"+cursor, nil)
			if len(a.Body) > 3<<20 {
				t.Errorf("a page has %d bytes", len(a.Body))
			}
			page := into(t, a)
			for _, v := range page["data"].([]any) {
				numbers += fmt.Sprint(v.(object)["version"], " ")
			}
			if page["has_more"] != true {
				break
			}
			cursor = "&after=" + page["next_cursor"].(string)
		}
		if numbers != "12 11 10 9 8 7 6 5 4 3 2 1 " || pages < 2 {
			t.Errorf("%s in %d pages", numbers, pages)
		}
	})
}

func TestTemplates(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		made := newTemplate(t, s, object{"alias": "order-1"})
		path := "/templates/" + made["id"].(string)
		if made["version"] != 1.0 || made["published_version"] != 1.0 || made["alias"] != "order-1" || made["inline_css"] != false {
			t.Errorf("%v", made)
		}
		refused(t, "the alias again", s.API("POST", "/templates", object{"name": "x", "alias": "order-1", "subject": "x", "text": "x"}), 409, "alias_taken")
		for what, by := range map[string]string{"id": path, "alias": "/templates/order-1"} {
			if got := into(t, s.API("GET", by, nil)); fmt.Sprint(got) != fmt.Sprint(made) {
				t.Errorf("by %s: %v, want %v", what, got, made)
			}
		}

		// A draft doesn't change sent messages; versions are immutable.
		a := s.API("PATCH", path, object{"html": "<p>{{order}}</p>", "publish": false})
		if got := into(t, a); got["version"] != 2.0 || got["published_version"] != 1.0 || got["html"] != "<p>{{order}}</p>" || got["subject"] != made["subject"] {
			t.Errorf("a draft: %s", a.Body)
		}
		a = s.API("PATCH", path, object{"name": "Orders", "alias": ""})
		if got := into(t, a); got["version"] != 2.0 || got["name"] != "Orders" || got["alias"] != nil {
			t.Errorf("a new name: %s", a.Body)
		}
		if got := into(t, s.API("GET", path+"/versions/1", nil)); got["html"] != made["html"] || got["version"] != 1.0 {
			t.Errorf("the first version: %v", got)
		}
		a = s.API("POST", path+"/publish", object{"version": 2})
		if got := into(t, a); got["published_version"] != 2.0 {
			t.Errorf("published: %s", a.Body)
		}
		a = s.API("POST", path+"/publish", object{"version": 3})
		if refused(t, "a version that is not there", a, 404, "not_found"); !strings.Contains(string(a.Body), "no such version") {
			t.Errorf("%s", a.Body)
		}
		refused(t, "another", s.API("GET", path+"/versions/0", nil), 404, "not_found")
		page := into(t, s.API("GET", path+"/versions?limit=1", nil))
		if page["has_more"] != true || page["next_cursor"] == nil {
			t.Errorf("versions: %v", page)
		}
		page = into(t, s.API("GET", path+"/versions?limit=1&after=2", nil))
		if data := page["data"].([]any); page["has_more"] != false || len(data) != 1 || data[0].(object)["version"] != 1.0 {
			t.Errorf("versions: %v", page)
		}

		a = s.API("POST", path+"/duplicate", nil)
		if got := into(t, a); a.Status != 201 || got["name"] != "Copy of Orders" || got["html"] != "<p>{{order}}</p>" || got["version"] != 1.0 || got["id"] == made["id"] {
			t.Errorf("a copy: %s", a.Body)
		}
		if got := into(t, s.API("GET", "/templates", nil))["data"].([]any); len(got) != 2 || got[1].(object)["html"] != nil {
			t.Errorf("the list: %v", got)
		}
		status(t, "deleting", s.API("DELETE", path, nil), 204)
		refused(t, "deleted", s.API("GET", path, nil), 404, "not_found")
		refused(t, "deleted", s.API("GET", path+"/versions", nil), 404, "not_found")

		refused(t, "all wrong", s.API("POST", "/templates", object{
			"name": " ", "alias": "-", "subject": "{{", "html": "{{#if}}", "text": strings.Repeat("x", 600<<10), "variables": []object{{"key": "a b", "type": "date"}},
		}), 422, "validation_failed", "variables[0].type unknown_value", "name invalid_name", "alias invalid_alias", "subject invalid_template", "html invalid_template", "text too_long",
			"variables[0].key invalid_key")
		refused(t, "nothing", s.API("POST", "/templates", object{}), 422, "validation_failed", "name required", "subject required", "html text_or_html_required")
		refused(t, "shape and values", s.API("POST", "/templates", object{
			"name": 5, "alias": "-", "subject": "{{", "text": "{{#if}}", "inline_css": "yes", "variables": []object{{"key": "a b", "type": 5}, {}}, "tags": "x",
		}), 422, "validation_failed", "inline_css wrong_type", "name wrong_type", "tags unknown_field", "variables[0].type wrong_type", "variables[1].key required",
			"alias invalid_alias", "subject invalid_template", "text invalid_template", "variables[0].key invalid_key")
		made = newTemplate(t, s, nil)
		refused(t, "a broken change", s.API("PATCH", "/templates/"+made["id"].(string), object{"name": "", "html": "{{/if}}"}), 422, "validation_failed",
			"name invalid_name", "html invalid_template")
		refused(t, "a change, shape and values", s.API("PATCH", "/templates/"+made["id"].(string), object{"name": "", "html": "", "text": "", "css": true}), 422, "validation_failed",
			"css unknown_field", "name invalid_name", "html text_or_html_required")
		refused(t, "names that no database takes", s.API("PATCH", "/templates/"+made["id"].(string), object{"name": "a\x00", "alias": "\x00", "html": "{{/if}}"}), 422, "validation_failed",
			"name invalid_name", "alias invalid_alias", "html invalid_template")
		if got := into(t, s.API("GET", "/templates/"+made["id"].(string), nil)); got["version"] != 1.0 || got["name"] != "Order" {
			t.Errorf("after a broken change: %v", got)
		}
	})
}

// No concurrent change is lost: each creates its own version on top of the one before.
func TestTemplateChangesAtOnce(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		path := "/templates/" + newTemplate(t, s, nil)["id"].(string)
		fields := []string{"subject", "html", "text"}
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				if a := s.API("PATCH", path, object{fields[i%3]: fmt.Sprint("changed ", i)}); a.Status != 200 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
		all.Wait()
		versions := into(t, s.API("GET", path+"/versions", nil))["data"].([]any)
		if len(versions) != 13 {
			t.Fatalf("%d versions", len(versions))
		}
		for i := range versions[:12] {
			newer, older := versions[i].(object), versions[i+1].(object)
			differ := 0
			for _, f := range fields {
				if newer[f] != older[f] {
					differ++
				}
			}
			if differ != 1 || newer["version"] != older["version"].(float64)+1 {
				t.Errorf("version %v differs from %v in %d fields", newer["version"], older["version"], differ)
			}
		}
	})
}

func TestRenderTemplate(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		path := "/templates/" + newTemplate(t, s, object{"inline_css": true})["id"].(string) + "/render"
		got := into(t, s.API("POST", path, object{"variables": object{"order": 7, "user": object{"name": "<Ann>"}, "extra": 1}}))
		if got["subject"] != "Order 7 for <Ann>" || !strings.Contains(got["html"].(string), `<p style="color: red">Hi &lt;Ann&gt;, </p>`) ||
			got["text"] != "Hi <Ann>," || fmt.Sprint(got["missing"]) != "[note]" || fmt.Sprint(got["unused"]) != "[extra]" {
			t.Errorf("%v", got)
		}
		outlook := newTemplate(t, s, object{"inline_css": true, "html": "<style>#outlook a { padding: 0 } p { color: red }</style><p>Hi</p>"})["id"].(string)
		if got := into(t, s.API("POST", "/templates/"+outlook+"/render", object{})); !strings.Contains(got["html"].(string), "<style>#outlook a { padding: 0 }\n</style>") {
			t.Errorf("a rule for a mail program's own elements was lost: %v", got["html"])
		}
		if got := into(t, s.API("POST", path, object{})); fmt.Sprint(got["missing"]) != "[note order]" {
			t.Errorf("%v", got)
		}
		refused(t, "wrong types", s.API("POST", path, object{"variables": object{"order": "x"}}), 422, "validation_failed", "variables.order wrong_type")
		refused(t, "no such version", s.API("POST", path, object{"version": 9}), 404, "not_found")
		refused(t, "no object", s.API("POST", path, object{"variables": []int{1}}), 422, "validation_failed", "variables wrong_type")
	})
}

func TestSendTemplate(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		made := newTemplate(t, s, nil)
		send := func(more object) servertest.Response {
			body := object{
				"from_email": "shop@demo.test", "to": []string{"Bob <bob@demo.test>"}, "template_id": made["id"],
				"variables": object{"order": 42, "user": object{"name": "Bob\r\nBcc: x@y.test"}},
			}
			for name, value := range more {
				body[name] = value
				if value == nil {
					delete(body, name)
				}
			}
			return s.API("POST", "/outbound/send-template", body)
		}
		a := send(object{"metadata": object{"k": "v"}, "attachments": []object{{"filename": "a.txt", "content": "aGk="}}, "cc": []string{"alice@demo.test"}})
		status(t, "sending", a, 202)
		sent := into(t, s.API("GET", "/outbound/messages/"+into(t, a)["id"].(string), nil))
		if sent["subject"] != "Order 42 for Bob  Bcc: x@y.test" || sent["template_id"] != made["id"] || sent["template_version"] != 1.0 || len(sent["recipients"].([]any)) != 2 {
			t.Errorf("%v", sent)
		}

		// Accepted messages stay as they are; new ones use the published version.
		s.API("PATCH", "/templates/"+made["id"].(string), object{"subject": "New {{order}}"})
		status(t, "a draft", s.API("PATCH", "/templates/"+made["id"].(string), object{"subject": "Draft", "publish": false}), 200)
		if got := into(t, s.API("GET", "/outbound/messages/"+into(t, send(nil))["id"].(string), nil)); got["subject"] != "New 42" || got["template_version"] != 2.0 {
			t.Errorf("%v", got)
		}

		before := len(into(t, s.API("GET", "/outbound/messages", nil))["data"].([]any))
		refused(t, "a missing variable", send(object{"variables": object{}}), 422, "validation_failed", "variables.order required")
		refused(t, "no variables", send(object{"variables": nil}), 422, "validation_failed", "variables.order required")
		refused(t, "no template", send(object{"template_id": nil}), 422, "validation_failed", "template_id required")
		refused(t, "another template", send(object{"template_id": "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"}), 422, "validation_failed", "template_id no_such_template")
		refused(t, "no id", send(object{"template_id": "order"}), 422, "validation_failed", "template_id no_such_template")
		refused(t, "a subject", send(object{"subject": "x"}), 422, "validation_failed", "subject unknown_field")
		refused(t, "foreign sender", send(object{"from_email": "a@elsewhere.test"}), 403, "sender_not_allowed")
		refused(t, "all wrong", send(object{
			"from_email": "x", "to": []string{"y"}, "variables": object{"order": "z"}, "headers": object{"Bcc": "x"}, "subject": "s", "attachments": []object{{"filename": "a", "content": "!"}},
		}), 422, "validation_failed", "attachments[0].content invalid_base64", "subject unknown_field", "variables.order wrong_type", "from_email invalid_address",
			"to[0] invalid_address", "headers.Bcc header_not_allowed")
		if after := len(into(t, s.API("GET", "/outbound/messages", nil))["data"].([]any)); after != before {
			t.Errorf("%d messages were accepted", after-before)
		}

		// A template of another account counts as unknown.
		other, err := s.Accounts.Create(t.Context(), "other@example.com", "")
		if err != nil {
			t.Fatal(err)
		}
		id, err := s.Templates.Create(t.Context(), other.ID, templateOf("foreign"))
		if err != nil {
			t.Fatal(err)
		}
		refused(t, "a foreign template", send(object{"template_id": id.ID.String()}), 422, "validation_failed", "template_id no_such_template")
		for _, c := range [][2]string{{"GET", ""}, {"DELETE", ""}, {"GET", "/versions"}, {"GET", "/versions/1"}, {"POST", "/duplicate"}} {
			refused(t, "foreign "+c[0]+c[1], s.API(c[0], "/templates/"+id.ID.String()+c[1], nil), 404, "not_found")
		}
	})
}

// A request repeated with its key gets the stored response.
func TestSendTemplateOnce(t *testing.T) {
	s := servertest.Start(t)
	id := newTemplate(t, s, nil)["id"]
	body := fmt.Sprintf(`{"from_email":"shop@demo.test","to":["bob@demo.test"],"template_id":%q,"variables":{"order":1}}`, id)
	var answers []string
	for range 2 {
		a := call(t, s, "POST", "/api/v1/outbound/send-template", map[string]string{"Idempotency-Key": "k", "Content-Type": "application/json"}, strings.NewReader(body))
		status(t, "sending", a, 202)
		answers = append(answers, string(a.Body))
	}
	if !slices.Equal(answers[:1], answers[1:]) {
		t.Errorf("%q", answers)
	}
}

// An alias stands for the id of a template in every path and in every send.
func TestTemplateAlias(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		made := newTemplate(t, s, object{"alias": "order-1"})
		const path = "/templates/order-1"
		for _, c := range []struct {
			method, path string
			body         any
			status       int
		}{
			{"GET", "", nil, 200},
			{"PATCH", "", object{"subject": "Changed {{order}}"}, 200},
			{"GET", "/versions", nil, 200},
			{"GET", "/versions/1", nil, 200},
			{"POST", "/publish", object{"version": 1}, 200},
			{"POST", "/render", object{"version": 1, "variables": object{"order": 1}}, 200},
			{"POST", "/duplicate", nil, 201},
		} {
			status(t, c.method+c.path, s.API(c.method, path+c.path, c.body), c.status)
		}
		a := s.API("POST", "/outbound/send-template", object{"from_email": "shop@demo.test", "to": []string{"bob@demo.test"}, "template_id": "order-1", "variables": object{"order": 42}})
		status(t, "sending", a, 202)
		if sent := getMessage(t, s, into(t, a)["id"].(string)); sent["template_id"] != made["id"] || sent["subject"] != "Order 42 for you" {
			t.Errorf("sent %v", sent)
		}
		log := s.API("GET", "/activity", nil)
		status(t, "the activity", log, 200)
		if !strings.Contains(string(log.Body), "Published the template Order (version).") {
			t.Errorf("the activity: %s", log.Body)
		}
		refused(t, "an alias that looks like an id", s.API("POST", "/templates", object{"name": "x", "alias": s.Dev.Domain.ID.String(), "subject": "x", "text": "x"}),
			422, "validation_failed", "alias invalid_alias")
		_, restricted := newKey(t, s, object{"domain": "demo.test", "scopes": []string{"*"}})
		refused(t, "a restricted key", s.APIWithKey(restricted, "DELETE", path, nil), 403, "domain_restricted")
		refused(t, "another account", s.APIWithKey(stranger(t, s), "GET", path, nil), 404, "not_found")
		status(t, "deleting", s.API("DELETE", path, nil), 204)
		for _, c := range []string{"DELETE", "GET", "PATCH"} {
			refused(t, c, s.API(c, path, map[string]any{"PATCH": object{"name": "x"}}[c]), 404, "not_found")
		}
	})
}

func templateOf(name string) template.CreateParams {
	return template.CreateParams{Name: name, Content: template.Content{Subject: name, Text: name}}
}
