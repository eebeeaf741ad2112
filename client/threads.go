// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Thread is a page of messages in one thread, oldest first.
type Thread struct {
	ID         string          `json:"id"`
	Messages   []ThreadMessage `json:"messages"`
	HasMore    bool            `json:"has_more"`    // whether there are later messages
	NextCursor string          `json:"next_cursor"` // Paging.After of the next page; "" at the end
}

// ThreadMessage is a message of a thread, sent or received. A message to your own mailbox appears
// twice: as sent and as received.
type ThreadMessage struct {
	ID            string    `json:"id"`         // id of the sent message, or as in its inbound_email event
	Direction     string    `json:"direction"`  // outbound or inbound
	Status        State     `json:"status"`     // for a sent message; else ""
	MailboxID     string    `json:"mailbox_id"` // mailbox that submitted or received it; "" for the API
	MessageID     string    `json:"message_id"` // header field; "" if it has none
	From          []Address `json:"from"`
	To            []Address `json:"to"`
	Cc            []Address `json:"cc"`
	Bcc           []Address `json:"bcc"` // for a sent message
	Subject       string    `json:"subject"`
	Text          *string   `json:"text"` // only with ExpandText; nil if it has none
	TextTruncated bool      `json:"text_truncated"`
	Size          int64     `json:"size"` // bytes of the whole message
	CreatedAt     time.Time `json:"created_at"`
	Omitted       bool      `json:"content_omitted"` // received or forwarded, and the key may not read mail: From and Subject are empty
}

// ExpandText makes GetThread return the plain text of each message. It needs the scope mail.read.
const ExpandText = "messages.text"

// GetThread returns a page of a thread: the oldest messages, or those after p.After. It ignores
// p.Before. expand names what to return beside the usual fields: ExpandText.
func (c *Client) GetThread(ctx context.Context, id string, p Paging, expand ...string) (*Thread, error) {
	p.Before = ""
	q := p.into(nil)
	if len(expand) > 0 {
		q.Set("expand", strings.Join(expand, ","))
	}
	return do[Thread](ctx, c, call{method: http.MethodGet, path: "/threads/{id}", id: id, query: q})
}

// ThreadMessages iterates over all messages of a thread, oldest first. It stops after an error.
func (c *Client) ThreadMessages(ctx context.Context, id string) iter.Seq2[ThreadMessage, error] {
	return walk(func(p Paging) (*Page[ThreadMessage], error) {
		t, err := c.GetThread(ctx, id, p)
		if err != nil {
			return nil, err
		}
		return &Page[ThreadMessage]{Data: t.Messages, HasMore: t.HasMore, NextCursor: t.NextCursor}, nil
	})
}
