// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/web"
)

const (
	// idempotencyKeyHeader is the header that makes a request safe to repeat.
	idempotencyKeyHeader = "Idempotency-Key"
	// maxStoredResponse is the maximum size of a response that is stored after a change, in bytes.
	// Those of sends have no limit: the messages themselves are larger.
	maxStoredResponse = 128 << 10
)

// idempotencyKeyInput describes the header for the document.
type idempotencyKeyInput struct {
	Key string `header:"Idempotency-Key" maxLength:"256" doc:"Your own id for this request, 1 to 256 printable characters: repeated with it, the request takes effect once." example:"order-42"`
}

// takesIdempotencyKey reports whether an operation honours the header. One that changes nothing may
// be repeated without it.
func (o operation) takesIdempotencyKey() bool { return o.method == http.MethodPost && !o.readOnly }

// keyedRequest is a request with an Idempotency-Key. The first commit of its changes reserves the
// key. The response is stored in the same commit (sends) or afterwards.
type keyedRequest struct {
	query  url.Values
	claim  *idempotency.Claim // nil if the key is at fault
	faults fault.FieldErrors  // of the header
	stored *idempotency.StoredResponse
	replay []byte // stored response to this request
	sum    [sha256.Size]byte
	saved  bool // whether the response was stored with the changes
}

type keyedRequestKey struct{}

// keyedRequestFrom returns the keyed request of a context, or nil.
func keyedRequestFrom(ctx context.Context) *keyedRequest {
	k, _ := ctx.Value(keyedRequestKey{}).(*keyedRequest)
	return k
}

// errReplayed ends the handler of a request whose response is stored.
var errReplayed = fault.New(fault.Conflict, "idempotency_replayed", "This request was carried out before.")

// headerFaults returns the faults of the header, also of no request.
func (k *keyedRequest) headerFaults() fault.FieldErrors {
	if k == nil {
		return nil
	}
	return k.faults
}

// setContent gives the content of the request: its JSON text, and the checksums of the attachments
// that the text only has numbers of. It returns errReplayed if the response to the same request is
// stored, and a fault if the key was used with other content. It may be called on nil.
func (k *keyedRequest) setContent(text []byte, files []hash.Hash, reserve func(n int) error) error {
	if k == nil {
		return nil
	}
	if n := 2 * len(text); n > freeBodyBytes && reserve != nil { // of the canonical form and its buffer
		if err := reserve(n); err != nil {
			return err
		}
	}
	h := sha256.New()
	_, _ = h.Write(canonicalJSON(text))
	for _, f := range files {
		_, _ = h.Write(f.Sum(nil))
	}
	return k.setSum(h)
}

// setSum sets the checksum of the content. It includes the query, and returns what setContent does.
func (k *keyedRequest) setSum(content hash.Hash) (err error) {
	_, _ = fmt.Fprintf(content, "\n%s", k.query.Encode())
	k.sum = [sha256.Size]byte(content.Sum(nil))
	if k.stored == nil {
		return nil
	}
	if k.replay, err = k.stored.Response(k.sum); err != nil {
		return err
	}
	return errReplayed
}

// canonicalJSON returns a JSON text in a form that does not depend on space, the order of members
// and the escapes in strings. It returns an invalid text as it is.
func canonicalJSON(text []byte) []byte {
	v := jsontext.Value(bytes.Clone(text))
	if v.Format(jsontext.ReorderRawObjects(true)) != nil {
		return text
	}
	return v
}

// saveWithChanges returns a function that queues the storing of a response in the commit of the
// request's changes.
func (k *keyedRequest) saveWithChanges(answer response) func(*db.Batch) {
	text := answer.encode()
	k.saved = true
	return func(b *db.Batch) { k.claim.StoreResponse(b, k.sum, text) }
}

// encode returns the response as it is stored: status and media type in a line, then the body.
func (a response) encode() []byte {
	return append(fmt.Appendf(nil, "%d %s\n", a.status, a.media), a.body...)
}

// decodeResponse is the inverse of encode.
func decodeResponse(text []byte) (a response, err error) {
	line, body, _ := bytes.Cut(text, []byte("\n"))
	if n, err := fmt.Sscanf(string(line), "%d", &a.status); n != 1 {
		return a, fmt.Errorf("a stored response can't be read: %w", err)
	}
	_, a.media, _ = strings.Cut(string(line), " ")
	a.body = body
	return a, nil
}

// handleOnce handles a request that may have an Idempotency-Key. With one, it takes effect once:
// when it is repeated, the response to the first one is sent again.
func (a *API) handleOnce(o operation, w http.ResponseWriter, req *http.Request, p account.Principal, act func(http.ResponseWriter, *http.Request) error) error {
	keys := req.Header.Values(idempotencyKeyHeader)
	if !o.takesIdempotencyKey() || len(keys) == 0 {
		return act(w, req)
	}
	k := &keyedRequest{query: req.URL.Query()}
	if len(keys) > 1 {
		k.faults.Add(idempotencyKeyHeader, "given_twice", "Give this header once.")
	} else {
		var err error
		k.claim, err = a.IdempotencyKeys.Claim(p.Account, idempotency.APIKeyPrincipal(p.Key), strings.TrimPrefix(req.URL.Path, "/api/v1"), keys[0])
		defer k.claim.Release()
		if err == nil {
			k.stored, err = k.claim.Load(req.Context())
		}
		if mergeFaults(&k.faults, asFieldFault(err, idempotencyKeyHeader)) != nil {
			discardBody(req, o.bodyLimit())
			return err
		}
	}
	reserved, err := a.runKeyed(o, w, req, k, act)
	if err != nil && k.claim != nil && k.stored == nil && !reserved && !errors.Is(err, db.ErrCommitUnknown) {
		err = k.outcomeElsewhere(req.Context(), err)
	}
	if errors.Is(err, errReplayed) {
		answer, err := decodeResponse(k.replay)
		if err != nil {
			return err
		}
		w.Header().Set("Idempotency-Replayed", "true")
		answer.write(w)
		return nil
	}
	return err
}

