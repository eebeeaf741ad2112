// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/relay"
)

// CapturedFields are what is told of every captured message. It is exported for
// the OpenAPI document.
type CapturedFields struct {
	ID         db.ID            `json:"id" doc:"The captured message's id."`
	OutboundID db.ID            `json:"outbound_id" doc:"The sent message, as in GET /outbound/messages/{id}."`
	Envelope   inbound.Envelope `json:"envelope" doc:"What the other host would have been told."`
	Size       int64            `json:"size" doc:"Of the whole message, in bytes." example:"4711"`
	RawURL     string           `json:"raw_url" doc:"Where the whole message can be had, with your API key."`
	CapturedAt time.Time        `json:"captured_at" doc:"When it would have gone out."`
}

type capturedListed struct {
	CapturedFields
	digest.Summary
}

type capturedAnswer struct {
	CapturedFields
	digest.Summary
	digest.Content
}

func (a *API) outboxRoutes(r *router) {
	const only = "In the sandbox of `mailstead dev` alone. "
	handle(r, operation{method: "GET", path: "/sandbox/outbox", id: "listOutbox", scope: "sandbox.read",
		summary: "List what was captured", description: only + "What would have gone to other hosts, signatures included: one entry for each transaction, so API mail to several recipients has several. " +
			"The last 1,000 are kept. Mail to simulator addresses is not captured."}, a.listOutbox)
	handle(r, operation{method: "GET", path: "/sandbox/outbox/{id}", id: "getOutbox", scope: "sandbox.read",
		summary: "Show a captured message", description: only + "Its envelope, header and texts, and a list of its files."}, a.getOutbox)
	handleFile(r, operation{method: "GET", path: "/sandbox/outbox/{id}/raw", id: "getOutboxRaw", scope: "sandbox.read", media: "message/rfc822",
		summary: "A captured message as it would have gone out", description: only + "All of its bytes (RFC 5322)."}, a.outboxRaw)
	handle(r, operation{method: "DELETE", path: "/sandbox/outbox", id: "clearOutbox", scope: "sandbox.write", status: 204,
		summary: "Clear the outbox", description: only + "Deletes what was captured up to now. The sent messages stay as they are."}, a.clearOutbox)
}

func (a *API) listOutbox(ctx context.Context, p account.Principal, in *page) (list[capturedListed], error) {
	if a.Captured == nil {
		return list[capturedListed]{}, errSandbox
	}
	at, err := in.db()
	if err != nil {
		return list[capturedListed]{}, err
	}
	found, more, err := a.Captured.List(ctx, p.Account, p.Domain, at)
	if err != nil {
		return list[capturedListed]{}, err
	}
	var failed error
	out := answer(*in, found, more, func(c relay.Captured) capturedListed {
		one, err := a.summary(ctx, c)
		switch {
		case blob.Lost(err): // the others are to be seen
			a.Log.ErrorContext(ctx, "a message can't be read", "request", requestID(ctx), "error", err)
		case err != nil && !fault.Is(err, fault.NotFound):
			failed = err
		}
		return one
	}, func(c relay.Captured) string { return c.ID.String() })
	return out, failed
}

func (a *API) summary(ctx context.Context, c relay.Captured) (capturedListed, error) {
	out := capturedListed{CapturedFields: a.showCaptured(c), Summary: digest.Summarize(nil)}
	index, r, err := a.Captured.Open(ctx, c)
	if err != nil {
		return out, err
	}
	defer r.Close() //nolint:errcheck // only read
	out.Summary, err = digest.ReadSummary(r, index)
	return out, err
}

func (a *API) captured(ctx context.Context, p account.Principal, in *one) (relay.Captured, error) {
	if a.Captured == nil {
		return relay.Captured{}, errSandbox
	}
	id, err := db.ParseID(in.ID)
	if err != nil {
		return relay.Captured{}, err
	}
	return a.Captured.Get(ctx, p.Account, p.Domain, id)
}

func (a *API) getOutbox(ctx context.Context, p account.Principal, in *one) (capturedAnswer, error) {
	c, err := a.captured(ctx, p, in)
	if err != nil {
		return capturedAnswer{}, err
	}
	index, r, err := a.Captured.Open(ctx, c)
	if err != nil {
		return capturedAnswer{}, err
	}
	defer r.Close() //nolint:errcheck // only read
	out := capturedAnswer{CapturedFields: a.showCaptured(c)}
	out.Summary, out.Content, err = digest.Read(r, index)
	return out, err
}

func (a *API) outboxRaw(ctx context.Context, p account.Principal, in *one) (*file, error) {
	c, err := a.captured(ctx, p, in)
	if err != nil {
		return nil, err
	}
	_, r, err := a.Captured.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &file{name: c.ID.String() + ".eml", media: "message/rfc822", size: r.Size(), body: r.All(), Closer: r}, nil
}

func (a *API) clearOutbox(ctx context.Context, p account.Principal, _ *struct{}) (nothing, error) {
	if a.Captured == nil {
		return nothing{}, errSandbox
	}
	return nothing{}, a.Captured.Clear(ctx, p.Account, p.Domain)
}

func (a *API) showCaptured(c relay.Captured) CapturedFields {
	return CapturedFields{
		ID: c.ID, OutboundID: c.Message, Envelope: inbound.Envelope{MailFrom: c.Sender, RcptTo: c.Recipients}, Size: c.Size,
		RawURL: a.Base + "/api/v1/sandbox/outbox/" + c.ID.String() + "/raw", CapturedAt: stamp(c.ID.Time()),
	}
}
