// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/template"
)

// A fallback that a form shows is saved unchanged.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"", template.TypeString}).Draw(t, "kind")
		text := rapid.OneOf(rapid.SampledFrom([]string{"42", "true", "null", "[]", `"a"`, `""`, "{", " a", "-", `{"a":1}`, "4 2"}), rapid.StringN(1, 20, -1)).Draw(t, "text")
		if got, err := parseTypedValue(kind, formatTypedValue(kind, text)); err != nil || got != text {
			t.Fatalf("%s %q is shown as %q and read as %v, %v", kind, text, formatTypedValue(kind, text), got, err)
		}
	})
	for kind, value := range map[string]any{
		template.TypeNumber: json.Number("42"), template.TypeBoolean: true, template.TypeArray: []any{"a", json.Number("1")}, template.TypeObject: map[string]any{"a": nil}, "": json.Number("1.5"),
	} {
		if got, err := parseTypedValue(kind, formatTypedValue(kind, value)); err != nil || !reflect.DeepEqual(got, value) {
			t.Errorf("%s %v is shown as %q and read as %v, %v", kind, value, formatTypedValue(kind, value), got, err)
		}
	}
}
