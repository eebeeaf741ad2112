// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	quotedPattern    = regexp.MustCompile("`([^`]+)`")
	operationPattern = regexp.MustCompile(`^(GET|POST|PATCH|PUT|DELETE) (/\S+)$`)
	namePattern      = regexp.MustCompile(`^[a-z][a-z_]*(\[\])?$`)
)

// The guide for those who come from other services names only operations, fields and values that
// exist here.
func TestComingFrom(t *testing.T) {
	s := servertest.Start(t)
	var doc map[string]any
	s.APIWithKey("", "GET", "/openapi.json", nil).Decode(t, &doc)
	known := map[string]bool{}
	addNames(doc, known)
	for path, operations := range doc["paths"].(map[string]any) {
		for method := range operations.(map[string]any) {
			known[strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/api/v1")] = true
		}
	}
	guide, err := os.ReadFile("guides/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(guide)) {
		cells := strings.Split(line, "|")
		if len(cells) != 4 {
			continue
		}
		rows++
		for _, quoted := range quotedPattern.FindAllStringSubmatch(cells[2], -1) {
			switch name := quoted[1]; {
			case operationPattern.MatchString(name) && !known[name]:
				t.Errorf("there is no operation %s", name)
			case namePattern.MatchString(name) && !known[strings.TrimSuffix(name, "[]")]:
				t.Errorf("nothing is called %s: %s", name, strings.TrimSpace(line))
			}
		}
	}
	if rows < 80 {
		t.Errorf("only %d rows were read", rows)
	}
}

// addNames adds the names of all properties and parameters, and the values of enumerations.
func addNames(value any, known map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, inner := range v {
			addNames(inner, known)
		}
	case map[string]any:
		for key, inner := range v {
			if key == "enum" {
				for _, one := range inner.([]any) {
					if name, ok := one.(string); ok {
						known[name] = true
					}
				}
			}
			if properties, ok := inner.(map[string]any); ok && key == "properties" {
				for name := range properties {
					known[name] = true
				}
			}
			addNames(inner, known)
		}
		if name, ok := v["name"].(string); ok && v["in"] != nil {
			known[name] = true
		}
	}
}
