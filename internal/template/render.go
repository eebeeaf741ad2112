// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// Errors of a rendering that exceeds its limits.
var (
	errTooMuchWork   = errors.New("too much work")
	errTooMuchOutput = errors.New("too much output")
)

// renderer renders one part of a template.
type renderer struct {
	out    strings.Builder
	escape bool
	scopes []scope
	usage  *variableUsage
}

// scope is the context of a block, in which names are looked up.
type scope struct {
	value any
	index int // index within each; -1 elsewhere
	count int
	key   string // name of an object's member
}

// variableUsage records the variables that a rendering used, in all its parts.
type variableUsage struct {
	steps   int
	used    map[string]bool // top-level names
	missing map[string]bool
	nonText map[string]bool // values that can't be formatted as text
}

// render renders a part. Its only errors are errTooMuchWork and errTooMuchOutput.
func (p *program) render(values map[string]any, escape bool, used *variableUsage) (string, error) {
	r := &renderer{escape: escape, scopes: []scope{{value: values, index: -1}}, usage: used}
	if err := r.renderNodes(p.body); err != nil {
		return "", err
	}
	return r.out.String(), nil
}

func (r *renderer) renderNodes(list []node) error {
	for i := range list {
		if err := r.renderNode(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *renderer) renderNode(n *node) error {
	if r.usage.steps++; r.usage.steps > maxSteps {
		return errTooMuchWork
	}
	switch n.kind {
	case literalNode:
		return r.write(n.text)
	case escapedNode, rawNode:
		return r.writeValue(n)
	case eachNode:
		return r.renderEach(n)
	}
	v, _ := r.find(n.path)
	if isTruthy(v) == (n.kind == ifNode) {
		return r.renderNodes(n.body)
	}
	return r.renderNodes(n.elseBody)
}

func (r *renderer) write(s string) error {
	if r.out.Len()+len(s) > MaxOutput {
		return errTooMuchOutput
	}
	r.out.WriteString(s)
	return nil
}

func (r *renderer) writeValue(n *node) error {
	v, ok := r.find(n.path)
	if !ok {
		r.usage.missing[n.path.text] = true
		return nil
	}
	text, ok := formatValue(v)
	if !ok {
		r.usage.nonText[n.path.text] = true
		return nil
	}
	if r.escape && n.kind == escapedNode {
		text = escapeHTML(text)
	}
	return r.write(text)
}

// renderEach repeats a block for the elements of an array, or for the members of an object in the
// order of their names.
func (r *renderer) renderEach(n *node) error {
	v, _ := r.find(n.path)
	var items []scope
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			items = append(items, scope{item, i, len(v), strconv.Itoa(i)})
		}
	case map[string]any:
		for i, key := range slices.Sorted(maps.Keys(v)) {
			items = append(items, scope{v[key], i, len(v), key})
		}
	}
	if r.usage.steps += len(items); len(items) == 0 {
		return r.renderNodes(n.elseBody)
	}
	for _, item := range items {
		r.scopes = append(r.scopes, item)
		if err := r.renderNodes(n.body); err != nil {
			return err
		}
		r.scopes = r.scopes[:len(r.scopes)-1]
	}
	return nil
}

// find looks up a path, in the innermost block first and then outwards.
func (r *renderer) find(p path) (any, bool) {
	r.usage.steps += len(p.names) + p.up
	inner := len(r.scopes) - 1 - p.up
	if inner < 0 {
		return nil, false
	}
	s := r.scopes[inner]
	switch {
	case p.atName != "":
		return s.atValue(p.atName)
	case p.fromThis:
		if inner == 0 && len(p.names) > 0 {
			r.usage.used[p.names[0]] = true
		}
		return lookupNames(s.value, p.names)
	}
	return r.findOuter(p.names, inner)
}

func (r *renderer) findOuter(names []string, inner int) (any, bool) {
	for i := inner; i >= 0; i-- {
		r.usage.steps++
		members, ok := r.scopes[i].value.(map[string]any)
		if !ok {
			continue
		}
		if i == 0 {
			r.usage.used[names[0]] = true
		}
		if _, ok := members[names[0]]; ok {
			return lookupNames(members, names)
		}
	}
	return nil, false
}

func (s scope) atValue(name string) (any, bool) {
	if s.index < 0 {
		return nil, false
	}
	switch name {
	case "@key":
		return s.key, true
	case "@first":
		return s.index == 0, true
	case "@last":
		return s.index == s.count-1, true
	}
	return json.Number(strconv.Itoa(s.index)), true
}

// lookupNames follows names through objects and arrays. null counts as missing.
func lookupNames(v any, names []string) (any, bool) {
	for _, name := range names {
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, v != nil
}

// formatValue returns a value as text; ok is false for an array or an object.
func formatValue(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return strconv.FormatBool(v), true
	case nil:
		return "", true
	}
	return "", false
}

