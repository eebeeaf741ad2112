// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// bound is a value at or beyond a field's limit.
type bound struct {
	at     string // path of the field, as in faults
	value  any
	beyond bool
	nested func(value any) any // wraps the field's value in a body
}

// schemaBounds returns the values at and beyond the limits of a schema and all nested schemas.
func schemaBounds(t *testing.T, at string, ref *openapi3.SchemaRef, nested func(value any) any) (all []bound) {
	t.Helper()
	s := ref.Value
	if s.Pattern != "" || s.MultipleOf != nil || s.UniqueItems || s.ExclusiveMin.IsSet() || s.ExclusiveMax.IsSet() {
		t.Errorf("%s: the decoder does not know this rule", at)
	}
	add := func(value any, beyond bool) { all = append(all, bound{at, value, beyond, nested}) }
	step := 1.0
	if s.Type.Includes("number") {
		step = 0.001
	}
	if s.Min != nil {
		add(*s.Min, false)
		add(*s.Min-step, true)
		add(-math.MaxInt64, true)
	}
	if s.Max != nil {
		add(*s.Max, false)
		add(*s.Max+step, true)
		add(uint64(math.MaxUint64), true)
	}
	if s.Type.Includes("number") {
		add(json.RawMessage("1e400"), true)
		add(object{}, true)
	}
	for _, value := range s.Enum {
		add(value, false)
	}
	if len(s.Enum) > 0 {
		for _, value := range []string{"", "no such value", strings.ToUpper(fmt.Sprint(s.Enum[0]))} {
			add(value, true)
		}
	}
	for name, p := range s.Properties {
		inner := name
		if at != "" {
			inner = at + "." + name
		}
		all = append(all, schemaBounds(t, inner, p, func(value any) any { return nested(object{name: value}) })...)
	}
	if s.Items != nil {
		all = append(all, schemaBounds(t, at+"[0]", s.Items, func(value any) any { return nested([]any{value}) })...)
	}
	return all
}

// The service enforces the document's limits: at and beyond each limit of each field and parameter
// of each operation.
func TestBounds(t *testing.T) {
	s := servertest.Start(t)
	_, operator, err := s.Accounts.CreateKey(t.Context(), account.OperatorAccount, account.KeyParams{Name: "ops", Scopes: []string{account.ScopeOperator}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b bound, a servertest.Response, at string) {
		t.Helper()
		var p problem
		if err := json.Unmarshal(a.Body, &p); err != nil || a.Status != 422 {
			t.Errorf("%s: %s is %v: %d %s", what, at, b.value, a.Status, a.Body)
			return
		}
		told := false
		for _, e := range p.Errors {
			// The operation may still reject a value within its limits.
			told = told || e.Field == at && (b.beyond || slices.Contains([]string{"unknown_value", "out_of_range", "wrong_type"}, e.Code))
		}
		if told != b.beyond {
			t.Errorf("%s: %s is %v: %+v", what, at, b.value, p.Errors)
		}
	}
	tried := 0
	for path, item := range document(t, s).Paths.Map() {
		for method, op := range item.Operations() {
			what := method + " " + path
			key := s.Dev.APIKey
			if strings.HasPrefix(path, "/api/v1/operator") {
				key = operator
			}
			to := strings.TrimPrefix(path, "/api/v1")
			for _, name := range []string{"id", "key", "message", "password", "delivery", "version", "address", "email"} {
				to = strings.ReplaceAll(to, "{"+name+"}", "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21")
			}
			for _, ref := range op.Parameters {
				p := ref.Value
				if p.In != "query" {
					continue
				}
				for _, b := range schemaBounds(t, p.Name, p.Schema, func(value any) any { return value }) {
					if list, ok := b.nested(b.value).([]any); ok {
						b.value = list[0]
					}
					if b.value == "" || slices.Contains([]any{json.RawMessage("1e400")}, b.value) {
						continue // an empty parameter counts as absent
					}
					text := fmt.Sprint(b.value)
					if n, ok := b.value.(float64); ok {
						text = fmt.Sprintf("%.0f", n)
					}
					tried++
					check(what, b, s.APIWithKey(key, method, to+"?no_such=1&"+url.QueryEscape(p.Name)+"="+url.QueryEscape(text), nil), p.Name)
				}
			}
			if op.RequestBody == nil || op.RequestBody.Value.Content["application/json"] == nil {
				continue
			}
			for _, b := range schemaBounds(t, "", op.RequestBody.Value.Content["application/json"].Schema, func(value any) any { return value }) {
				body := b.nested(b.value).(object)
				body["no_such"] = true // so that the request has no effect
				tried++
				check(what, b, s.APIWithKey(key, method, to, body), b.at)
			}
		}
	}
	if tried < 300 {
		t.Errorf("only %d values were tried", tried)
	}
}

// Numbers out of range are rejected wherever a field takes any value.
func TestNumbersTooLarge(t *testing.T) {
	s := servertest.Start(t)
	send := func(metadata string) servertest.Response {
		return s.API("POST", "/outbound/send", json.RawMessage(fmt.Sprintf(`{"from_email":%q,"to":["x@y.example"],"subject":"x","text":"x","metadata":%s}`, s.Dev.Mailboxes[0].Address, metadata)))
	}
	refused(t, "one", send(`{"n":1e400}`), 422, "validation_failed", "metadata.n out_of_range")
	refused(t, "some", send(`{"a":{"b":[1,-1e999,{"c":2E+310}]},"d":1.7e308,"e":1e-400,"f":18446744073709551616}`), 422, "validation_failed",
		"metadata.a.b.1 out_of_range", "metadata.a.b.2.c out_of_range")
	status(t, "those that float64 holds", send(`{"d":1.7e308,"e":1e-400,"f":18446744073709551616,"g":"1e400"}`), 202)
}

// A number with a fraction is accepted where the document says so.
func TestSpamScore(t *testing.T) {
	s := servertest.Start(t)
	in := func(score any) object {
		return object{"from": "bob@sender.example", "to": []string{s.Dev.Mailboxes[0].Address}, "text": "x", "check_results": object{"spam_score": score}}
	}
	for _, score := range []any{1.5, -2, 0, 10000} {
		status(t, fmt.Sprint(score), s.API("POST", "/sandbox/inbound", in(score)), 200)
	}
	for _, score := range []any{object{}, "1.5", []int{}, true} {
		refused(t, fmt.Sprint(score), s.API("POST", "/sandbox/inbound", in(score)), 422, "validation_failed", "check_results.spam_score wrong_type")
	}
}