// outcomeElsewhere returns what became of the request on another node, which may have been faster
// and be the reason for the error. It returns errReplayed if the response is stored, and err if no
// other node has the key.
func (k *keyedRequest) outcomeElsewhere(ctx context.Context, err error) error {
	stored, failed := k.claim.Load(ctx)
	switch {
	case failed != nil:
		return failed
	case stored == nil:
		return err
	}
	if k.replay, failed = stored.Response(k.sum); failed != nil {
		return failed
	}
	return errReplayed
}

// runKeyed runs a keyed request, and stores its response before the client gets it. It reports
// whether the request's changes reserved the key.
func (a *API) runKeyed(o operation, w http.ResponseWriter, req *http.Request, k *keyedRequest, act func(http.ResponseWriter, *http.Request) error) (reserved bool, err error) {
	ctx := req.Context()
	if o.requestMedia == "" {
		// A client that disconnected comes again for the response.
		ctx = context.WithoutCancel(ctx)
	}
	ctx = context.WithValue(ctx, keyedRequestKey{}, k)
	content := sha256.New()
	switch {
	case o.requestMedia != "": // the content is known once the file was read
		if k.claim == nil {
			return false, k.faults.Err()
		}
		if k.stored != nil {
			body, arrived := limitBody(w, req, o.bodyLimit(), sendTimeout)
			if _, err := io.Copy(content, body); err != nil {
				return false, err
			}
			arrived()
			return false, k.setSum(content)
		}
		req = req.WithContext(ctx)
		req.Body = &hashedBody{req.Body, content}
	case !o.hasBody:
		if err := k.setSum(content); err != nil {
			return false, err
		}
		fallthrough
	default:
		req = req.WithContext(ctx)
	}
	if k.claim == nil { // the handler reports the faults of the header with those of the body
		return false, act(w, req)
	}
	guard := k.claim.CommitGuard(func() [sha256.Size]byte { return k.sum })
	out := &responseBuffer{ResponseWriter: w}
	err = act(out, req.WithContext(db.WithCommitGuard(ctx, guard)))
	if o.requestMedia != "" {
		_ = k.setSum(content)
	}
	if err != nil {
		a.endFailed(ctx, o, k, guard, err)
		return guard.Committed(), err
	}
	if err := a.saveResponse(ctx, k, out.response()); err != nil {
		return false, err
	}
	out.send()
	return true, nil
}

// saveResponse stores the response of a request whose changes are committed. It returns
// idempotency.ErrKeyUsed if nothing was committed and another request was faster.
func (a *API) saveResponse(ctx context.Context, k *keyedRequest, answer response) error {
	if k.saved {
		return nil
	}
	if len(answer.body) > maxStoredResponse {
		large := newProblem(http.StatusConflict, "idempotency_response_too_large",
			"A request with this idempotency key was carried out. Its answer was too large to be kept: read what it made instead.")
		large.RequestID, large.Errors = web.RequestIDFromContext(ctx), []fieldErrorResponse{}
		text, err := encodeJSON(large)
		if err != nil {
			return err
		}
		answer = response{large.Status, "application/problem+json", text}
	}
	err := k.claim.SaveResponse(context.WithoutCancel(ctx), k.sum, answer.encode())
	if err != nil && !errors.Is(err, idempotency.ErrKeyUsed) {
		// The changes are made and this client learns of it. The key stays reserved.
		a.Log.ErrorContext(ctx, "storing the response under an idempotency key failed", "request", web.RequestIDFromContext(ctx), "error", err)
		return nil
	}
	return err
}

// endFailed ends a request that failed. If it was refused, the key can be used again. After another
// error its result is unknown.
func (a *API) endFailed(ctx context.Context, o operation, k *keyedRequest, guard *db.CommitGuard, cause error) {
	end := k.claim.MarkUnknown
	switch {
	case !guard.Committed() && !errors.Is(cause, db.ErrCommitUnknown):
		return // nothing was reserved
	case isRefusal(cause), o.requestMedia != "": // a file may be sent again: what it brought is left out
		end = k.claim.Cancel
	}
	if err := end(context.WithoutCancel(ctx)); err != nil { // the key stays reserved
		a.Log.ErrorContext(ctx, "releasing an idempotency key failed", "request", web.RequestIDFromContext(ctx), "error", err)
	}
}

// isRefusal reports whether an error says that the request was refused, rather than that it failed.
func isRefusal(err error) bool {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Status < http.StatusInternalServerError
	}
	return web.Status(fault.KindOf(err)) < http.StatusInternalServerError
}

// hashedBody is a request body that is hashed while it is read.
type hashedBody struct {
	io.ReadCloser
	content hash.Hash
}

func (b *hashedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.content.Write(p[:n])
	return n, err
}

// responseBuffer keeps a response until it is stored.
type responseBuffer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// Unwrap gives http.ResponseController the connection, for the deadlines.
func (b *responseBuffer) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b *responseBuffer) WriteHeader(status int) { b.status = status }

func (b *responseBuffer) Write(p []byte) (int, error) { return b.body.Write(p) }

func (b *responseBuffer) response() response {
	return response{b.status, b.Header().Get("Content-Type"), b.body.Bytes()}
}

func (b *responseBuffer) send() { b.response().write(b.ResponseWriter) }

// discardBody reads the rest of a body, up to a limit: a client that is still sending would not see
// the response.
func discardBody(r *http.Request, limit int64) { _, _ = io.CopyN(io.Discard, r.Body, limit) }
