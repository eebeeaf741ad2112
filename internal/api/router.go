// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/web"
)

// router registers operations in the mux and in the document.
type router struct {
	api *API
	mux *http.ServeMux
	doc *document
}

// operation describes an endpoint.
type operation struct {
	method, path     string // path below /api/v1; {id...} takes slashes too
	id               string
	scope            string // scope that the key needs
	summary          string
	description      string
	status           int    // of a successful response; 200 if 0
	mayConflict      bool   // whether it may respond with 409
	responseMedia    string // media type of the response; JSON if ""
	requestMedia     string // media types of a request body that is not JSON
	readOnly         bool   // whether it changes nothing, although it is not a GET
	validatesFirst   bool   // whether it finds all faults of its values before it writes or has any lasting effect
	hasBody          bool   // whether its body is JSON
	maxBodyBytes     int64  // maximum size of the body, in bytes; maxBody if 0
	maxResponseBytes int    // maximum response size in bytes, for an operation that changes something and may have a large response
}

// maxReadsPerAccount is the maximum number of concurrent reads per account. Some responses have
// megabytes, and their size is not known in advance.
const maxReadsPerAccount = 8

func (o operation) successStatus() int {
	if o.status == 0 {
		return http.StatusOK
	}
	return o.status
}

func (o operation) bodyLimit() int64 { return cmp.Or(o.maxBodyBytes, maxBody) }

// emptyResponse is the response to a DELETE.
type emptyResponse struct{}

// handle registers an operation. The struct I describes its path, query and body; O is its
// response.
func handle[I, O any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) {
	describeOperation[I, O](r.doc, o)
	_, o.hasBody = reflect.TypeFor[I]().FieldByName("Body")
	r.register(o, operationHandler(r.api, o, f))
}

// operationHandler returns a handler that decodes an operation's request and writes its response.
func operationHandler[I, O any](a *API, o operation, f func(ctx context.Context, p account.Principal, in *I) (O, error)) handler {
	return func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		body := memoryReservation{budget: a.memory, account: p.Account}
		defer body.release()
		faults := keyedRequestFrom(req.Context()).headerFaults()
		err := cmp.Or(mergeFaults(&faults, bindBody(w, req, &in, body.reserve)), faults.Err())
		if list, ok := any(&in).(interface{ setListKey(k listKey) }); ok {
			list.setListKey(newListKey(p.Account, o.id, &in))
		}
		if err != nil {
			if fault.Is(err, fault.RateLimited) { // a client that is still sending would not see the response
				body.release()
				discardBody(req, maxBody)
			}
			return a.collectFaults(req.Context(), err, o, &body, func(ctx context.Context) (any, error) { return f(ctx, p, &in) })
		}
		if o.maxResponseBytes > 0 { // memory for the response must be available before the change
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

// runOperation runs an operation. A GET takes one of the account's read slots. The response of an
// operation that changes nothing must fit into the memory budget, where it counts until the client
// has read it.
func (a *API) runOperation(ctx context.Context, o operation, capacity *memoryReservation, act func() (any, error)) (response, error) {
	if o.method == http.MethodGet {
		pass, err := a.readSlots.Acquire(ctx, capacity.account, maxReadsPerAccount)
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
		err = capacity.reserve(more)
	}
	return answer, err
}

// collectFaults adds the faults of an input's values to those of its form, so that all are reported
// at once. To find them, it runs the operation without writing.
func (a *API) collectFaults(ctx context.Context, bad error, o operation, capacity *memoryReservation, act func(context.Context) (any, error)) error {
	var all fault.FieldErrors
	if !o.validatesFirst && o.method != http.MethodGet || mergeFaults(&all, bad) != nil {
		return bad
	}
	ctx = db.WithReadOnly(ctx)
	_, also := a.runOperation(ctx, o, capacity, func() (any, error) { return act(ctx) })
	var f *fault.Error
	if errors.As(also, &f) { // faults without fields, such as not found, matter only once the form is valid
		form := all
		for _, field := range f.Fields {
			if !slices.ContainsFunc(form, func(known fault.FieldError) bool { return coversField(known.Path, field.Path) }) {
				all = append(all, field)
			}
		}
	}
	return all.Err()
}

// coversField reports whether a fault of a field's form covers the other field's fault: the same
// field, a list that contains it, or the whole body.
func coversField(form, field string) bool {
	rest, ok := strings.CutPrefix(form, field)
	return form == "body" || ok && (rest == "" || rest[0] == '[' || rest[0] == '.')
}

// handler handles a request of an authenticated principal.
type handler func(w http.ResponseWriter, req *http.Request, p account.Principal) error

func (r *router) register(o operation, f handler) {
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
			err = r.api.handleOnce(o, w, req, p, func(w http.ResponseWriter, req *http.Request) error {
				return r.api.withAudit(o, req, p, func(req *http.Request) error { return f(w, req, p) })
			})
		}
		if err != nil {
			r.api.writeProblem(w, req, err)
		}
	})
}

// response is an encoded response.
type response struct {
	status int
	media  string // "" for a response without a body
	body   []byte
}

// response encodes the result of an operation.
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

// respond writes the result of an operation.
func (o operation) respond(w http.ResponseWriter, out any) error {
	answer, err := o.response(out)
	if err == nil {
		answer.write(w)
	}
	return err
}

// handleFile registers an operation that responds with a file.
func handleFile[I any](r *router, o operation, f func(ctx context.Context, p account.Principal, in *I) (*web.FileResponse, error)) {
	describeOperation[I, []byte](r.doc, o)
	r.register(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		if err := bind(req, &in); err != nil {
			return err
		}
		out, err := f(req.Context(), p, &in)
		if err != nil {
			return err
		}
		return out.Serve(w, req, r.api.Log)
	})
}

// writeJSON writes JSON.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, status int, media string, v any) {
	text, err := encodeJSON(v)
	if err != nil {
		a.writeProblem(w, r, err) // a problem can always be encoded
		return
	}
	writeBody(w, status, media, text)
}

// encodeJSON encodes a value as JSON, with a line end.
func encodeJSON(v any) ([]byte, error) {
	text, err := apijson.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func writeBody(w http.ResponseWriter, status int, media string, text []byte) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // the client may have disconnected
}

const catchAllPattern = "/"

var errNoEndpoint = fault.New(fault.NotFound, "no_such_endpoint", "There is no such endpoint; /api/v1/openapi.json lists them all.")

// serveUnknown responds to unknown paths and to unsupported methods.
func (r *router) serveUnknown(w http.ResponseWriter, req *http.Request) {
	methods := allowedMethods(r.mux, req)
	if len(methods) == 0 || slices.Contains(methods, req.Method) {
		r.api.writeProblem(w, req, errNoEndpoint)
		return
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	r.api.writeProblem(w, req, newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "This endpoint takes "+strings.Join(methods, ", ")+"."))
}

// allowedMethods lists the methods of a request's path.
func allowedMethods(mux *http.ServeMux, req *http.Request) (methods []string) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		probe := &http.Request{Method: method, URL: req.URL, Host: req.Host}
		if _, pattern := mux.Handler(probe); pattern != catchAllPattern && pattern != "" {
			methods = append(methods, method)
		}
	}
	return methods
}