// isTruthy reports whether a value is true as in Handlebars: false, null, "", 0 and an empty array
// are not.
func isTruthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case json.Number:
		f, err := v.Float64()
		return err != nil || f != 0
	case []any:
		return len(v) > 0
	}
	return true
}

func typeOf(v any) string {
	switch v.(type) {
	case string:
		return TypeString
	case json.Number:
		return TypeNumber
	case bool:
		return TypeBoolean
	case []any:
		return TypeArray
	case map[string]any:
		return TypeObject
	}
	return ""
}

// escapeHTML makes text safe within elements and within attributes, quoted or
// not.
func escapeHTML(s string) string { return htmlEscapes.Replace(s) }

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;", "`", "&#96;", "=", "&#61;")

// Render renders all parts. It returns a fault.Invalid with a field for each required value that is
// missing, and for each value of the wrong type, or if a rendering exceeds its limits.
func (c *CompiledTemplate) Render(values map[string]any) (Output, error) {
	var bad fault.FieldErrors
	filled := c.prepareVariables(values, &bad)
	if len(bad) > 0 {
		return Output{}, bad.Err()
	}
	return c.render(values, filled)
}

// Preview is Render, but reports missing values in the output.
func (c *CompiledTemplate) Preview(values map[string]any) (Output, error) {
	var bad fault.FieldErrors
	filled := c.prepareVariables(values, &bad)
	var wrong fault.FieldErrors
	for _, f := range bad {
		if f.Code != codeMissing {
			wrong = append(wrong, f)
		}
	}
	if len(wrong) > 0 {
		return Output{}, wrong.Err()
	}
	out, err := c.render(values, filled)
	for _, f := range bad {
		if name := strings.TrimPrefix(f.Path, "variables."); !slices.Contains(out.Missing, name) {
			out.Missing = append(out.Missing, name)
		}
	}
	slices.Sort(out.Missing)
	return out, err
}

const codeMissing = "required"

// prepareVariables adds the fallbacks to the given values, and checks the declared variables.
func (c *CompiledTemplate) prepareVariables(values map[string]any, bad *fault.FieldErrors) map[string]any {
	filled := maps.Clone(values)
	if filled == nil {
		filled = map[string]any{}
	}
	for _, v := range c.content.Variables {
		names := strings.Split(v.Key, ".")
		given, ok := lookupNames(values, names)
		switch {
		case !ok && v.Required:
			bad.Add("variables."+v.Key, codeMissing, "The template needs this variable.")
		case !ok && v.Fallback != nil:
			setIfMissing(filled, names, v.Fallback)
		case ok && v.Type != "" && typeOf(given) != v.Type:
			bad.Add("variables."+v.Key, "wrong_type", "This variable is of the type %s.", v.Type)
		}
	}
	return filled
}

// setIfMissing sets a value if it is missing. It copies the objects on the path, because they
// belong to the caller.
func setIfMissing(into map[string]any, names []string, v any) {
	for _, name := range names[:len(names)-1] {
		inner, ok := into[name].(map[string]any)
		if !ok && into[name] != nil {
			return // the path leads through a value that is no object
		}
		inner = maps.Clone(inner)
		if inner == nil {
			inner = map[string]any{}
		}
		into[name] = inner
		into = inner
	}
	into[names[len(names)-1]] = v
}

func (c *CompiledTemplate) render(given, filled map[string]any) (out Output, err error) {
	used := &variableUsage{used: map[string]bool{}, missing: map[string]bool{}, nonText: map[string]bool{}}
	var bad fault.FieldErrors
	part := func(field string, p *program, escape bool) string {
		text, err := p.render(filled, escape, used)
		switch {
		case errors.Is(err, errTooMuchWork):
			bad.Add(field, "too_much_work", "Filling this in takes too long; it repeats too much.")
		case errors.Is(err, errTooMuchOutput):
			bad.Add(field, "too_long", "Filled in, this has more than %d bytes.", MaxOutput)
		}
		return text
	}
	out.Subject = oneLine(part("subject", c.subject, false))
	out.HTML = part("html", c.html, true)
	out.Text = part("text", c.text, false)
	for _, name := range slices.Sorted(maps.Keys(used.nonText)) {
		if len(bad) < maxMissingListed {
			bad.Add("variables."+name, "not_text", "The template shows this variable, but an object or a list has no text.")
		}
	}
	if err := bad.Err(); err != nil {
		return Output{}, err
	}
	if c.content.InlineCSS && out.HTML != "" {
		out.HTML = inlineCSS(out.HTML)
	}
	if out.Text == "" && c.content.Text == "" {
		out.Text = message.HTMLToText(out.HTML)
	}
	out.Missing = slices.Sorted(maps.Keys(used.missing))
	out.Missing = out.Missing[:min(len(out.Missing), maxMissingListed)]
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !used.used[name] && len(out.Unused) < maxMissingListed {
			out.Unused = append(out.Unused, name)
		}
	}
	return out, nil
}

// oneLine makes rendered text a single line, so that no variable can start another header field.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, s)
	return strings.TrimSpace(s)
}
