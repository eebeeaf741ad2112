// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/suppression"
)

// suppressionRoutes registers the endpoints of an account's suppression list, whose addresses get
// no mail from the API.
func (a *API) suppressionRoutes(r *router) {
	const read, write = "suppressions.read", "suppressions.write"
	handle(r, operation{method: "GET", path: "/suppressions", id: "listSuppressions", scope: read,
		summary: "List suppressed addresses", description: "Those that bounced for good, complained, unsubscribed or were added, newest first. " +
			"What is sent to one of them by the API ends as suppressed; mail that mailboxes submit is not concerned."}, a.listSuppressions)
	handle(r, operation{method: "POST", path: "/suppressions", id: "addSuppression", validatesFirst: true, scope: write, status: 201,
		summary: "Suppress an address", description: "An address that is on the list already stays there as it is; the answer shows the entry as it stands."}, a.addSuppression)
	handle(r, operation{method: "POST", path: "/suppressions/batch", id: "addSuppressions", validatesFirst: true, scope: write, status: 201,
		summary: "Suppress up to 1000 addresses", description: "All of them, or none if one of them is no address. " +
			"Addresses that are on the list already stay there as they are; the answer shows the entries as they stand."}, a.addSuppressions)
	handle(r, operation{method: "GET", path: "/suppressions/{id}", id: "getSuppression", scope: read,
		summary: "Show a suppressed address", description: "By the entry's id or by the address. Of two entries for one address, it shows the one that stops all mail."}, a.getSuppression)
	handle(r, operation{method: "DELETE", path: "/suppressions/{id}", id: "deleteSuppression", scope: write, status: 204,
		summary: "Allow an address again", description: "By the entry's id, or by the address: then all entries of it, also that it unsubscribed."}, a.deleteSuppression)
	a.suppressionFileRoutes(r)
}

type suppressionResponse struct {
	ID         db.ID     `json:"id" doc:"The entry's id."`
	Email      string    `json:"email" doc:"The address, in lower case." example:"bob@example.org"`
	Reason     string    `json:"reason" enum:"bounce,complaint,unsubscribe,manual" doc:"Why. unsubscribe stops only mail that offers to unsubscribe, the others all mail of the API." example:"bounce"`
	Message    *db.ID    `json:"message" doc:"The id of the sent message that led to it; null if none did."`
	Diagnostic *string   `json:"diagnostic" doc:"What the other side said; null if nothing." example:"550 5.1.1 no such user"`
	Simulated  bool      `json:"simulated" doc:"Whether it is a bounce of bounced@ or a complaint of complained@simulator.test: it is listed for inspection and stops nothing." example:"false"`
	CreatedAt  time.Time `json:"created_at" doc:"When it came on the list."`
}

func newSuppressionResponse(e suppression.Entry) suppressionResponse {
	out := suppressionResponse{
		ID: e.ID, Email: e.Address, Reason: string(e.Reason), Diagnostic: optionalString(e.Diagnostic), Simulated: e.Simulated, CreatedAt: utcTime(e.CreatedAt),
	}
	if e.Message != 0 {
		out.Message = &e.Message
	}
	return out
}

type listSuppressionsInput struct {
	pageParams
	Reason []string `query:"reason" enum:"bounce,complaint,unsubscribe,manual" doc:"Only entries with one of these reasons, separated by commas." example:"bounce,complaint"`
	Email  string   `query:"email" doc:"Only entries of this address." example:"bob@example.org"`
}

func (a *API) listSuppressions(ctx context.Context, p account.Principal, in *listSuppressionsInput) (listResponse[suppressionResponse], error) {
	var none listResponse[suppressionResponse]
	if p.Domain != "" {
		return none, errDomainRestricted
	}
	var bad fault.FieldErrors
	f := in.filter(&bad)
	id := func(e suppression.Entry) db.ID { return e.ID }
	read := readAny(in.Reason, "", id, func(reason string) pageReader[suppression.Entry] {
		f := f
		f.Reason = suppression.Reason(reason)
		return func(at db.Page) ([]suppression.Entry, bool, error) { return a.Suppressions.List(ctx, p.Account, f, at) }
	})
	at, err := in.dbPage(read.exists(id))
	if err := mergeFaults(&bad, err); err != nil {
		return none, err
	}
	if err := bad.Err(); err != nil {
		return none, err
	}
	return listPageAt(&in.pageParams, at, read, newSuppressionResponse, id)
}

func (in *listSuppressionsInput) filter(bad *fault.FieldErrors) (f suppression.Filter) {
	if in.Email != "" {
		var err error
		if f.Address, err = address.Parse(in.Email); err != nil {
			addAddressFault(bad, "email")
		}
	}
	return f
}

