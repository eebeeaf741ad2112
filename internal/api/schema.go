// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
)

// schema is a JSON schema of the document.
type schema struct {
	Type                 string             `json:"type,omitempty"`
	Nullable             bool               `json:"-"`
	Description          string             `json:"description,omitempty"`
	Ref                  string             `json:"$ref,omitempty"`
	Format               string             `json:"format,omitempty"`
	ContentEncoding      string             `json:"contentEncoding,omitempty"`
	Default              any                `json:"default,omitempty"`
	Examples             []any              `json:"examples,omitempty"`
	Items                *schema            `json:"items,omitempty"`
	AdditionalProperties any                `json:"additionalProperties,omitempty"` // a schema or a bool
	Properties           map[string]*schema `json:"properties,omitempty"`
	Enum                 []any              `json:"enum,omitempty"`
	Minimum              *float64           `json:"minimum,omitempty"`
	Maximum              *float64           `json:"maximum,omitempty"`
	MinLength            *float64           `json:"minLength,omitempty"`
	MaxLength            *float64           `json:"maxLength,omitempty"`
	MinItems             *float64           `json:"minItems,omitempty"`
	MaxItems             *float64           `json:"maxItems,omitempty"`
	Required             []string           `json:"required,omitempty"`
	OneOf                []*schema          `json:"oneOf,omitempty"`
	Discriminator        *discriminator     `json:"discriminator,omitempty"`
}

// discriminator names the property whose value tells which schema of oneOf applies.
type discriminator struct {
	PropertyName string            `json:"propertyName"`
	Mapping      map[string]string `json:"mapping"`
}

// anyType is the type of a value of any type.
const anyType = "any"

// MarshalJSON encodes the type of a nullable value as a list.
func (s *schema) MarshalJSON() ([]byte, error) {
	type plain schema
	if s.Type == anyType {
		return json.Marshal(struct {
			Type []string `json:"type"`
			*plain
		}{[]string{"string", "number", "boolean", "array", "object", "null"}, (*plain)(s)})
	}
	if !s.Nullable {
		return json.Marshal((*plain)(s))
	}
	values := *s
	if values.Enum != nil {
		values.Enum = append(slices.Clone(values.Enum), nil)
	}
	return json.Marshal(struct {
		Type [2]string `json:"type"`
		*plain
	}{[2]string{s.Type, "null"}, (*plain)(&values)})
}

// schemas are the schemas of structs, by name. Other schemas refer to them.
type schemas struct {
	byName map[string]*schema
	types  map[string]reflect.Type
}

func newSchemas() *schemas {
	return &schemas{byName: map[string]*schema{}, types: map[string]reflect.Type{}}
}

const schemaRefPrefix = "#/components/schemas/"

// schemaProvider is implemented by types that describe themselves.
type schemaProvider interface{ schema(all *schemas) *schema }

// schemaAdjuster is implemented by types that change the schema of their fields.
type schemaAdjuster interface{ adjustSchema(s *schema) }

// schemaName returns the name of a struct's schema: DomainList for listResponse[domainResponse].
func schemaName(t reflect.Type) string {
	var name strings.Builder
	for part := range strings.FieldsFuncSeq(t.Name(), func(r rune) bool { return r == '[' || r == ']' }) {
		part = part[strings.LastIndexByte(part, '.')+1:]
		first, size := utf8.DecodeRuneInString(part)
		name.WriteRune(unicode.ToUpper(first))
		name.WriteString(part[size:])
	}
	of, list := strings.CutPrefix(name.String(), "ListResponse")
	if of = strings.ReplaceAll(of, "Response", ""); list {
		return of + "List"
	}
	return of
}

