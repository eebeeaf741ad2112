// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// homonyms are names that stand for things of more than one type.
var homonyms = map[string]string{
	"accepted": "the state of one simulated message, and a count in statistics",
	"copied":   "whether a folder is, and how many messages are",
	"data":     "of a list, and of an event",
	"error":    "of a message of a batch: the problem; of a DNS record: what to change, in words",

	"folders": "a message's, a migration's, and how many",
	"held":    "whether a delivery is, and how many are",
	"id":      "of a thread: a text of the sender's",

	"message":  "the id of a sent message, and the text of a field error",
	"messages": "a thread's, and how many",

	"sends_per_hour": "a limit, and how much of it is used", "sends_per_day": "a limit, and how much of it is used",
	"recipients_per_day": "a limit, and how much of it is used",
	"status":             "of objects: a word; of problems: the HTTP status",

	"variables": "values, and declarations",
}

// Equal things have equal names and types, as the guide to names says.
func TestNames(t *testing.T) {
	s := servertest.Start(t)
	doc, err := openapi3.NewLoader().LoadFromData(s.APIWithKey("", "GET", "/openapi.json", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]map[string][]string{} // by name and type: where
	add := func(name, where string, s *openapi3.Schema) {
		if types[name] == nil {
			types[name] = map[string][]string{}
		}
		kind := typeName(s)
		types[name][kind] = append(types[name][kind], where)
	}
	for name, ref := range doc.Components.Schemas {
		for property, inner := range ref.Value.Properties {
			if strings.HasSuffix(name, "Request") {
				property += " in requests"
			}
			add(property, name, inner.Value)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			for _, p := range op.Parameters {
				if p.Value.In == "query" {
					one := p.Value.Schema.Value
					if one.Items != nil { // a filter with several values is also given as one
						one = one.Items.Value
					}
					add(p.Value.Name+" in queries", method+" "+path, one)
				}
			}
		}
	}
	for name, kinds := range types {
		plain, _, _ := strings.Cut(name, " ")
		if len(kinds) > 1 && homonyms[plain] == "" {
			t.Errorf("%s has %d types: %v", name, len(kinds), kinds)
		}
	}
	for name := range homonyms {
		if len(types[name]) < 2 && len(types[name+" in requests"]) < 2 && len(types[name+" in queries"]) < 2 {
			t.Errorf("%s has one type", name)
		}
	}
	known := map[string]bool{}
	for name := range types {
		plain, _, _ := strings.Cut(name, " ")
		known[plain] = true
	}
	guide, err := os.ReadFile("guides/names.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(guide)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		rows++
		for _, quoted := range quotedPattern.FindAllStringSubmatch(cells[2], -1) {
			if !known[quoted[1]] {
				t.Errorf("nothing is called %s: %s", quoted[1], strings.TrimSpace(line))
			}
		}
		for _, quoted := range quotedPattern.FindAllStringSubmatch(cells[3], -1) {
			for _, where := range []string{"", " in requests", " in queries"} {
				for _, at := range slices.Sorted(maps.Keys(types[quoted[1]+where])) {
					t.Errorf("%s%s is called %s instead: %v", quoted[1], where, strings.TrimSpace(cells[2]), types[quoted[1]+where][at])
				}
			}
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows were read", rows)
	}
}

// typeName describes a type, without whether it may be null. Objects are all of one type: their
// properties are compared by themselves.
func typeName(s *openapi3.Schema) string {
	for _, choice := range [][]*openapi3.SchemaRef{s.AnyOf, s.OneOf, s.AllOf} {
		for _, ref := range choice {
			if name := typeName(ref.Value); name != "null" {
				return name
			}
		}
	}
	if s.Type == nil {
		return "any"
	}
	kinds := slices.DeleteFunc(slices.Clone(s.Type.Slice()), func(kind string) bool { return kind == "null" })
	switch {
	case s.Items != nil:
		return "list of " + typeName(s.Items.Value)
	case len(kinds) == 0:
		return "null"
	case len(kinds) > 1:
		return "any"
	case s.Format == "uuid" || s.Format == "date-time":
		return s.Format
	}
	return kinds[0]
}
