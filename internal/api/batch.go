// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/web"
)

// maxBatchSends is the maximum number of messages in a batch.
const maxBatchSends = 100

// batchBodyLimits returns the limits of a batch including all attachments.
func batchBodyLimits() bodyLimits {
	return bodyLimits{maxBytes: 100 << 20, maxRest: 24 << 20, maxValues: 5 * maxValues, maxFaults: 20 * maxBatchSends, sendsField: "messages"}
}

type batchRequest struct {
	Messages []batchMessageRequest `json:"messages" minItems:"1" maxItems:"100" doc:"What to send: 1 to 100 messages, each with the fields of a send or, with template_id, of a send with a template."`
	Partial  bool                  `json:"partial,omitempty" doc:"Accept what can be accepted, and tell the error of each message that can't be."`
}

// batchMessageRequest is a message of a batch: a sendRequest or a sendTemplateRequest.
type batchMessageRequest struct {
	SendFields
	Subject    string     `json:"subject,omitempty"`
	Text       *string    `json:"text,omitempty"`
	HTML       string     `json:"html,omitempty"`
	TemplateID string     `json:"template_id,omitempty"`
	Variables  jsonObject `json:"variables,omitempty"`
}

func (batchMessageRequest) schema(all *schemas) *schema {
	return &schema{OneOf: []*schema{all.ref(reflect.TypeFor[sendRequest]()), all.ref(reflect.TypeFor[sendTemplateRequest]())}}
}

// outboundRequest converts the message for the outbox. bad are its type faults.
func (m *batchMessageRequest) outboundRequest(ctx context.Context, r *templateRenderer, files *spool, bad fault.FieldErrors) (outbound.SendRequest, error) {
	ofTemplate := func(f fault.FieldError) bool { return f.Path == "template_id" || f.Path == "variables" }
	if m.TemplateID == "" && m.Variables == nil && !slices.ContainsFunc(bad, ofTemplate) {
		own := sendRequest{m.SendFields, m.Subject, m.Text, m.HTML}
		return own.outboundRequest(files, bad), nil
	}
	for _, f := range []struct {
		name  string
		given bool
	}{{"subject", m.Subject != ""}, {"text", m.Text != nil}, {"html", m.HTML != ""}} {
		if f.given && m.TemplateID != "" {
			bad.Add(f.name, "not_with_template", "The template gives this; leave it out, or leave out template_id.")
		}
	}
	s := m.SendFields.outboundRequest(files, bad)
	return s, r.apply(ctx, &s, m.TemplateID, m.Variables)
}

type batchResponse struct {
	Data []batchItem `json:"data" doc:"For each message, in the order of the request: what a send answers or, with partial, why it was refused."`
}

// batchItem is an accepted or a rejected message.
type batchItem struct {
	accepted *acceptedMessageResponse
	rejected *rejectedMessageResponse
}

// rejectedMessageResponse describes a rejected message of a batch.
type rejectedMessageResponse struct {
	Error batchErrorResponse `json:"error" doc:"Why the message was not accepted."`
}

// batchErrorResponse describes the errors of one message of a batch.
type batchErrorResponse struct {
	Status int                  `json:"status" doc:"The HTTP status that the message would have got by itself." example:"422"`
	Code   string               `json:"code" doc:"Stable name of the error." example:"validation_failed"`
	Detail string               `json:"detail" doc:"What is wrong and what to do, in words." example:"Some fields need correcting."`
	Errors []fieldErrorResponse `json:"errors" doc:"Every field at fault, within the message; at most 100."`
}

// MarshalJSON encodes the variant that is set.
func (i batchItem) MarshalJSON() ([]byte, error) {
	if i.rejected != nil {
		return encodeJSON(i.rejected)
	}
	return encodeJSON(i.accepted)
}

func (batchItem) schema(all *schemas) *schema {
	return &schema{OneOf: []*schema{all.ref(reflect.TypeFor[acceptedMessageResponse]()), all.ref(reflect.TypeFor[rejectedMessageResponse]())}}
}

func newBatchResponse(results []outbound.SendResult) batchResponse {
	out := batchResponse{Data: make([]batchItem, len(results))}
	for i, r := range results {
		if r.Err != nil {
			out.Data[i].rejected = &rejectedMessageResponse{newBatchErrorResponse(r.Err)}
			continue
		}
		a := newAcceptedMessageResponse(r.AcceptedMessage)
		out.Data[i].accepted = &a
	}
	return out
}

// newBatchErrorResponse explains why a message was not accepted: it breaks a rule, or its sender is
// not allowed.
func newBatchErrorResponse(err error) batchErrorResponse {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Please try again.")
	}
	out := batchErrorResponse{Status: web.Status(f.Kind), Code: f.Code, Detail: f.Message}
	for _, field := range f.Fields[:min(len(f.Fields), maxFaults)] {
		if field.Path == "" {
			field.Path = "body"
		}
		out.Errors = append(out.Errors, fieldErrorResponse(field))
	}
	return out
}

func (a *API) buildBatch(ctx context.Context, p account.Principal, in *batchRequest, with decodedAttachments) (submission, error) {
	o := submission{SendOptions: outbound.SendOptions{IndexFields: true, Partial: in.Partial}}
	switch n := len(in.Messages); {
	case n > maxBatchSends:
		with.faults.Add("messages", "too_many_messages", "A batch can have %d messages.", maxBatchSends)
	case n == 0:
		var none fault.FieldErrors
		none.Add("messages", "required", "Give at least one message.")
		_ = with.faults.Merge(none.Err()) // always a field error
	case len(with.faults) < batchBodyLimits().maxFaults: // otherwise some faults were left out
		o.sends = make([]outbound.SendRequest, n)
		faults, rest := splitFaults(with.faults, n)
		with.faults = rest
		renderer := a.newTemplateRenderer(p, with)
		for i := range in.Messages {
			var err error
			if o.sends[i], err = in.Messages[i].outboundRequest(ctx, renderer, with.spool, faults[i]); err != nil {
				return o, err
			}
		}
	}
	o.RequestFaults = with.faults
	return o, nil
}

// splitFaults assigns faults to the n messages that they belong to, and returns the rest.
func splitFaults(bad fault.FieldErrors, n int) (own []fault.FieldErrors, rest fault.FieldErrors) {
	own = make([]fault.FieldErrors, n)
	for _, f := range bad {
		inside, ok := strings.CutPrefix(f.Path, "messages[")
		index, field, _ := strings.Cut(inside, "]")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || i < 0 || i >= n {
			rest = append(rest, f)
			continue
		}
		f.Path = strings.TrimPrefix(field, ".")
		own[i] = append(own[i], f)
	}
	return own, rest
}
