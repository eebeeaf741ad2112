// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"net/http"
	"reflect"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/outbound"
)

// idempotencyKeyHeader is the header that makes a request safe to repeat.
const idempotencyKeyHeader = "Idempotency-Key"

// sendInput describes the input of an operation that sends, for the document. It is never filled
// in.
type sendInput[I any] struct {
	Key  string `header:"Idempotency-Key" maxLength:"256" doc:"Your own id for this request, 1 to 256 printable characters. Repeated by the same API key with the same id and body within 24 hours, the request does nothing and gets the first answer again, with the header Idempotency-Replayed: true. Another API key's ids are its own." example:"order-42"`
	Body I
}

// submission holds the messages of a request and their options.
type submission struct {
	sends []outbound.SendRequest
	outbound.SendOptions
}

// decodedAttachments holds a request's attachments, and its type faults.
type decodedAttachments struct {
	spool   *spool
	faults  fault.FieldErrors
	reserve func(n int) error // reserves memory before the built messages exceed freeBodyBytes
}

// handleSend registers an operation that sends. Its body, of type I, is read as a stream, and the
// attachments go to a spool. build converts the body to a submission. show builds the response
// before the commit, so that the same commit can store it for repeated requests.
func handleSend[I, O any](r *router, o operation, b bodyLimits,
	build func(ctx context.Context, p account.Principal, in *I, with decodedAttachments) (submission, error), show func([]outbound.SendResult) O,
) {
	describeOperation[sendInput[I], O](r.doc, o)
	r.register(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		if err := rejectQuery(req); err != nil {
			return err
		}
		post := &sendOperation{api: r.api, path: o.path, bodyLimits: b, principal: p}
		defer post.close()
		var in I
		answer, err := post.run(w, req, &in,
			func(with decodedAttachments) (submission, error) { return build(req.Context(), p, &in, with) },
			func(results []outbound.SendResult) any { return show(results) })
		r.api.addSendLimitHeaders(w, req, p)
		if err != nil {
			return err
		}
		if post.replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		writeBody(w, o.successStatus(), "application/json", answer)
		return nil
	})
}

// sendOperation is a send request in progress.
type sendOperation struct {
	bodyLimits
	api         *API
	path        string
	principal   account.Principal
	spool       spool
	reservation memoryReservation
	claim       *idempotency.Claim // nil without an Idempotency-Key
	bodyHash    hash.Hash          // of the body, if there is an Idempotency-Key
	faults      fault.FieldErrors
	replayed    bool
}

func (p *sendOperation) close() {
	p.spool.close()
	p.claim.Release()
	p.reservation.release()
}

// discardBody reads the rest of a body, up to a limit: a client that is still sending would not see
// the response. It releases the body's memory.
func (p *sendOperation) discardBody(r *http.Request) {
	p.reservation.release()
	_, _ = io.CopyN(io.Discard, r.Body, p.maxBytes)
}

func (p *sendOperation) run(w http.ResponseWriter, r *http.Request, in any,
	build func(decodedAttachments) (submission, error), show func([]outbound.SendResult) any,
) ([]byte, error) {
	err := p.claimIdempotencyKey(r)
	var types fault.FieldErrors
	if err == nil {
		types, err = p.readBody(w, r, in)
	}
	if err != nil {
		p.discardBody(r)
		return nil, err
	}
	if answer, err := p.storedResponse(r.Context()); answer != nil || err != nil {
		return answer, err
	}
	order, err := build(decodedAttachments{&p.spool, types, p.reservation.reserve})
	if err != nil {
		return nil, err
	}
	order.RequestFaults = append(order.RequestFaults, p.faults...)
	return p.send(r.Context(), order, show)
}

// claimIdempotencyKey claims the request's Idempotency-Key, if it has one.
func (p *sendOperation) claimIdempotencyKey(r *http.Request) (err error) {
	keys := r.Header.Values(idempotencyKeyHeader)
	switch len(keys) {
	case 0:
		return nil
	case 1:
		p.claim, err = p.api.IdempotencyKeys.Claim(p.principal.Account, idempotency.APIKeyPrincipal(p.principal.Key), p.path, keys[0])
		p.bodyHash = sha256.New()
		return mergeFaults(&p.faults, asFieldFault(err, idempotencyKeyHeader))
	}
	p.faults.Add(idempotencyKeyHeader, "given_twice", "Give this header once.")
	return nil
}

// readBody decodes the body and writes its attachments to the spool as they arrive. It returns the
// type faults.
func (p *sendOperation) readBody(w http.ResponseWriter, r *http.Request, in any) (fault.FieldErrors, error) {
	if err := requireJSON(r); err != nil {
		return nil, err
	}
	body, arrived := limitBody(w, r, p.maxBytes, sendTimeout)
	if p.bodyHash != nil {
		body = io.TeeReader(body, p.bodyHash)
	}
	p.reservation = memoryReservation{budget: p.api.memory, account: p.principal.Account}
	p.reserve, p.spool.dir = p.reservation.reserve, p.api.SpoolDir
	rest, bad, err := extractAttachments(body, r.ContentLength, p.spool.addFile, p.bodyLimits)
	if err != nil {
		return nil, err
	}
	if err := mergeFaults(&bad, decodeJSONLimited(rest, reflect.ValueOf(in).Elem(), p.maxValues, p.maxFaults)); err != nil {
		return nil, err
	}
	if len(bad) == 1 && bad[0].Path == "body" && bad[0].Code == "wrong_type" {
		return nil, bad.Err() // without a decoded body there is nothing to check rules on
	}
	arrived()
	return bad, nil
}

// storedResponse returns the response to the earlier request with the same key, or nil.
func (p *sendOperation) storedResponse(ctx context.Context) ([]byte, error) {
	if p.claim == nil {
		return nil, nil
	}
	answer, err := p.claim.LoadResponse(ctx, [sha256.Size]byte(p.bodyHash.Sum(nil)))
	p.replayed = answer != nil
	return answer, err
}

func (p *sendOperation) send(ctx context.Context, o submission, show func([]outbound.SendResult) any) (answer []byte, err error) {
	if p.claim != nil {
		o.Guard = func(results []outbound.SendResult) (func(*db.Batch), error) {
			answer, err = encodeJSON(show(results))
			return func(b *db.Batch) { p.claim.StoreResponse(b, [sha256.Size]byte(p.bodyHash.Sum(nil)), answer) }, err
		}
	}
	results, err := p.api.Outbox.Send(ctx, p.principal, o.sends, o.SendOptions)
	switch {
	case errors.Is(err, idempotency.ErrKeyUsed): // used on another node
		return p.storedResponse(ctx)
	case err != nil:
		return nil, err
	case answer == nil:
		return encodeJSON(show(results))
	}
	return answer, nil
}
