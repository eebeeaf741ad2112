// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/template"
)

// A fallback that a form shows is saved as it was.
func TestEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"", template.String}).Draw(t, "kind")
		text := rapid.OneOf(rapid.SampledFrom([]string{"42", "true", "null", "[]", `"a"`, `""`, "{", " a", "-", `{"a":1}`, "4 2"}), rapid.StringN(1, 20, -1)).Draw(t, "text")
		if got, err := valued(kind, entry(kind, text)); err != nil || got != text {
			t.Fatalf("%s %q is shown as %q and read as %v, %v", kind, text, entry(kind, text), got, err)
		}
	})
	for kind, value := range map[string]any{
		template.Number: json.Number("42"), template.Boolean: true, template.Array: []any{"a", json.Number("1")}, template.Object: map[string]any{"a": nil}, "": json.Number("1.5"),
	} {
		if got, err := valued(kind, entry(kind, value)); err != nil || !reflect.DeepEqual(got, value) {
			t.Errorf("%s %v is shown as %q and read as %v, %v", kind, value, entry(kind, value), got, err)
		}
	}
}
