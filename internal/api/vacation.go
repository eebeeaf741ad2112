// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// vacationRoutes registers the endpoints of a mailbox's vacation reply.
func (a *API) vacationRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/mailboxes/{id}/vacation", id: "getVacation", scope: "mailboxes.read",
		summary: "Show a mailbox's vacation reply", description: "What senders are answered while its owner is away. Of a mailbox that has none, one that is not enabled."}, a.getVacation)
	handle(r, operation{method: "PUT", path: "/mailboxes/{id}/vacation", id: "setVacation", validatesFirst: true, scope: "mailboxes.write",
		summary: "Set a mailbox's vacation reply", description: "All of it: what is left out gets its default. Senders who wrote to the mailbox's own address, one of its plus-addresses or of its aliases are answered (RFC 3834), " +
			"each once per interval, and again after subject or text changed, or a new absence began. Mail of lists and of programs, from the null sender, in Junk, or whose envelope sender does not pass SPF, is not answered. " +
			"An answer counts as a message sent."}, a.setVacation)
	handle(r, operation{method: "DELETE", path: "/mailboxes/{id}/vacation", id: "deleteVacation", scope: "mailboxes.write", status: 204,
		summary: "Delete a mailbox's vacation reply", description: "Nothing is answered from then on. There need not be one."}, a.deleteVacation)
}

type vacationResponse struct {
	Enabled      bool       `json:"enabled" doc:"Whether senders are answered, within the times given."`
	StartsAt     *time.Time `json:"starts_at" doc:"From when on; null for at once."`
	EndsAt       *time.Time `json:"ends_at" doc:"Until when; null for as long as it is enabled."`
	Subject      string     `json:"subject" doc:"The answer's subject; empty for \"Auto: \" and that of the message." example:"I am away"`
	Text         string     `json:"text" doc:"The answer." example:"I am back on Monday."`
	IntervalDays int        `json:"interval_days" doc:"After how many days a sender is answered again." example:"7"`
	UpdatedAt    *time.Time `json:"updated_at" doc:"When it was last set; null for never."`
}

func newVacationResponse(v mailbox.Vacation) vacationResponse {
	return vacationResponse{
		Enabled: v.Enabled, StartsAt: optionalTime(v.StartsAt), EndsAt: optionalTime(v.EndsAt), Subject: v.Subject, Text: v.Text,
		IntervalDays: v.Days, UpdatedAt: optionalTime(v.Updated),
	}
}

type setVacationRequest struct {
	Enabled      *bool      `json:"enabled,omitempty" doc:"Whether senders are answered; true when left out."`
	StartsAt     *time.Time `json:"starts_at,omitempty" doc:"From when on; at once when left out."`
	EndsAt       *time.Time `json:"ends_at,omitempty" doc:"Until when; for as long as it is enabled when left out."`
	Subject      string     `json:"subject,omitempty" doc:"In one line of at most 200 bytes; \"Auto: \" and that of the message when left out." example:"I am away"`
	Text         string     `json:"text,omitempty" doc:"Plain text of at most 16,384 bytes; required if it is enabled." example:"I am back on Monday."`
	IntervalDays *int       `json:"interval_days,omitempty" minimum:"1" maximum:"90" doc:"After how many days a sender is answered again; 7 when left out." example:"7"`
}

// adjustSchema adds an example with a text, which is required unless it is disabled.
func (setVacationRequest) adjustSchema(s *schema) {
	s.Examples = []any{map[string]any{"subject": "I am away", "text": "I am back on Monday."}}
}

type setVacationInput struct {
	idParams
	Body setVacationRequest
}

func (b *setVacationRequest) vacation() mailbox.Vacation {
	v := mailbox.Vacation{Enabled: b.Enabled == nil || *b.Enabled, Subject: b.Subject, Text: b.Text, Days: mailbox.DefaultVacationDays}
	if b.StartsAt != nil {
		v.StartsAt = *b.StartsAt
	}
	if b.EndsAt != nil {
		v.EndsAt = *b.EndsAt
	}
	if b.IntervalDays != nil {
		v.Days = *b.IntervalDays
	}
	return v
}

func (a *API) getVacation(ctx context.Context, p account.Principal, in *idParams) (vacationResponse, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return vacationResponse{}, err
	}
	v, err := a.Mailboxes.Vacation(ctx, p.Account, id)
	return convertResult(v, err, newVacationResponse)
}

func (a *API) setVacation(ctx context.Context, p account.Principal, in *setVacationInput) (vacationResponse, error) {
	id, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return vacationResponse{}, err
	}
	v, err := a.Mailboxes.SetVacation(ctx, p.Account, id, in.Body.vacation())
	return convertResult(v, err, newVacationResponse)
}

func (a *API) deleteVacation(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Mailboxes.DeleteVacation(ctx, p.Account, id)
}