// of returns the schema of a type; for a struct it is a reference.
func (all *schemas) of(t reflect.Type) *schema {
	pointer := t.Kind() == reflect.Pointer
	if pointer {
		t = t.Elem()
	}
	value := reflect.New(t).Interface()
	if custom, ok := value.(schemaProvider); ok {
		return custom.schema(all)
	}
	switch t {
	case reflect.TypeFor[apijson.NullString]():
		return &schema{Type: "string", Nullable: true}
	case reflect.TypeFor[apijson.NullInt]():
		return &schema{Type: "integer", Format: "int64", Nullable: true}
	case reflect.TypeFor[apijson.NullFloat]():
		return &schema{Type: "number", Format: "double", Nullable: true}
	case reflect.TypeFor[db.ID]():
		return &schema{Type: "string", Format: "uuid", Nullable: pointer, Examples: []any{"0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"}}
	case reflect.TypeFor[queue.State]():
		return &schema{Type: "string", Nullable: pointer, Enum: []any{queue.Scheduled, queue.Queued, queue.Sending, queue.Deferred, queue.Delivered,
			queue.Bounced, queue.Complained, queue.Suppressed, queue.Failed, queue.Cancelled}}
	case reflect.TypeFor[json.RawMessage]():
		return jsonObject{}.schema(all)
	case timeType:
		return &schema{Type: "string", Format: "date-time", Nullable: pointer}
	}
	if _, text := value.(encoding.TextUnmarshaler); text {
		return &schema{Type: "string", Nullable: pointer}
	}
	switch t.Kind() {
	case reflect.Bool:
		return &schema{Type: "boolean", Nullable: pointer}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer", Format: "int64", Nullable: pointer}
	case reflect.Uint32:
		return &schema{Type: "integer", Format: "int32", Minimum: new(float64), Nullable: pointer}
	case reflect.Float64:
		return &schema{Type: "number", Format: "double", Nullable: pointer}
	case reflect.String:
		return &schema{Type: "string", Nullable: pointer}
	case reflect.Slice:
		return &schema{Type: "array", Items: all.of(t.Elem())}
	case reflect.Map:
		return &schema{Type: "object", AdditionalProperties: all.of(t.Elem())}
	case reflect.Struct:
		if pointer {
			return &schema{OneOf: []*schema{all.ref(t), {Type: "null"}}}
		}
		return all.ref(t)
	default:
		panic(fmt.Sprintf("the document can't describe the type %s", t))
	}
}

// ref returns a reference to the schema of a struct.
func (all *schemas) ref(t reflect.Type) *schema {
	name := schemaName(t)
	if known, ok := all.types[name]; !ok {
		all.types[name] = t // before its fields, which may refer to it
		all.byName[name] = all.ofStruct(t)
	} else if known != t {
		panic(fmt.Sprintf("two types have the schema %s: %s and %s", name, known, t))
	}
	return &schema{Ref: schemaRefPrefix + name}
}

// ofStruct returns the schema of a struct. Unknown members are rejected, unless marshal changes
// that.
func (all *schemas) ofStruct(t reflect.Type) *schema {
	s := &schema{Type: "object", Properties: map[string]*schema{}, AdditionalProperties: false}
	all.addFields(s, t)
	if a, ok := reflect.Zero(t).Interface().(schemaAdjuster); ok {
		a.adjustSchema(s)
	}
	// Problems have extension members (RFC 9457 section 3.2).
	if name := schemaName(t); !strings.HasSuffix(name, "Request") && name != "Problem" && len(s.Required) < len(s.Properties) {
		panic(name + " describes a response, which has all of its fields: one without a value is null")
	}
	return s
}

// addFields adds a struct's own fields, then those of embedded structs.
func (all *schemas) addFields(s *schema, t reflect.Type) {
	var embedded []reflect.Type
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if f.Anonymous && tag == "" {
			embedded = append(embedded, f.Type)
		}
		name, options, _ := strings.Cut(tag, ",")
		if !f.IsExported() || name == "" || name == "-" || s.Properties[name] != nil {
			continue
		}
		s.Properties[name] = all.ofField(f)
		optional := options == "omitempty" || options == "omitzero"
		if !optional || f.Tag.Get("required") == "true" {
			s.Required = append(s.Required, name)
		}
		if optional {
			s.Properties[name] = s.Properties[name].withoutNull()
		}
	}
	for _, e := range embedded {
		if e.Kind() == reflect.Pointer {
			e = e.Elem()
		}
		all.addFields(s, e)
	}
}

