// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// router registers operations with huma, each with the scope it needs.
type router struct {
	api  *API
	huma huma.API
	mux  *http.ServeMux
}

// operation describes an endpoint.
type operation struct {
	method, path string // path below /api/v1
	id           string
	scope        string
	summary      string
	status       int // of success; 200 if 0
}

func (o operation) huma() huma.Operation {
	status := o.status
	if status == 0 {
		status = http.StatusOK
	}
	return huma.Operation{
		Method: o.method, Path: "/api/v1" + o.path, OperationID: o.id, Summary: o.summary,
		Description: "Needs the scope `" + o.scope + "`.", DefaultStatus: status, MaxBodyBytes: maxBody,
		Tags: []string{tag(o.path)},
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
			http.StatusUnprocessableEntity, http.StatusTooManyRequests},
	}
}

// tag groups endpoints by the first part of their path.
func tag(path string) string {
	for i := 1; i < len(path); i++ {
		if path[i] == '/' {
			return path[1:i]
		}
	}
	return path[1:]
}

// handle registers an operation that huma decodes, validates and answers.
func handle[I, O any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (*O, error)) {
	op := o.huma()
	op.Middlewares = huma.Middlewares{func(hc huma.Context, next func(huma.Context)) {
		req, w := humago.Unwrap(hc)
		p, err := r.api.authenticate(req, o.scope)
		if err != nil {
			r.api.fail(w, req, err)
			return
		}
		next(huma.WithValue(hc, principalKey, p))
	}}
	huma.Register(r.huma, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := f(ctx, principal(ctx), in)
		if err != nil {
			return nil, r.api.toProblem(ctx, err)
		}
		return out, nil
	})
}

// handleRaw registers an operation that decodes its own body; I and O only
// describe it.
func handleRaw[I, O any](r *router, o operation, f func(w http.ResponseWriter, req *http.Request, p account.Principal) error) {
	op := o.huma()
	schemas := r.huma.OpenAPI().Components.Schemas
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: huma.SchemaFromType(schemas, reflect.TypeFor[I]())},
	}}
	op.Responses = map[string]*huma.Response{
		strconv.Itoa(op.DefaultStatus): {Description: http.StatusText(op.DefaultStatus), Content: map[string]*huma.MediaType{
			"application/json": {Schema: huma.SchemaFromType(schemas, reflect.TypeFor[O]())},
		}},
		"default": {Description: "Error", Content: map[string]*huma.MediaType{
			"application/problem+json": {Schema: huma.SchemaFromType(schemas, reflect.TypeFor[problem]())},
		}},
	}
	r.huma.OpenAPI().AddOperation(&op)
	r.mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, req *http.Request) {
		p, err := r.api.authenticate(req, o.scope)
		if err == nil {
			err = f(w, req, p)
		}
		if err != nil {
			r.api.fail(w, req, err)
		}
	})
}

// body wraps an answer as huma wants it.
type body[T any] struct{ Body T }

// empty is the answer of a DELETE.
type empty struct{}

// list is a page of a list, newest first.
type list[T any] struct {
	Body struct {
		Data       []T     `json:"data" nullable:"false"`
		HasMore    bool    `json:"has_more" doc:"Whether the list goes on."`
		NextCursor *string `json:"next_cursor" doc:"Give it as after to go on; null at the end."`
	}
}

// page is what every list takes.
type page struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	After  string `query:"after" doc:"Only what comes after this id."`
	Before string `query:"before" doc:"Only what comes just before this id."`
}

func (p page) db() (db.Page, error) {
	out := db.Page{Limit: p.Limit}
	var err error
	if p.After != "" {
		if out.After, err = db.ParseID(p.After); err != nil {
			return out, badCursor("after")
		}
	}
	if p.Before != "" {
		if out.Before, err = db.ParseID(p.Before); err != nil {
			return out, badCursor("before")
		}
	}
	return out, nil
}

// answer makes a list's answer of what a package returned.
func answer[S, T any](items []S, more bool, show func(S) T, id func(S) db.ID) *list[T] {
	l := &list[T]{}
	l.Body.Data = make([]T, len(items))
	for i, item := range items {
		l.Body.Data[i] = show(item)
	}
	l.Body.HasMore = more
	if more && len(items) > 0 {
		next := id(items[len(items)-1]).String()
		l.Body.NextCursor = &next
	}
	return l
}

func badCursor(field string) error {
	var bad fault.Fields
	bad.Add(field, "invalid_cursor", "This is not an id of this list.")
	return bad.Err()
}

var (
	errNotFound  = fault.New(fault.NotFound, "not_found", "There is nothing with this id.")
	errOneDomain = fault.New(fault.Denied, "domain_restricted", "This API key acts for one domain only.")
)

// one is the path of a single resource.
type one struct {
	ID string `path:"id" doc:"The resource's id."`
}
