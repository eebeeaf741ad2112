// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// referencePage is a page of the reference.
type referencePage struct {
	Slug, Name string
	Text       template.HTML
	Operations []*operationDoc
}

// operationDoc documents an operation.
type operationDoc struct {
	ID, Method, Path, Summary string
	Text                      template.HTML
	Parameters, Body, Answer  []fieldRow
	Takes, Gives              string // media types other than JSON
	Status                    string // of a successful response
	Sample                    string // JSON of the response
	Errors                    []errorDoc
	Examples                  []codeSample
	Event                     bool // whether it documents a webhook payload instead of a request
}

type errorDoc struct{ Status, Text string }

// codeSample is an example in one language.
type codeSample struct{ Language, Text string }

// goSamples maps each operation to its call in the Go client, which the OpenAPI document doesn't
// have. A test generates the calls from the client package.
//
//go:embed reference/go.json
var goSamples []byte

// readReference builds the reference pages from the document.
func readReference(text []byte, base string) (pages []*referencePage, about template.HTML, err error) {
	o, err := readOpenAPI(text)
	if err != nil {
		return nil, "", err
	}
	inGo := map[string]string{}
	if err := json.Unmarshal(goSamples, &inGo); err != nil {
		return nil, "", fmt.Errorf("reading the examples in Go: %w", err)
	}
	by := map[string]*referencePage{}
	for _, t := range o.Tags {
		r := &referencePage{Slug: slug(t.Name), Name: t.Name, Text: renderMarkdown(t.Description)}
		by[t.Name] = r
		pages = append(pages, r)
	}
	for _, path := range slices.Sorted(maps.Keys(o.Paths)) {
		for method, e := range o.Paths[path] {
			r := by[strings.Join(e.Tags, "")]
			if r == nil {
				return nil, "", fmt.Errorf("operation %s has no tag of the document", e.OperationID)
			}
			r.Operations = append(r.Operations, o.operation(strings.ToUpper(method), path, e, base, inGo[e.OperationID]))
		}
	}
	pages = append(pages, o.eventPayloads())
	for _, r := range pages {
		slices.SortStableFunc(r.Operations, func(a, b *operationDoc) int {
			return cmp.Or(cmp.Compare(strings.Count(a.Path, "/"), strings.Count(b.Path, "/")), cmp.Compare(a.Path, b.Path), cmp.Compare(methodOrder[a.Method], methodOrder[b.Method]))
		})
	}
	return pages, renderMarkdown(o.Info.Description), nil
}

// eventPayloads documents the events that webhooks receive.
func (o *openAPI) eventPayloads() *referencePage {
	r := &referencePage{Slug: "payloads", Name: "Event payloads", Text: renderMarkdown("What webhooks are sent, and what lists and streams of events show.")}
	for _, kind := range slices.Sorted(maps.Keys(o.Webhooks)) {
		for method, e := range o.Webhooks[kind] {
			d := &operationDoc{ID: e.OperationID, Method: strings.ToUpper(method), Path: kind, Summary: e.Summary, Text: renderMarkdown(e.Description), Event: true}
			for _, p := range e.Parameters {
				row := o.newFieldRow(p.Name, p.Schema, p.Required)
				row.In, row.Text = p.In, cmp.Or(p.Description, row.Text)
				d.Parameters = append(d.Parameters, row)
			}
			if e.RequestBody != nil {
				m := e.RequestBody.Content["application/json"]
				d.Body = o.fieldRows(m.Schema, "", 0)
				if m.Example != nil {
					d.Sample = indentJSON(m.Example, "")
				}
			}
			r.Operations = append(r.Operations, d)
		}
	}
	return r
}

// methodOrder is the order of a path's operations.
var methodOrder = map[string]int{http.MethodPost: 1, http.MethodGet: 2, http.MethodPut: 3, http.MethodPatch: 4, http.MethodDelete: 5}

func (o *openAPI) operation(method, path string, e *openAPIOperation, base, inGo string) *operationDoc {
	d := &operationDoc{ID: e.OperationID, Method: method, Path: path, Summary: e.Summary, Text: renderMarkdown(e.Description)}
	call := exampleRequest{method: method, url: base + path}
	for _, p := range e.Parameters {
		row := o.newFieldRow(p.Name, p.Schema, p.Required)
		row.In, row.Text = p.In, cmp.Or(p.Description, row.Text)
		d.Parameters = append(d.Parameters, row)
		if p.In == "path" {
			call.url = strings.ReplaceAll(call.url, "{"+p.Name+"}", pathExample(o.example(p.Schema, 0)))
		}
	}
	if e.RequestBody != nil {
		for kind, m := range e.RequestBody.Content {
			if kind == "application/json" {
				d.Body = o.fieldRows(m.Schema, "", 0)
				call.body = o.exampleBody(m.Schema)
			} else {
				d.Takes, call.requestMedia = kind, kind
			}
		}
	}
	for _, status := range slices.Sorted(maps.Keys(e.Responses)) {
		r := e.Responses[status]
		if r.Ref != "" {
			r = o.Components.Responses[lastSegment(r.Ref)]
		}
		if code, err := strconv.Atoi(status); err != nil || code >= 400 {
			d.Errors = append(d.Errors, errorDoc{status, r.Description})
			continue
		}
		d.Status = status + " " + r.Description
		for kind, m := range r.Content {
			if kind != "application/json" {
				d.Gives, call.responseMedia = kind, kind
				continue
			}
			call.hasJSONResponse = true
			d.Answer = o.fieldRows(m.Schema, "", 0)
			d.Sample = indentJSON(o.example(o.withAllProperties(m.Schema, 0), 0), "")
		}
	}
	d.Examples = []codeSample{{"curl", call.curl()}, {"TypeScript", call.typescript()}, {"Python", call.python()}}
	if inGo != "" {
		d.Examples = slices.Insert(d.Examples, 1, codeSample{"Go", goProgram(base, inGo)})
	}
	return d
}

// withAllProperties returns a schema whose example has all members.
func (o *openAPI) withAllProperties(s *schema, depth int) *schema {
	r := o.resolve(s)
	if r == nil || depth > maxNesting {
		return r
	}
	whole := *r
	if r.Items != nil {
		whole.Items = o.withAllProperties(r.Items, depth+1)
	}
	if len(r.Properties) > 0 {
		whole.Properties, whole.Required = map[string]*schema{}, nil
		for name, p := range r.Properties {
			whole.Required = append(whole.Required, name)
			whole.Properties[name] = o.withAllProperties(p, depth+1)
			if len(p.Examples) > 0 {
				whole.Properties[name] = p
			}
		}
	}
	return &whole
}

func pathExample(value any) string {
	if text := fmt.Sprint(value); text != "text" {
		return text
	}
	return "1"
}

// slug converts a name for use in a path.
func slug(name string) string { return strings.ReplaceAll(strings.ToLower(name), " ", "-") }

// indentJSON formats JSON for people.
func indentJSON(value any, prefix string) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent(prefix, "  ")
	if e.Encode(value) != nil {
		return ""
	}
	return strings.TrimSpace(out.String())
}
