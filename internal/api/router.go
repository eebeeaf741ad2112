// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// router registers operations, in the mux and in the document.
type router struct {
	api *API
	mux *http.ServeMux
	doc *document
}

// operation describes an endpoint.
type operation struct {
	method, path string // path below /api/v1; {id...} takes slashes too
	id           string
	scope        string // what the key must be allowed
	summary      string
	description  string
	status       int    // of success; 200 if 0
	conflicts    bool   // it may answer 409
	media        string // of the answer; JSON if ""
	takes        string // media types of a request body that is no JSON
	reads        bool   // it changes nothing, though it is no GET
	checksFirst  bool   // it finds all faults of its values before it writes, or does anything that lasts
	room         int    // bytes that its answer may have, of one that changes something and may have many
}

// readsOfOne is how many answers are made for one account at a time. Some have
// megabytes, and how many they will have is not known before.
const readsOfOne = 8

func (o operation) success() int {
	if o.status == 0 {
		return http.StatusOK
	}
	return o.status
}

// nothing is the answer of a DELETE.
type nothing struct{}

// handle registers an operation whose path, query and body are described by
// the struct I, and whose answer is O.
func handle[I, O any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) {
	describe[I, O](r.doc, o)
	r.serve(o, carryOut(r.api, o, f))
}

// carryOut reads the request of an operation, and writes its answer.
func carryOut[I, O any](a *API, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) handler {
	return func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		body := kept{of: a.bodies, account: p.Account}
		defer body.giveBack()
		if err := bindBody(w, req, &in, body.take); err != nil {
			if fault.Is(err, fault.Limited) { // a client that is still sending would not see the answer
				body.giveBack()
				_, _ = io.CopyN(io.Discard, req.Body, maxBody)
			}
			return a.allFaults(req.Context(), err, o, &body, func(ctx context.Context) (any, error) { return f(ctx, p, &in) })
		}
		if o.room > 0 { // what was done will have to be told
			if err := body.take(o.room); err != nil {
				return err
			}
		}
		done := recordOf(req.Context())
		done.take(&in)
		answer, err := a.made(req.Context(), o, &body, func() (any, error) {
			out, err := f(req.Context(), p, &in)
			if err == nil {
				done.gave(out)
			}
			return out, err
		})
		if err == nil {
			done.end(nil)
			answer.write(w)
		}
		return err
	}
}

// made carries an operation out. The answers of those that change nothing are kept,
// until the client has read them, only if there is room; those to GET are made in a
// turn of the account's.
func (a *API) made(ctx context.Context, o operation, room *kept, act func() (any, error)) (ready, error) {
	if o.method == http.MethodGet {
		pass, err := a.reading.Take(ctx, room.account, readsOfOne)
		if err != nil {
			return ready{}, err
		}
		defer pass()
	}
	out, err := act()
	if err != nil {
		return ready{}, err
	}
	answer, err := o.ready(out)
	if more := len(answer.text) - freeBody; more > 0 && (o.reads || o.method == http.MethodGet) {
		err = room.take(more)
	}
	return answer, err
}

// allFaults adds to the faults of an input's form those of its values, so that all are
// told at once: the operation finds them by being carried out, without writing anything.
func (a *API) allFaults(ctx context.Context, bad error, o operation, room *kept, act func(context.Context) (any, error)) error {
	var all fault.Fields
	if !o.checksFirst && o.method != http.MethodGet || merge(&all, bad) != nil {
		return bad
	}
	ctx = db.ReadOnly(ctx)
	_, also := a.made(ctx, o, room, func() (any, error) { return act(ctx) })
	var f *fault.Error
	if errors.As(also, &f) { // what is not about a field, such as that nothing is there, matters once the form is right
		form := all
		for _, field := range f.Fields {
			if !slices.ContainsFunc(form, func(known fault.Field) bool { return covers(known.Field, field.Field) }) {
				all = append(all, field)
			}
		}
	}
	return all.Err()
}

// covers reports whether a fault of a field's form stands for others of it: those of the
// same field, of a list whose element it is, and, where the body has no form, of all.
func covers(form, field string) bool {
	rest, ok := strings.CutPrefix(form, field)
	return form == "body" || ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
}

// handler answers a request of who may make it.
type handler func(w http.ResponseWriter, req *http.Request, p account.Principal) error

func (r *router) serve(o operation, f handler) {
	if o.method != http.MethodGet && (changes[o.id] == "") == (unaudited[o.id] == "") {
		panic("say what the audit log says of " + o.id)
	}
	r.mux.HandleFunc(o.method+" /api/v1"+o.path, func(w http.ResponseWriter, req *http.Request) {
		p, err := r.api.identify(req)
		if err == nil {
			err = r.api.count(w, req, p)
		}
		if err == nil {
			err = p.Require(o.scope)
		}
		if err == nil {
			req.Body = arrivingBody{req.Body, func() error { return r.api.still(req) }}
			err = r.api.audited(o, req, p, func(req *http.Request) error { return f(w, req, p) })
		}
		if err != nil {
			r.api.fail(w, req, err)
		}
	})
}

// ready is an answer to be written.
type ready struct {
	status int
	media  string // "" for an answer without a body
	text   []byte
}

// ready makes the answer of what an operation returned.
func (o operation) ready(out any) (ready, error) {
	switch out := out.(type) {
	case nothing:
		return ready{status: o.success()}, nil
	case []byte:
		return ready{o.success(), o.media, out}, nil
	}
	text, err := encode(out)
	return ready{o.success(), "application/json", text}, err
}

func (a ready) write(w http.ResponseWriter) {
	if a.media == "" {
		w.WriteHeader(a.status)
		return
	}
	writeText(w, a.status, a.media, a.text)
}

// answer writes what an operation returned.
func (o operation) answer(w http.ResponseWriter, out any) error {
	answer, err := o.ready(out)
	if err == nil {
		answer.write(w)
	}
	return err
}

// write writes JSON.
func (a *API) write(w http.ResponseWriter, r *http.Request, status int, media string, v any) {
	text, err := encode(v)
	if err != nil {
		a.fail(w, r, err) // a problem can always be written
		return
	}
	writeText(w, status, media, text)
}

// encode makes JSON as it is, without escapes for HTML.
func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("writing an answer: %w", err)
	}
	return text.Bytes(), nil
}

func writeText(w http.ResponseWriter, status int, media string, text []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have left
}

const elsewhere = "/"

var errNoEndpoint = fault.New(fault.NotFound, "no_such_endpoint", "There is no such endpoint; /api/v1/openapi.json lists them all.")

// elsewhere answers for paths that are not there, and for methods that a path
// does not have.
func (r *router) elsewhere(w http.ResponseWriter, req *http.Request) {
	methods := allowed(r.mux, req)
	if len(methods) == 0 || slices.Contains(methods, req.Method) {
		r.api.fail(w, req, errNoEndpoint)
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	r.api.fail(w, req, newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "This endpoint takes "+strings.Join(methods, ", ")+"."))
}

// allowed lists the methods that a request's path has.
func allowed(mux *http.ServeMux, req *http.Request) (methods []string) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		probe := &http.Request{Method: method, URL: req.URL, Host: req.Host}
		if _, pattern := mux.Handler(probe); pattern != elsewhere && pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}
