// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Batch is up to 100 messages to be accepted together.
type Batch struct {
	// Messages are values of type Send or TemplateSend, with all their fields except the
	// idempotency key, which belongs to the batch.
	Messages []BatchMessage
	// Partial accepts all valid messages and returns a problem for each of the others. Without it,
	// all or none are accepted.
	Partial bool
	// IdempotencyKey works as in Send.
	IdempotencyKey string
}

// BatchMessage is a message of a batch: a Send or a TemplateSend.
type BatchMessage interface {
	parts() (files []Attachment, idempotencyKey string)
}

func (s Send) parts() ([]Attachment, string)         { return s.Attachments, s.IdempotencyKey }
func (s TemplateSend) parts() ([]Attachment, string) { return s.Attachments, s.IdempotencyKey }

// BatchAccepted is the response to a batch.
type BatchAccepted struct {
	Data []BatchItem `json:"data"` // in the order of the request

	// Replayed reports whether the batch had been accepted before.
	Replayed bool `json:"-"`
}

// BatchItem is the result for one message of a batch: one of the two is nil.
type BatchItem struct {
	Accepted *AcceptedMessage
	Problem  *Problem // why it was rejected; field names are relative to the message
}

// UnmarshalJSON parses either form.
func (i *BatchItem) UnmarshalJSON(text []byte) error {
	var refused struct {
		Error *Problem `json:"error"`
	}
	if err := json.Unmarshal(text, &refused); err != nil {
		return err
	}
	*i = BatchItem{Problem: refused.Error}
	if refused.Error != nil {
		i.Problem.Title = http.StatusText(i.Problem.Status)
		return nil //nolint:nilerr // it is what was read
	}
	return json.Unmarshal(text, &i.Accepted)
}

// SendBatch sends several messages in one request. It reads attachments like Send.
func (c *Client) SendBatch(ctx context.Context, b *Batch) (*BatchAccepted, error) {
	var w writer
	w.raw(`{"messages":[`)
	for i, m := range b.Messages {
		files, key := m.parts()
		if key != "" {
			return nil, fmt.Errorf("mailstead: message %d of a batch has an idempotency key of its own", i)
		}
		if i > 0 {
			w.raw(`,`)
		}
		w.message(m, files)
	}
	w.raw(`],"partial":`)
	w.value(b.Partial)
	w.raw(`}`)
	content, err := w.body()
	if err != nil {
		return nil, err
	}
	out, header, err := exchange[BatchAccepted](ctx, c, call{method: http.MethodPost, path: "/outbound/batch", body: content, key: b.IdempotencyKey})
	if err != nil {
		return nil, err
	}
	out.Replayed = replayed(header)
	for _, item := range out.Data {
		if item.Problem != nil {
			item.Problem.RequestID = header.Get("X-Request-Id")
		}
	}
	return out, nil
}
