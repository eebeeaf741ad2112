// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
)

// maxBatchSends is how many messages a batch may have.
const maxBatchSends = 100

// manySends are the bounds of a batch with all its attachments.
func manySends() bounds {
	return bounds{body: 100 << 20, rest: 24 << 20, values: 5 * maxValues, faults: 20 * maxBatchSends, within: "messages"}
}

type batchRequest struct {
	Messages []sendRequest `json:"messages" nullable:"false" minItems:"1" maxItems:"100" doc:"What to send: 1 to 100 messages, each with the fields of a send."`
	Partial  bool          `json:"partial,omitempty" doc:"Accept what can be accepted, and tell the error of each message that can't be."`
}

type batchAnswer struct {
	Data []batchItem `json:"data" nullable:"false" doc:"For each message, in the order of the request: what a send answers or, with partial, why it was refused."`
}

// batchItem is one of its two.
type batchItem struct {
	accepted *acceptedAnswer
	refused  *refusedAnswer
}

// refusedAnswer is a message of a batch that was refused.
type refusedAnswer struct {
	Error refusal `json:"error" doc:"Why the message was not accepted."`
}

// refusal is what is wrong with one message of a batch.
type refusal struct {
	Status int           `json:"status" doc:"The HTTP status that the message would have got by itself." example:"422"`
	Code   string        `json:"code" doc:"Stable name of the error." example:"validation_failed"`
	Detail string        `json:"detail" doc:"What is wrong and what to do, in words." example:"Some fields need correcting."`
	Errors []fieldAnswer `json:"errors,omitempty" nullable:"false" doc:"Every field at fault, within the message; at most 100."`
}

// MarshalJSON writes the one that is set.
func (i batchItem) MarshalJSON() ([]byte, error) {
	if i.refused != nil {
		return encode(i.refused)
	}
	return encode(i.accepted)
}

// Schema is what huma asks a type for.
func (batchItem) Schema(r huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		r.Schema(reflect.TypeFor[acceptedAnswer](), true, ""), r.Schema(reflect.TypeFor[refusedAnswer](), true, ""),
	}}
}

func showBatch(results []outbound.Result) batchAnswer {
	out := batchAnswer{Data: make([]batchItem, len(results))}
	for i, r := range results {
		if r.Err != nil {
			out.Data[i].refused = &refusedAnswer{refuse(r.Err)}
			continue
		}
		a := showAccepted(r.Accepted)
		out.Data[i].accepted = &a
	}
	return out
}

// refuse tells why one message was not accepted: a rule is broken, or its
// sender is not allowed.
func refuse(err error) refusal {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = fault.New(fault.Internal, "internal_error", "Something went wrong on our side. Please try again.")
	}
	out := refusal{Status: statuses[f.Kind], Code: f.Code, Detail: f.Message}
	for _, field := range f.Fields[:min(len(f.Fields), maxFaults)] {
		if field.Field == "" {
			field.Field = "body"
		}
		out.Errors = append(out.Errors, fieldAnswer(field))
	}
	return out
}

func buildBatch(_ context.Context, _ account.Principal, in *batchRequest, with attached) (order, error) {
	o := order{Options: outbound.Options{Batch: true, Partial: in.Partial}}
	switch n := len(in.Messages); {
	case n > maxBatchSends:
		with.bad.Add("messages", "too_many_messages", "A batch can have %d messages.", maxBatchSends)
	case n == 0:
		var none fault.Fields
		none.Add("messages", "required", "Give at least one message.")
		_ = with.bad.Merge(none.Err()) // it has fields
	case len(with.bad) < manySends().faults: // else some were left out
		o.sends = make([]outbound.Send, n)
		faults, rest := share(with.bad, n)
		with.bad = rest
		for i := range in.Messages {
			o.sends[i] = in.Messages[i].send(with.files, faults[i])
		}
	}
	o.Faults = with.bad
	return o, nil
}

// share gives each of n messages the faults that are its own, and returns
// those of none.
func share(bad fault.Fields, n int) (own []fault.Fields, rest fault.Fields) {
	own = make([]fault.Fields, n)
	for _, f := range bad {
		inside, ok := strings.CutPrefix(f.Field, "messages[")
		index, field, _ := strings.Cut(inside, "]")
		i, err := strconv.Atoi(index)
		if !ok || err != nil || i < 0 || i >= n {
			rest = append(rest, f)
			continue
		}
		f.Field = strings.TrimPrefix(field, ".")
		own[i] = append(own[i], f)
	}
	return own, rest
}
