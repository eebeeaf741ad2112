// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// openAPI is the part of the OpenAPI document that the reference shows.
type openAPI struct {
	Info struct{ Description string }
	Tags []struct{ Name, Description string }

	Paths      map[string]map[string]*openAPIOperation
	Webhooks   map[string]map[string]*openAPIOperation
	Components struct {
		Schemas   map[string]*schema
		Responses map[string]*openAPIResponse
	}
}

type openAPIOperation struct {
	OperationID, Summary, Description string
	Tags                              []string
	Parameters                        []*parameter
	RequestBody                       *struct {
		Required bool
		Content  map[string]openAPIMedia
	}
	Responses map[string]*openAPIResponse
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                *schema
}

type openAPIResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]openAPIMedia
}

type openAPIMedia struct {
	Schema  *schema
	Example any
}

type schema struct {
	Ref                 string `json:"$ref"`
	Type                any    // a type name, or a list of them
	Format, Description string
	Enum, Examples      []any
	Default             any
	Items               *schema
	Properties          map[string]*schema
	Required            []string
	OneOf               []*schema
	Discriminator       *struct{ PropertyName string }
	Minimum, Maximum    *float64
	MaxLength, MaxItems *int
}

// resolve follows a schema's reference.
func (o *openAPI) resolve(s *schema) *schema {
	for range 8 { // follows nested references, but not forever
		if s == nil || s.Ref == "" {
			break
		}
		s = o.Components.Schemas[lastSegment(s.Ref)]
	}
	if s != nil && s.Discriminator != nil {
		return o.mergeAlternatives(s)
	}
	return s
}

// mergeAlternatives returns an object with the members of all alternatives of a schema. A member
// that differs is described by what it depends on.
func (o *openAPI) mergeAlternatives(s *schema) *schema {
	merged, name := *s, s.Discriminator.PropertyName
	merged.Type, merged.OneOf, merged.Discriminator, merged.Properties = "object", nil, nil, map[string]*schema{}
	for _, ref := range s.OneOf {
		alternative := o.resolve(ref)
		if alternative == nil {
			continue
		}
		merged.Required = alternative.Required
		for member, p := range alternative.Properties {
			known := merged.Properties[member]
			switch {
			case known == nil:
				own := *p
				own.Enum = slices.Clone(p.Enum)
				merged.Properties[member] = &own
			case member == name:
				known.Enum = append(known.Enum, p.Enum...)
			case known.Ref != p.Ref:
				merged.Properties[member] = &schema{Type: "object", Description: p.Description + " Its members depend on " + name + "."}
			}
		}
	}
	return &merged
}

