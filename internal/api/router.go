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
	method, path     string // path below /api/v1; {id...} takes slashes too
	id               string
	scope            string // what the key must be allowed
	summary          string
	description      string
	status           int    // of success; 200 if 0
	mayConflict      bool   // it may answer 409
	responseMedia    string // of the answer; JSON if ""
	requestMedia     string // media types of a request body that is no JSON
	readOnly         bool   // it changes nothing, though it is no GET
	validatesFirst   bool   // it finds all faults of its values before it writes, or does anything that lasts
	maxResponseBytes int    // bytes that its answer may have, of one that changes something and may have many
}

// maxReadsPerAccount is how many answers are made for one account at a time. Some have
// megabytes, and how many they will have is not known before.
const maxReadsPerAccount = 8

func (o operation) successStatus() int {
	if o.status == 0 {
		return http.StatusOK
	}
	return o.status
}

// emptyResponse is the answer of a DELETE.
type emptyResponse struct{}

// handle registers an operation whose path, query and body are described by
// the struct I, and whose answer is O.
func handle[I, O any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) {
	describe[I, O](r.doc, o)
	r.serve(o, operationHandler(r.api, o, f))
}

// operationHandler reads the request of an operation, and writes its answer.
func operationHandler[I, O any](a *API, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) handler {
	return func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		body := memoryReservation{budget: a.memory, account: p.Account}
		defer body.release()
		if err := bindBody(w, req, &in, body.reserve); err != nil {
			if fault.Is(err, fault.RateLimited) { // a client that is still sending would not see the answer
				body.release()
				_, _ = io.CopyN(io.Discard, req.Body, maxBody)
			}
			return a.collectFaults(req.Context(), err, o, &body, func(ctx context.Context) (any, error) { return f(ctx, p, &in) })
		}
		if o.maxResponseBytes > 0 { // what was done will have to be told
			if err := body.reserve(o.maxResponseBytes); err != nil {
				return err
			}
		}
		done := auditRecordFrom(req.Context())
		done.setFields(&in)
		answer, err := a.runOperation(req.Context(), o, &body, func() (any, error) {
			out, err := f(req.Context(), p, &in)
			if err == nil {
				done.setResult(out)
			}
			return out, err
		})
		if err == nil {
			done.finish(nil)
			answer.write(w)
		}
		return err
	}
}

// runOperation carries an operation out. The answers of those that change nothing are kept,
// until the client has read them, only if there is room; those to GET are made in a
// turn of the account's.
func (a *API) runOperation(ctx context.Context, o operation, room *memoryReservation, act func() (any, error)) (response, error) {
	if o.method == http.MethodGet {
		pass, err := a.readSlots.Acquire(ctx, room.account, maxReadsPerAccount)
		if err != nil {
			return response{}, err
		}
		defer pass()
	}
	out, err := act()
	if err != nil {
		return response{}, err
	}
	answer, err := o.response(out)
	if more := len(answer.body) - freeBodyBytes; more > 0 && (o.readOnly || o.method == http.MethodGet) {
		err = room.reserve(more)
	}
	return answer, err
}

// collectFaults adds to the faults of an input's form those of its values, so that all are
// told at once: the operation finds them by being carried out, without writing anything.
func (a *API) collectFaults(ctx context.Context, bad error, o operation, room *memoryReservation, act func(context.Context) (any, error)) error {
	var all fault.FieldErrors
	if !o.validatesFirst && o.method != http.MethodGet || mergeFaults(&all, bad) != nil {
		return bad
	}
	ctx = db.WithReadOnly(ctx)
	_, also := a.runOperation(ctx, o, room, func() (any, error) { return act(ctx) })
	var f *fault.Error
	if errors.As(also, &f) { // what is not about a field, such as that nothing is there, matters once the form is right
		form := all
		for _, field := range f.Fields {
			if !slices.ContainsFunc(form, func(known fault.FieldError) bool { return coversField(known.Path, field.Path) }) {
				all = append(all, field)
			}
		}
	}
	return all.Err()
}

// coversField reports whether a fault of a field's form stands for others of it: those of the
// same field, of a list whose element it is, and, where the body has no form, of all.
func coversField(form, field string) bool {
	rest, ok := strings.CutPrefix(form, field)
	return form == "body" || ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
}

// handler answers a request of who may make it.
type handler func(w http.ResponseWriter, req *http.Request, p account.Principal) error

func (r *router) serve(o operation, f handler) {
	if o.method != http.MethodGet && (auditPhrases[o.id] == "") == (unauditedOperations[o.id] == "") {
		panic("say what the audit log says of " + o.id)
	}
	r.mux.HandleFunc(o.method+" /api/v1"+o.path, func(w http.ResponseWriter, req *http.Request) {
		p, err := r.api.identify(req)
		if err == nil {
			err = r.api.countRequest(w, req, p)
		}
		if err == nil {
			err = p.RequireScope(o.scope)
		}
		if err == nil {
			req.Body = revalidatingBody{req.Body, func() error { return r.api.revalidateKey(req) }}
			err = r.api.withAudit(o, req, p, func(req *http.Request) error { return f(w, req, p) })
		}
		if err != nil {
			r.api.writeProblem(w, req, err)
		}
	})
}

// response is an answer to be written.
type response struct {
	status int
	media  string // "" for an answer without a body
	body   []byte
}

// response makes the answer of what an operation returned.
func (o operation) response(out any) (response, error) {
	switch out := out.(type) {
	case emptyResponse:
		return response{status: o.successStatus()}, nil
	case []byte:
		return response{o.successStatus(), o.responseMedia, out}, nil
	}
	text, err := encodeJSON(out)
	return response{o.successStatus(), "application/json", text}, err
}

func (a response) write(w http.ResponseWriter) {
	if a.media == "" {
		w.WriteHeader(a.status)
		return
	}
	writeBody(w, a.status, a.media, a.body)
}

// respond writes what an operation returned.
func (o operation) respond(w http.ResponseWriter, out any) error {
	answer, err := o.response(out)
	if err == nil {
		answer.write(w)
	}
	return err
}

// writeJSON writes JSON.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, status int, media string, v any) {
	text, err := encodeJSON(v)
	if err != nil {
		a.writeProblem(w, r, err) // a problem can always be written
		return
	}
	writeBody(w, status, media, text)
}

// encodeJSON makes JSON as it is, without escapes for HTML.
func encodeJSON(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("writing an answer: %w", err)
	}
	return text.Bytes(), nil
}

func writeBody(w http.ResponseWriter, status int, media string, text []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have left
}

const catchAllPattern = "/"

var errNoEndpoint = fault.New(fault.NotFound, "no_such_endpoint", "There is no such endpoint; /api/v1/openapi.json lists them all.")

// serveUnknown answers for paths that are not there, and for methods that a path
// does not have.
func (r *router) serveUnknown(w http.ResponseWriter, req *http.Request) {
	methods := allowedMethods(r.mux, req)
	if len(methods) == 0 || slices.Contains(methods, req.Method) {
		r.api.writeProblem(w, req, errNoEndpoint)
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	r.api.writeProblem(w, req, newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "This endpoint takes "+strings.Join(methods, ", ")+"."))
}

// allowedMethods lists the methods that a request's path has.
func allowedMethods(mux *http.ServeMux, req *http.Request) (methods []string) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		probe := &http.Request{Method: method, URL: req.URL, Host: req.Host}
		if _, pattern := mux.Handler(probe); pattern != catchAllPattern && pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}
