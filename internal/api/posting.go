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

// idempotencyKey is the header by which a request may be repeated.
const idempotencyKey = "Idempotency-Key"

// sending is what an operation that sends takes. It is never filled in.
type sending[I any] struct {
	Key  string `header:"Idempotency-Key" maxLength:"256" doc:"Your own id for this request, 1 to 256 printable characters. Repeated by the same API key with the same id and body within 24 hours, the request does nothing and gets the first answer again, with the header Idempotency-Replayed: true. Another API key's ids are its own." example:"order-42"`
	Body I
}

// order is what a request asks to be sent.
type order struct {
	sends []outbound.Send
	outbound.Options
}

// attached are the attachments of a request, and what was found wrong with the
// types of its fields.
type attached struct {
	files *spool
	bad   fault.Fields
	hold  func(n int) error // is asked before more than freeBody is made of it
}

// handleSend registers an operation that sends. Its body, of type I, is read
// as a stream, with the attachments going to a spool; build makes of it what
// is sent, and show makes the answer before it is committed, so that it can be
// stored in the same commit for a request that is repeated.
func handleSend[I, O any](r *router, o operation, b bounds,
	build func(ctx context.Context, p account.Principal, in *I, with attached) (order, error), show func([]outbound.Result) O,
) {
	describe[sending[I], O](r.doc, o)
	r.serve(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		if err := noQuery(req); err != nil {
			return err
		}
		post := &posting{api: r.api, path: o.path, bounds: b, principal: p}
		defer post.end()
		var in I
		answer, err := post.carryOut(w, req, &in,
			func(with attached) (order, error) { return build(req.Context(), p, &in, with) },
			func(results []outbound.Result) any { return show(results) })
		r.api.tellSends(w, req, p)
		if err != nil {
			return err
		}
		if post.replayed {
			w.Header().Set("Idempotency-Replayed", "true")
		}
		writeText(w, o.success(), "application/json", answer)
		return nil
	})
}

// posting is a request that sends, in hand.
type posting struct {
	bounds
	api       *API
	path      string
	principal account.Principal
	files     spool
	kept      kept
	claim     *idempotency.Claim // nil without a key
	sum       hash.Hash          // of the body, if there is a key
	bad       fault.Fields
	replayed  bool
}

func (p *posting) end() {
	p.files.remove()
	p.claim.End()
	p.kept.giveBack()
}

// refused takes what is left of a body within reason: a client that is still
// sending would not see the answer. Nothing of the body is kept any more.
func (p *posting) refused(r *http.Request) {
	p.kept.giveBack()
	_, _ = io.CopyN(io.Discard, r.Body, p.body)
}

func (p *posting) carryOut(w http.ResponseWriter, r *http.Request, in any,
	build func(attached) (order, error), show func([]outbound.Result) any,
) ([]byte, error) {
	err := p.takeKey(r)
	var types fault.Fields
	if err == nil {
		types, err = p.read(w, r, in)
	}
	if err != nil {
		p.refused(r)
		return nil, err
	}
	if answer, err := p.stored(r.Context()); answer != nil || err != nil {
		return answer, err
	}
	order, err := build(attached{&p.files, types, p.kept.take})
	if err != nil {
		return nil, err
	}
	order.Faults = append(order.Faults, p.bad...)
	return p.send(r.Context(), order, show)
}

// takeKey claims the request's Idempotency-Key, if it has one.
func (p *posting) takeKey(r *http.Request) (err error) {
	keys := r.Header.Values(idempotencyKey)
	switch len(keys) {
	case 0:
		return nil
	case 1:
		p.claim, err = p.api.Keys.Claim(p.principal.Account, idempotency.APIKey(p.principal.Key), p.path, keys[0])
		p.sum = sha256.New()
		return merge(&p.bad, onField(err, idempotencyKey))
	}
	p.bad.Add(idempotencyKey, "given_twice", "Give this header once.")
	return nil
}

// read decodes the body, whose attachments go to the spool as they come. It
// returns what is wrong with its types.
func (p *posting) read(w http.ResponseWriter, r *http.Request, in any) (fault.Fields, error) {
	if err := requireJSON(r); err != nil {
		return nil, err
	}
	body, arrived := arriving(w, r, p.body, sendTime)
	if p.sum != nil {
		body = io.TeeReader(body, p.sum)
	}
	p.kept = kept{of: p.api.bodies, account: p.principal.Account}
	p.hold, p.files.dir = p.kept.take, p.api.Spool
	rest, bad, err := extract(body, r.ContentLength, p.files.sink, p.bounds)
	if err != nil {
		return nil, err
	}
	if err := merge(&bad, decodeWithin(rest, reflect.ValueOf(in).Elem(), p.values, p.faults)); err != nil {
		return nil, err
	}
	if len(bad) == 1 && bad[0].Field == "body" && bad[0].Code == "wrong_type" {
		return nil, bad.Err() // there is nothing that a rule could be told of
	}
	arrived()
	return bad, nil
}

// stored returns the answer that the request got before, or nil.
func (p *posting) stored(ctx context.Context) ([]byte, error) {
	if p.claim == nil {
		return nil, nil
	}
	answer, err := p.claim.Stored(ctx, [sha256.Size]byte(p.sum.Sum(nil)))
	p.replayed = answer != nil
	return answer, err
}

func (p *posting) send(ctx context.Context, o order, show func([]outbound.Result) any) (answer []byte, err error) {
	if p.claim != nil {
		o.Guard = func(results []outbound.Result) (func(*db.Batch), error) {
			answer, err = encode(show(results))
			return func(b *db.Batch) { p.claim.Store(b, [sha256.Size]byte(p.sum.Sum(nil)), answer) }, err
		}
	}
	results, err := p.api.Outbox.Send(ctx, p.principal, o.sends, o.Options)
	switch {
	case errors.Is(err, idempotency.ErrTaken): // on another node
		return p.stored(ctx)
	case err != nil:
		return nil, err
	case answer == nil:
		return encode(show(results))
	}
	return answer, nil
}
