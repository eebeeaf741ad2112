// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// Thread is a page of the messages that answer each other, oldest first.
type Thread struct {
	ID         string          `json:"id"`
	Messages   []ThreadMessage `json:"messages"`
	HasMore    bool            `json:"has_more"`    // whether there are later ones
	NextCursor string          `json:"next_cursor"` // goes into Paging.After to go on; "" at the end
}

// ThreadMessage is a message of a thread, sent or received. One to a mailbox
// of your own is there twice: as it was sent, and as it arrived.
type ThreadMessage struct {
	ID        string    `json:"id"`         // of the sent message, or in the data of its inbound_email event
	Direction string    `json:"direction"`  // outbound or inbound
	Status    State     `json:"status"`     // of a sent message; else ""
	MailboxID string    `json:"mailbox_id"` // which submitted it, or in which it arrived; "" for the API
	MessageID string    `json:"message_id"` // the header field; "" if it has none
	From      string    `json:"from"`
	To        []string  `json:"to"`
	Cc        []string  `json:"cc"`
	Bcc       []string  `json:"bcc"` // of a sent message
	Subject   string    `json:"subject"`
	Size      int64     `json:"size"` // of the whole message, in bytes
	CreatedAt time.Time `json:"created_at"`
	Omitted   bool      `json:"content_omitted"` // it arrived or was forwarded, and the key may not read mail: From and Subject are empty
}

// GetThread shows a page of a thread: the oldest messages, or those after
// p.After. There is no way back: p.Before is not used.
func (c *Client) GetThread(ctx context.Context, id string, p Paging) (*Thread, error) {
	p.Before = ""
	return do[Thread](ctx, c, call{method: http.MethodGet, path: "/threads/{id}", id: id, query: p.into(nil)})
}

// ThreadMessages walks through all messages of a thread, oldest first. After
// an error it ends.
func (c *Client) ThreadMessages(ctx context.Context, id string) iter.Seq2[ThreadMessage, error] {
	return walk(func(p Paging) (*Page[ThreadMessage], error) {
		t, err := c.GetThread(ctx, id, p)
		if err != nil {
			return nil, err
		}
		return &Page[ThreadMessage]{Data: t.Messages, HasMore: t.HasMore, NextCursor: t.NextCursor}, nil
	})
}
