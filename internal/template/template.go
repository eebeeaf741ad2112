// SPDX-License-Identifier: Apache-2.0

// Package template stores the templates of accounts and renders them.
//
// The language is a small subset of Handlebars: comments {{! … }}, {{a.b}} (escaped in HTML,
// unchanged in text and subject), {{{a.b}}} (never escaped), {{#if a}} {{else}} {{/if}}, and
// {{#unless a}}. {{#each a}} has {{this}}, {{@index}}, {{@key}}, {{@first}}, {{@last}} and
// {{../a}}. There are no helpers and no partials, so a template can't read anything but its
// variables. Source size, nesting depth, work and output size are limited.
package template

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits of a template.
const (
	MaxSource    = 512 << 10 // bytes of html and text, each
	MaxSubject   = 2000      // bytes of the subject's source
	MaxVariables = 200       // number of declared variables
	MaxValues    = 256 << 10 // bytes of the variables of one rendering, as JSON
	MaxOutput    = 10 << 20  // bytes of a rendered part

	maxDepth         = 20        // nesting depth of blocks
	maxSteps         = 2_000_000 // steps of one rendering
	maxPathBytes     = 200       // bytes of a variable's path
	maxSegments      = 10
	maxMissingListed = 100 // missing variables that are reported
)

// Content is the content of a version of a template.
type Content struct {
	Subject   string
	HTML      string
	Text      string // "": derived from the html
	InlineCSS bool   // move style rules of the html into attributes
	Variables []Variable
}

// Types of a variable.
const (
	TypeString  = "string"
	TypeNumber  = "number"
	TypeBoolean = "boolean"
	TypeArray   = "array"
	TypeObject  = "object"
)

// Variable is a declared variable. A template may also use undeclared ones.
type Variable struct {
	Key      string // a path such as user.name
	Type     string // one of the Type constants; "" for any
	Required bool
	Fallback any // used if the variable is not given; nil for none
}

// Output is a rendered template.
type Output struct {
	Subject, HTML, Text string
	Missing             []string // paths that the template uses but that were not given
	Unused              []string // names that were given but not used
}

// CompiledTemplate is a compiled version of a template. It is safe for concurrent use.
type CompiledTemplate struct {
	content             Content
	subject, html, text *program
}

// Compile checks content and compiles it. The error is a fault.Invalid that names every invalid
// field, with line and column of syntax errors.
func Compile(c Content) (*CompiledTemplate, error) {
	var bad fault.FieldErrors
	out := &CompiledTemplate{content: c}
	if c.Subject == "" {
		bad.Add("subject", "required", "Give a subject.")
	}
	if c.HTML == "" && c.Text == "" {
		bad.Add("html", "text_or_html_required", "Give html, text or both.")
	}
	for _, part := range []struct {
		field, source string
		limit         int
		into          **program
	}{{"subject", c.Subject, MaxSubject, &out.subject}, {"html", c.HTML, MaxSource, &out.html}, {"text", c.Text, MaxSource, &out.text}} {
		if len(part.source) > part.limit {
			bad.Add(part.field, "too_long", "This may have %d bytes.", part.limit)
			continue
		}
		if strings.Contains(part.source, "\x00") { // PostgreSQL can't store NUL
			bad.Add(part.field, "control_character", "NUL is not allowed here.")
			continue
		}
		p, err := parse(part.source)
		if err != nil {
			bad.Add(part.field, "invalid_template", "%s", err)
			continue
		}
		*part.into = p
	}
	checkVariables(c.Variables, &bad)
	return out, bad.Err()
}

func checkVariables(declared []Variable, bad *fault.FieldErrors) {
	if len(declared) > MaxVariables {
		bad.Add("variables", "too_many_variables", "A template can declare %d variables.", MaxVariables)
		return
	}
	seen := map[string]bool{}
	for i, v := range declared {
		at := func(field string) string { return fmt.Sprintf("variables[%d].%s", i, field) }
		p, err := parsePath(v.Key)
		switch {
		case err != nil || p.up > 0 || p.atName != "" || len(p.names) == 0:
			bad.Add(at("key"), "invalid_key", "A key is a name such as order or user.name: letters, digits, _ and -, with dots between.")
		case seen[v.Key]:
			bad.Add(at("key"), "duplicate_key", "This variable is declared twice.")
		}
		seen[v.Key] = true
		switch v.Type {
		case "", TypeString, TypeNumber, TypeBoolean, TypeArray, TypeObject:
		default:
			bad.Add(at("type"), "unknown_type", "The types are string, number, boolean, array and object.")
			continue
		}
		if v.Required && v.Fallback != nil {
			bad.Add(at("fallback"), "conflicting_fallback", "A required variable has no fallback.")
		}
		if v.Fallback != nil && v.Type != "" && typeOf(v.Fallback) != v.Type {
			bad.Add(at("fallback"), "wrong_type", "The fallback is not of the variable's type.")
		}
	}
}
