// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// wrongs returns values that may be invalid for the type of a field.
func wrongs(s *openapi3.Schema) (all []any) {
	switch {
	case s.Type.Includes("string"):
		return []any{"\x00", "no such @ value\n", strings.Repeat("x", 20_000), "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21", "2020-01-01T00:00:00Z"}
	case s.Type.Includes("array"):
		for _, value := range wrongs(s.Items.Value) {
			all = append(all, []any{value})
		}
		many := make([]any, 2000)
		for n := range many {
			many[n] = fmt.Sprintf("a%d@b.example", n)
		}
		return append(all, []any{}, many)
	case s.Type.Includes("integer"):
		return []any{0, -1, 1 << 30}
	case s.Type.Includes("object") && len(s.Properties) == 0:
		return []any{object{"\x00": "x"}, object{"x": strings.Repeat("x", 20_000)}, object{"a b": object{}}}
	}
	return nil
}

// right returns a value of a field that is probably valid.
func right(name string, s *openapi3.Schema) any {
	switch {
	case s.Type.Includes("array"):
		return []any{right(name, s.Items.Value)}
	case s.Type.Includes("object"):
		o := object{}
		for _, inner := range s.Required {
			o[inner] = right(inner, s.Properties[inner].Value)
		}
		return o
	case s.Type.Includes("boolean"):
		return false
	case s.Type.Includes("integer"), s.Type.Includes("number"):
		return 1
	case len(s.Enum) > 0:
		return s.Enum[0]
	case name == "host":
		return "127.0.0.1"
	case s.Example != nil:
		return s.Example
	}
	return "x"
}

// fields calls f with each field of a schema, and with a function that nests a value as in a body.
func fields(name string, s *openapi3.Schema, nested func(any) any, f func(at string, s *openapi3.Schema, nested func(any) any)) {
	for inner, ref := range s.Properties {
		at := inner
		if name != "" {
			at = name + "." + inner
		}
		within := func(value any) any {
			o := object{}
			if given, ok := right(name, s).(object); ok {
				o = given
			}
			o[inner] = value
			return nested(o)
		}
		f(at, ref.Value, within)
		fields(at, ref.Value, within, f)
	}
	if s.Items != nil {
		fields(name, s.Items.Value, func(value any) any { return nested([]any{value}) }, f)
	}
}

// Faults of a request's values are reported together with faults of its form, for every operation.
func TestFaultsAreToldAtOnce(t *testing.T) {
	s := servertest.Start(t)
	_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
	if err != nil {
		t.Fatal(err)
	}
	made := func(path string, body object) string {
		t.Helper()
		a := s.API("POST", path, body)
		if a.Status/100 != 2 {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		id, _ := into(t, a)["id"].(string)
		return id
	}
	ids := map[string]string{
		"/mailboxes": s.Dev.Mailboxes[0].ID.String(), "/domains": s.Dev.Domain.ID.String(),
		"/aliases":          made("/aliases", object{"address": "other@demo.test", "targets": []string{s.Dev.Mailboxes[0].Address}}),
		"/webhooks":         made("/webhooks", object{"url": "https://hooks.example.net/x", "events": []string{"all"}}),
		"/templates":        made("/templates", object{"name": "x", "subject": "x", "text": "x"}),
		"/outbound":         made("/outbound/send", mail(object{"send_at": time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)})),
		"/operator/domains": s.Dev.Domain.Name,
	}
	seen := 0
	for path, item := range document(t, s).Paths.Map() {
		for method, op := range item.Operations() {
			to, key := strings.TrimPrefix(path, "/api/v1"), s.Dev.APIKey
			if strings.HasPrefix(to, "/operator") {
				key = operator
			}
			for prefix, id := range ids {
				if strings.HasPrefix(to, prefix+"/{") || prefix == "/outbound" && strings.HasPrefix(to, prefix) {
					to = strings.Replace(to, "{id}", id, 1)
				}
			}
			told := func(query string, body any) map[string]bool {
				var p problem
				a := s.APIWithKey(key, method, to+query, body)
				if a.Status != 422 || json.Unmarshal(a.Body, &p) != nil {
					return nil
				}
				all := map[string]bool{}
				for _, e := range p.Errors {
					all[e.Field+" "+e.Code] = true
				}
				return all
			}
			compare := func(at string, value any, alone, both map[string]bool) {
				delete(alone, "source.host source_failed") // found only by connecting
				delete(both, "no_such unknown_parameter")
				delete(both, "no_such unknown_field")
				if len(alone) >= 100 { // further faults are not reported
					return
				}
				if len(alone) > 0 {
					seen++
				}
				if !maps.Equal(alone, both) {
					t.Errorf("%s %s: %s is %.60q: %v, and with another fault %v", method, path, at, value, slices.Sorted(maps.Keys(alone)), slices.Sorted(maps.Keys(both)))
				}
			}
			for _, ref := range op.Parameters {
				if ref.Value.In != "query" || method == "DELETE" || op.OperationID == "streamEvents" && ref.Value.Name == "tag" { // a tag may be any text: the stream would begin
					continue
				}
				for _, value := range wrongs(ref.Value.Schema.Value) {
					text := fmt.Sprint(value)
					if list, ok := value.([]any); ok {
						if len(list) != 1 {
							continue
						}
						text = fmt.Sprint(list[0])
					}
					query := "?" + url.QueryEscape(ref.Value.Name) + "=" + url.QueryEscape(text[:min(len(text), 5000)])
					compare(ref.Value.Name, text, told(query, nil), told(query+"&no_such=1", nil))
				}
			}
			if op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			schema := op.RequestBody.Value.Content["application/json"].Schema.Value
			fields("", schema, func(value any) any { return value }, func(at string, f *openapi3.Schema, nested func(any) any) {
				for _, value := range wrongs(f) {
					if op.OperationID == "testMigrationSource" && at == "source.host" {
						continue // make no requests to the outside
					}
					body := nested(value).(object)
					alone := told("", body)
					body["no_such"] = true
					compare(at, value, alone, told("", body))
				}
			})
		}
	}
	if seen < 100 {
		t.Errorf("only %d faults were seen", seen)
	}
}
