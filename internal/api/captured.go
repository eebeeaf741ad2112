// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/web"
)

// CapturedFields are the fields common to all responses about a captured message. It is exported
// for the OpenAPI document.
type CapturedFields struct {
	ID         db.ID            `json:"id" doc:"The captured message's id."`
	OutboundID db.ID            `json:"outbound_id" doc:"The sent message, as in GET /outbound/messages/{id}."`
	Envelope   inbound.Envelope `json:"envelope" doc:"What the other host would have been told."`
	Size       int64            `json:"size" doc:"Of the whole message, in bytes." example:"4711"`
	RawURL     string           `json:"raw_url" doc:"Where the whole message can be had, with your API key."`
	CapturedAt time.Time        `json:"captured_at" doc:"When it would have gone out."`
}

type capturedMessageSummaryResponse struct {
	CapturedFields
	summary.Summary
}

type capturedMessageResponse struct {
	CapturedFields
	summary.Summary
	summary.Content
}

func (a *API) capturedRoutes(r *router) {
	const only = "In the sandbox of `mailstead dev` alone. "
	handle(r, operation{method: "GET", path: "/sandbox/outbox", id: "listOutbox", scope: "sandbox.read",
		summary: "List what was captured", description: only + "What would have gone to other hosts, signatures included: one entry for each transaction, so API mail to several recipients has several. " +
			"The last 1,000 are kept. Mail to simulator addresses is not captured."}, a.listCaptured)
	handle(r, operation{method: "GET", path: "/sandbox/outbox/{id}", id: "getOutbox", scope: "sandbox.read",
		summary: "Show a captured message", description: only + "Its envelope, header and texts, and a list of its files."}, a.getCaptured)
	handleFile(r, operation{method: "GET", path: "/sandbox/outbox/{id}/raw", id: "getOutboxRaw", scope: "sandbox.read", responseMedia: "message/rfc822",
		summary: "A captured message as it would have gone out", description: only + "All of its bytes (RFC 5322)."}, a.getCapturedRaw)
	handle(r, operation{method: "DELETE", path: "/sandbox/outbox", id: "clearOutbox", scope: "sandbox.write", status: 204,
		summary: "Clear the outbox", description: only + "Deletes what was captured up to now. The sent messages stay as they are."}, a.clearCaptured)
}

func (a *API) listCaptured(ctx context.Context, p account.Principal, in *pageParams) (listResponse[capturedMessageSummaryResponse], error) {
	if a.SandboxOutbox == nil {
		return listResponse[capturedMessageSummaryResponse]{}, errSandboxOnly
	}
	read := func(at db.Page) ([]relay.CapturedMessage, bool, error) {
		return a.SandboxOutbox.List(ctx, p.Account, p.Domain, at)
	}
	var failed error
	out, err := listPage(in, read, func(c relay.CapturedMessage) capturedMessageSummaryResponse {
		one, err := a.newCapturedSummary(ctx, c)
		switch {
		case blob.IsLost(err): // list the other messages nevertheless
			a.Log.ErrorContext(ctx, "a message can't be read", "request", web.RequestIDFromContext(ctx), "error", err)
		case err != nil && !fault.Is(err, fault.NotFound):
			failed = err
		}
		return one
	}, func(c relay.CapturedMessage) db.ID { return c.ID })
	return out, orFault(err, failed)
}

func (a *API) newCapturedSummary(ctx context.Context, c relay.CapturedMessage) (capturedMessageSummaryResponse, error) {
	out := capturedMessageSummaryResponse{CapturedFields: a.newCapturedFields(c), Summary: summary.FromHeader(nil)}
	index, r, err := a.SandboxOutbox.Open(ctx, c)
	if err != nil {
		return out, err
	}
	defer r.Close() //nolint:errcheck // only read
	out.Summary, err = summary.ReadSummary(r, index)
	return out, err
}

func (a *API) capturedMessage(ctx context.Context, p account.Principal, in *idParams) (relay.CapturedMessage, error) {
	if a.SandboxOutbox == nil {
		return relay.CapturedMessage{}, errSandboxOnly
	}
	id, err := db.ParseID(in.ID)
	if err != nil {
		return relay.CapturedMessage{}, err
	}
	return a.SandboxOutbox.Get(ctx, p.Account, p.Domain, id)
}

func (a *API) getCaptured(ctx context.Context, p account.Principal, in *idParams) (capturedMessageResponse, error) {
	c, err := a.capturedMessage(ctx, p, in)
	if err != nil {
		return capturedMessageResponse{}, err
	}
	index, r, err := a.SandboxOutbox.Open(ctx, c)
	if err != nil {
		return capturedMessageResponse{}, err
	}
	defer r.Close() //nolint:errcheck // only read
	out := capturedMessageResponse{CapturedFields: a.newCapturedFields(c)}
	out.Summary, out.Content, err = summary.Read(r, index)
	return out, err
}

func (a *API) getCapturedRaw(ctx context.Context, p account.Principal, in *idParams) (*web.FileResponse, error) {
	c, err := a.capturedMessage(ctx, p, in)
	if err != nil {
		return nil, err
	}
	_, r, err := a.SandboxOutbox.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return web.RawFile(c.ID.String(), r), nil
}

func (a *API) clearCaptured(ctx context.Context, p account.Principal, _ *struct{}) (emptyResponse, error) {
	if a.SandboxOutbox == nil {
		return emptyResponse{}, errSandboxOnly
	}
	return emptyResponse{}, a.SandboxOutbox.Clear(ctx, p.Account, p.Domain)
}

func (a *API) newCapturedFields(c relay.CapturedMessage) CapturedFields {
	return CapturedFields{
		ID: c.ID, OutboundID: c.Message, Envelope: inbound.Envelope{MailFrom: c.Sender, RcptTo: c.Recipients}, Size: c.Size,
		RawURL: a.BaseURL + "/api/v1/sandbox/outbox/" + c.ID.String() + "/raw", CapturedAt: utcTime(c.ID.Time()),
	}
}