// parseReason parses an optional reason.
func parseReason(bad *fault.FieldErrors, text string, fallback suppression.Reason) suppression.Reason {
	if text == "" {
		return fallback
	}
	for _, known := range suppression.Reasons {
		if string(known) == text {
			return known
		}
	}
	bad.Add("reason", "unknown_reason", "The reasons are bounce, complaint, unsubscribe and manual.")
	return ""
}

func addAddressFault(bad *fault.FieldErrors, field string) {
	bad.Add(field, "invalid_address", "This must be an address such as bob@example.org.")
}

type addSuppressionRequest struct {
	Email  string `json:"email" doc:"The address." example:"bob@example.org"`
	Reason string `json:"reason,omitempty" enum:"bounce,complaint,unsubscribe,manual" default:"manual" doc:"Why; manual when left out."`
}

type addSuppressionInput struct{ Body addSuppressionRequest }

func (a *API) addSuppression(ctx context.Context, p account.Principal, in *addSuppressionInput) (suppressionResponse, error) {
	entries, err := a.suppress(ctx, p, in.parse)
	if err != nil {
		return suppressionResponse{}, err
	}
	return newSuppressionResponse(entries[0]), nil
}

func (in *addSuppressionInput) parse() ([]address.Address, suppression.Reason, error) {
	return parseSuppressions([]string{in.Body.Email}, in.Body.Reason, func(int) string { return "email" })
}

type addSuppressionsRequest struct {
	Emails []string `json:"emails" minItems:"1" maxItems:"1000" doc:"The addresses." example:"bob@example.org"`
	Reason string   `json:"reason,omitempty" enum:"bounce,complaint,unsubscribe,manual" default:"manual" doc:"Why; manual when left out."`
}

type addSuppressionsInput struct{ Body addSuppressionsRequest }

type suppressionsResponse struct {
	Data []suppressionResponse `json:"data" doc:"The entries as they now stand, in the order of the request."`
}

func (a *API) addSuppressions(ctx context.Context, p account.Principal, in *addSuppressionsInput) (suppressionsResponse, error) {
	entries, err := a.suppress(ctx, p, in.parse)
	out := suppressionsResponse{Data: make([]suppressionResponse, len(entries))}
	for i, e := range entries {
		out.Data[i] = newSuppressionResponse(e)
	}
	return out, err
}

func (in *addSuppressionsInput) parse() ([]address.Address, suppression.Reason, error) {
	return parseSuppressions(in.Body.Emails, in.Body.Reason, func(i int) string { return fmt.Sprintf("emails[%d]", i) })
}

// parseSuppressions parses addresses and their common reason. field returns the field path of the
// address with the given index.
func parseSuppressions(given []string, why string, field func(i int) string) ([]address.Address, suppression.Reason, error) {
	var bad fault.FieldErrors
	reason := parseReason(&bad, why, suppression.ReasonManual)
	if len(given) == 0 || len(given) > suppression.MaxPutAddresses {
		bad.Add("emails", "wrong_number", "Give 1 to %d addresses; the import takes more.", suppression.MaxPutAddresses)
		given = nil
	}
	addresses := make([]address.Address, len(given))
	for i, text := range given {
		var err error
		if addresses[i], err = address.Parse(text); err != nil {
			addAddressFault(&bad, field(i))
		} else if suppression.IsSimulator(addresses[i]) {
			bad.Add(field(i), "simulator_address", "Simulator addresses can't be added to the list.")
		}
	}
	return addresses, reason, bad.Err()
}

// suppress adds the request's addresses to the suppression list.
func (a *API) suppress(ctx context.Context, p account.Principal, read func() ([]address.Address, suppression.Reason, error)) ([]suppression.Entry, error) {
	if p.Domain != "" {
		return nil, errDomainRestricted
	}
	addresses, why, err := read()
	if err != nil {
		return nil, err
	}
	return a.Suppressions.Put(ctx, p.Account, addresses, why)
}

type suppressionInput struct {
	ID string `path:"id" doc:"The entry's id, or its address." example:"bob@example.org"`
}

func (a *API) getSuppression(ctx context.Context, p account.Principal, in *suppressionInput) (suppressionResponse, error) {
	if p.Domain != "" {
		return suppressionResponse{}, errDomainRestricted
	}
	e, err := a.Suppressions.Get(ctx, p.Account, strings.TrimSpace(in.ID))
	return convertResult(e, err, newSuppressionResponse)
}

func (a *API) deleteSuppression(ctx context.Context, p account.Principal, in *suppressionInput) (emptyResponse, error) {
	if p.Domain != "" {
		return emptyResponse{}, errDomainRestricted
	}
	return emptyResponse{}, a.Suppressions.Delete(ctx, p.Account, strings.TrimSpace(in.ID))
}
