// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"reflect"
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
	Messages []sendRequest `json:"messages" minItems:"1" maxItems:"100" doc:"What to send: 1 to 100 messages, each with the fields of a send."`
	Partial  bool          `json:"partial,omitempty" doc:"Accept what can be accepted, and tell the error of each message that can't be."`
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

func buildBatch(_ context.Context, _ account.Principal, in *batchRequest, with decodedAttachments) (submission, error) {
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
		for i := range in.Messages {
			o.sends[i] = in.Messages[i].outboundRequest(with.spool, faults[i])
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