// ofField returns the schema of a field, with the rules and texts of its tags. Rules for values
// apply to each element of a list.
func (all *schemas) ofField(f reflect.StructField) *schema {
	s := all.of(f.Type)
	s.Description = f.Tag.Get("doc")
	value := s
	if s.Type == "array" {
		value = s.Items
	}
	if format := f.Tag.Get("format"); format != "" {
		value.Format = format
	}
	if text := f.Tag.Get("default"); text != "" {
		s.Default = s.parseValue(text)
	}
	if text, ok := f.Tag.Lookup("example"); ok {
		s.Examples = []any{s.parseValue(text)}
	}
	if list := f.Tag.Get("enum"); list != "" {
		value.Enum = nil
		for _, word := range enumValues(list) {
			value.Enum = append(value.Enum, value.parseValue(word))
		}
	}
	for name, into := range map[string]**float64{
		"minimum": &value.Minimum, "maximum": &value.Maximum, "minLength": &value.MinLength, "maxLength": &value.MaxLength, "minItems": &s.MinItems, "maxItems": &s.MaxItems,
	} {
		if text := f.Tag.Get(name); text != "" {
			n, err := strconv.ParseFloat(text, 64)
			if err != nil {
				panic(fmt.Sprintf("the tag %s of %s: %v", name, f.Name, err))
			}
			*into = &n
		}
	}
	return s
}

// withoutNull returns the schema without the value null: a client leaves out what it has no value for.
func (s *schema) withoutNull() *schema {
	if len(s.OneOf) == 2 && s.OneOf[1].Type == "null" {
		ref := *s.OneOf[0]
		ref.Description = s.Description
		return &ref
	}
	s.Nullable = false
	return s
}

// parseValue converts a tag's text to a value of the schema: a text, a list of texts, or JSON.
func (s *schema) parseValue(text string) any {
	switch {
	case s.Type == "string":
		return text
	case s.Type == "array" && s.Items.Type == "string":
		list := strings.Split(text, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(fmt.Sprintf("an example or default value %q: %v", text, err))
	}
	return v
}

// allowAdditionalProperties lets the structs of responses get more members later; those of requests
// reject unknown ones.
func (all *schemas) allowAdditionalProperties() {
	for _, name := range slices.Collect(maps.Keys(all.byName)) {
		if !strings.HasSuffix(name, "Request") {
			all.byName[name].AdditionalProperties = nil
		}
	}
}

// The rest of this file are the objects of an OpenAPI 3.1 document.

type openAPI struct {
	OpenAPI    string                                 `json:"openapi"`
	Info       map[string]string                      `json:"info"`
	Servers    []map[string]string                    `json:"servers"`
	Tags       []tagObject                            `json:"tags"`
	Paths      map[string]map[string]*operationObject `json:"paths"` // by path and method
	Webhooks   map[string]map[string]*operationObject `json:"webhooks"`
	Components components                             `json:"components"`
	Security   []map[string][]string                  `json:"security"`
}

type tagObject struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

type components struct {
	Schemas         map[string]*schema           `json:"schemas"`
	Responses       map[string]*responseObject   `json:"responses"`
	Headers         map[string]*parameter        `json:"headers"`
	SecuritySchemes map[string]map[string]string `json:"securitySchemes"`
}

type operationObject struct {
	OperationID string                     `json:"operationId"`
	Summary     string                     `json:"summary"`
	Description string                     `json:"description"`
	Tags        []string                   `json:"tags"`
	Parameters  []*parameter               `json:"parameters,omitempty"`
	RequestBody *requestBody               `json:"requestBody,omitempty"`
	Responses   map[string]*responseObject `json:"responses"`
	Security    []map[string][]string      `json:"security,omitzero"`
}

// parameter is a parameter of a request, or a header field of a response.
type parameter struct {
	Ref         string  `json:"$ref,omitempty"`
	Name        string  `json:"name,omitempty"`
	In          string  `json:"in,omitempty"`
	Description string  `json:"description,omitempty"`
	Required    bool    `json:"required,omitempty"`
	Style       string  `json:"style,omitempty"`
	Explode     *bool   `json:"explode,omitempty"`
	Schema      *schema `json:"schema,omitempty"`
	Example     any     `json:"example,omitempty"`
}

type requestBody struct {
	Description string                `json:"description,omitempty"`
	Required    bool                  `json:"required,omitempty"`
	Content     map[string]*mediaType `json:"content"`
}

type responseObject struct {
	Ref         string                `json:"$ref,omitempty"`
	Description string                `json:"description,omitempty"`
	Headers     map[string]*parameter `json:"headers,omitempty"`
	Content     map[string]*mediaType `json:"content,omitempty"`
}

type mediaType struct {
	Schema  *schema `json:"schema"`
	Example any     `json:"example,omitempty"`
}