func lastSegment(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// typeName describes the type of a schema in words.
func (o *openAPI) typeName(s *schema) string {
	r := o.resolve(s)
	if r == nil {
		return "anything"
	}
	var names []string
	switch t := r.Type.(type) {
	case string:
		names = []string{t}
	case []any:
		for _, n := range t {
			names = append(names, fmt.Sprint(n))
		}
	}
	for i, n := range names {
		switch {
		case n == "array":
			names[i] = "list of " + o.typeName(r.Items)
		case n == "string" && r.Format != "":
			names[i] = r.Format
		}
	}
	if len(names) == 0 {
		return "anything"
	}
	return strings.Join(names, " or ")
}

// fieldRow is a member of a body, or a parameter.
type fieldRow struct {
	Name, Kind, Text, Default, In string
	Choices                       []string
	Required                      bool
}

const maxNesting = 3

// fieldRows lists the members of an object, including nested ones.
func (o *openAPI) fieldRows(s *schema, prefix string, depth int) (rows []fieldRow) {
	r := o.resolve(s)
	for r != nil && r.Items != nil {
		prefix, r = strings.TrimSuffix(prefix, ".")+"[].", o.resolve(r.Items)
	}
	if r == nil || depth == maxNesting {
		return nil
	}
	r = o.mergeVariants(r)
	names := slices.Sorted(maps.Keys(r.Properties))
	slices.SortStableFunc(names, func(a, b string) int { return requiredRank(r.Required, a) - requiredRank(r.Required, b) })
	for _, name := range names {
		p := r.Properties[name]
		rows = append(rows, o.newFieldRow(strings.TrimPrefix(prefix+name, "[]."), p, slices.Contains(r.Required, name)))
		rows = append(rows, o.fieldRows(p, prefix+name+".", depth+1)...)
	}
	return rows
}

// mergeVariants returns an object with the members of all variants of a schema. Those that every
// variant requires are required.
func (o *openAPI) mergeVariants(r *schema) *schema {
	if len(r.OneOf) == 0 {
		return r
	}
	all := &schema{Properties: map[string]*schema{}}
	for i, one := range r.OneOf {
		v := o.resolve(one)
		for name, p := range v.Properties {
			if all.Properties[name] == nil {
				all.Properties[name] = p
			}
		}
		if i == 0 {
			all.Required = v.Required
			continue
		}
		all.Required = slices.DeleteFunc(slices.Clone(all.Required), func(name string) bool { return !slices.Contains(v.Required, name) })
	}
	return all
}

func requiredRank(required []string, name string) int {
	if slices.Contains(required, name) {
		return 0
	}
	return 1
}

func (o *openAPI) newFieldRow(name string, s *schema, required bool) fieldRow {
	r := o.resolve(s)
	row := fieldRow{Name: name, Kind: o.typeName(s), Required: required, Text: s.Description}
	if row.Text == "" && r != nil {
		row.Text = r.Description
	}
	if r != nil {
		values := r.Enum
		if item := o.resolve(r.Items); item != nil {
			values = item.Enum
		}
		for _, e := range values {
			row.Choices = append(row.Choices, fmt.Sprint(e))
		}
		if r.Default != nil {
			row.Default = fmt.Sprint(r.Default)
		}
	}
	return row
}

// example returns a value that matches a schema. For an object, it has the required members.
func (o *openAPI) example(s *schema, depth int) any {
	r := o.resolve(s)
	if s != nil && len(s.Examples) > 0 {
		return s.Examples[0]
	}
	if r == nil || depth > 4 {
		return map[string]any{}
	}
	if len(r.Examples) > 0 {
		return r.Examples[0]
	}
	if len(r.OneOf) > 0 {
		return o.example(r.OneOf[0], depth+1)
	}
	if len(r.Enum) > 0 {
		return r.Enum[0]
	}
	if r.Default != nil {
		return r.Default
	}
	switch kind := o.typeName(r); {
	case strings.HasPrefix(kind, "list of"):
		return []any{o.example(r.Items, depth+1)}
	case strings.HasPrefix(kind, "object"):
		return o.exampleObject(r, depth)
	case strings.HasPrefix(kind, "uuid"):
		return exampleID
	case strings.HasPrefix(kind, "date-time"):
		return exampleTime
	case strings.HasPrefix(kind, "integer"), strings.HasPrefix(kind, "number"):
		if r.Minimum != nil {
			return *r.Minimum
		}
		return 1
	case strings.HasPrefix(kind, "boolean"):
		return true
	}
	return "text"
}

func (o *openAPI) exampleObject(r *schema, depth int) map[string]any {
	out := map[string]any{}
	names := r.Required
	if len(names) == 0 { // everything is optional: show the first member that has an example
		for _, name := range slices.Sorted(maps.Keys(r.Properties)) {
			if len(r.Properties[name].Examples) > 0 {
				names = []string{name}
				break
			}
		}
	}
	for _, name := range names {
		if p := r.Properties[name]; p != nil {
			out[name] = o.example(p, depth+1)
		}
	}
	return out
}

// exampleBody returns an example of a request's JSON body. Its times are a week ahead, as a send at
// a time in the past is refused.
func (o *openAPI) exampleBody(s *schema) any {
	body := o.example(s, 0)
	if object, ok := body.(map[string]any); ok {
		for name, value := range object {
			if value == exampleTime {
				object[name] = time.Now().UTC().AddDate(0, 0, 7).Truncate(24 * time.Hour).Format(time.RFC3339)
			}
		}
	}
	return body
}

const (
	exampleTime = "2026-12-01T09:00:00Z"
	exampleID   = "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"
)

func readOpenAPI(text []byte) (*openAPI, error) {
	o := &openAPI{}
	if err := json.Unmarshal(text, o); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI document: %w", err)
	}
	return o, nil
}
