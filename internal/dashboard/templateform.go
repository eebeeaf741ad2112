// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/template"
)

var variableTypes = [][2]string{{"", "anything"}, {template.TypeString, "text"}, {template.TypeNumber, "number"}, {template.TypeBoolean, "yes or no"}, {template.TypeArray, "list"}, {template.TypeObject, "group"}}

// variableRow is a row of the variables form.
type variableRow struct {
	N                          int
	Key, Type, Fallback, Trial string // Trial is the value for a preview
	Required                   bool
}

// spareRows is the number of empty rows for new variables; saving adds more.
const spareRows = 3

func newVariableRows(declared []template.Variable) (rows []variableRow) {
	for _, x := range declared {
		rows = append(rows, variableRow{N: len(rows), Key: x.Key, Type: x.Type, Required: x.Required, Fallback: formatTypedValue(x.Type, x.Fallback)})
	}
	return addSpareRows(rows)
}

func addSpareRows(rows []variableRow) []variableRow {
	for range spareRows {
		rows = append(rows, variableRow{N: len(rows)})
	}
	return rows
}

// formVariableRows reads the rows as entered.
func formVariableRows(form url.Values) (rows []variableRow) {
	required := map[string]bool{}
	for _, n := range form["required"] {
		required[n] = true
	}
	at := func(name string, i int) string {
		if list := form[name]; i < len(list) {
			return strings.TrimSpace(list[i])
		}
		return ""
	}
	for i := range form["key"] {
		row := variableRow{N: len(rows), Key: at("key", i), Type: at("type", i), Fallback: at("fallback", i), Trial: at("trial", i), Required: required[strconv.Itoa(i)]}
		if row.Key != "" || row.Fallback != "" || row.Trial != "" {
			rows = append(rows, row)
		}
	}
	return addSpareRows(rows)
}

// formatValue formats a value for a form: text unchanged, lists and groups as JSON.
func formatValue(value any) string {
	switch x := value.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(text)
}

// formatTypedValue formats a value so that parseTypedValue returns the same value.
func formatTypedValue(kind string, value any) string {
	text, isText := value.(string)
	if again, err := parseTypedValue(kind, text); !isText || err == nil && again == value {
		return formatValue(value)
	}
	quoted, err := json.Marshal(text)
	if err != nil {
		return text
	}
	return string(quoted)
}

// parseTypedValue parses a value of a type from a form. Without a type, it recognizes numbers,
// true, false, lists, groups and quoted text.
func parseTypedValue(kind, text string) (any, error) {
	if kind == template.TypeString {
		return text, nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var value any
	err := d.Decode(&value)
	if err != nil || d.More() {
		if kind == "" {
			return text, nil
		}
		return nil, fmt.Errorf("no %s", kind)
	}
	return value, nil
}

// formTemplate reads the content of a template from the form.
func (v *requestContext) formTemplate() (template.Content, error) {
	c := template.Content{
		Subject: v.formText("subject"), HTML: unixLineEnds(v.form.Get("html")), Text: unixLineEnds(v.form.Get("text")), InlineCSS: v.form.Has("inline_css"), Variables: []template.Variable{},
	}
	if strings.TrimSpace(c.HTML) == "" {
		c.HTML = ""
	}
	if strings.TrimSpace(c.Text) == "" {
		c.Text = ""
	}
	var bad fault.FieldErrors
	for _, row := range formVariableRows(v.form) {
		if row.Key == "" {
			if row.Fallback != "" {
				bad.Add("variables", "required", "A fallback needs the name of its variable.")
			}
			continue
		}
		x := template.Variable{Key: row.Key, Type: row.Type, Required: row.Required}
		if row.Fallback != "" {
			var err error
			if x.Fallback, err = parseTypedValue(row.Type, row.Fallback); err != nil {
				bad.Add("variables", "wrong_type", "%s", "The fallback of "+row.Key+" is not of its type.")
			}
		}
		c.Variables = append(c.Variables, x)
	}
	return c, bad.Err()
}

// unixLineEnds converts the line ends of a form's text to those of templates.
func unixLineEnds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// formPreviewValues reads the values for a preview. It leaves out invalid values, which the preview
// reports as missing.
func (v *requestContext) formPreviewValues() json.RawMessage {
	values := map[string]any{}
	for _, row := range formVariableRows(v.form) {
		if row.Key == "" || row.Trial == "" {
			continue
		}
		if value, err := parseTypedValue(row.Type, row.Trial); err == nil {
			setNested(values, strings.Split(row.Key, "."), value)
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if e.Encode(values) != nil {
		return nil
	}
	return out.Bytes()
}

// setNested sets a value by its path through groups.
func setNested(values map[string]any, way []string, value any) {
	for _, name := range way[:len(way)-1] {
		inner, ok := values[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[name] = inner
		}
		values = inner
	}
	values[way[len(way)-1]] = value
}
