// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"reflect"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
)

// sendInput describes the input of an operation that sends, for the document. It is never filled
// in.
type sendInput[I any] struct{ Body I }

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
	o.hasBody, o.maxBodyBytes = true, b.maxBytes
	describeOperation[sendInput[I], O](r.doc, o)
	r.register(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		if err := rejectQuery(req); err != nil {
			return err
		}
		post := &sendOperation{api: r.api, bodyLimits: b, principal: p}
		defer post.close()
		var in I
		answer, err := post.run(w, req, o, &in,
			func(with decodedAttachments) (submission, error) { return build(req.Context(), p, &in, with) },
			func(results []outbound.SendResult) any { return show(results) })
		r.api.addSendLimitHeaders(w, req, p)
		if err != nil {
			return err
		}
		answer.write(w)
		return nil
	})
}

// sendOperation is a send request in progress.
type sendOperation struct {
	bodyLimits
	api         *API
	principal   account.Principal
	spool       spool
	reservation memoryReservation
}

func (p *sendOperation) close() {
	p.spool.close()
	p.reservation.release()
}

func (p *sendOperation) run(w http.ResponseWriter, r *http.Request, o operation, in any,
	build func(decodedAttachments) (submission, error), show func([]outbound.SendResult) any,
) (response, error) {
	types, err := p.readBody(w, r, in)
	if err != nil {
		p.reservation.release()
		discardBody(r, p.maxBytes)
		return response{}, err
	}
	order, err := build(decodedAttachments{&p.spool, types, p.reservation.reserve})
	if err != nil {
		return response{}, err
	}
	keyed := keyedRequestFrom(r.Context())
	order.RequestFaults = append(order.RequestFaults, keyed.headerFaults()...)
	return p.send(r.Context(), o, keyed, order, show)
}

// readBody decodes the body and writes its attachments to the spool as they arrive. It returns the
// type faults.
func (p *sendOperation) readBody(w http.ResponseWriter, r *http.Request, in any) (fault.FieldErrors, error) {
	if err := requireJSON(r); err != nil {
		return nil, err
	}
	body, arrived := limitBody(w, r, p.maxBytes, sendTimeout)
	p.reservation = memoryReservation{budget: p.api.memory, account: p.principal.Account}
	p.reserve, p.spool.dir = p.reservation.reserve, p.api.SpoolDir
	keyed := keyedRequestFrom(r.Context())
	var files []hash.Hash
	rest, bad, err := extractAttachments(body, r.ContentLength, func() io.Writer {
		if keyed == nil {
			return p.spool.addFile()
		}
		files = append(files, sha256.New())
		return io.MultiWriter(p.spool.addFile(), files[len(files)-1])
	}, p.bodyLimits)
	if err != nil {
		return nil, err
	}
	if err := keyed.setContent(rest, files, p.reserve); err != nil {
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

// send accepts the messages. The response to a keyed request is stored in the same commit.
func (p *sendOperation) send(ctx context.Context, o operation, keyed *keyedRequest, order submission, show func([]outbound.SendResult) any) (response, error) {
	var answer response
	if keyed != nil {
		ctx = db.WithCommitGuard(ctx, nil)
		order.Guard = func(results []outbound.SendResult) (func(*db.Batch), error) {
			var err error
			if answer, err = o.response(show(results)); err != nil {
				return nil, err
			}
			return keyed.saveWithChanges(answer), nil
		}
	}
	results, err := p.api.Outbox.Send(ctx, p.principal, order.sends, order.SendOptions)
	if err != nil || answer.body != nil {
		return answer, err
	}
	return o.response(show(results))
}
