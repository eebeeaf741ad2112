// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"time"
)

// Activity is an entry of the audit log.
type Activity struct {
	ID        string        `json:"id"`
	Actor     ActivityActor `json:"actor"`
	Action    string        `json:"action"`    // a stable name; "" for an entry of an earlier release
	ObjectID  string        `json:"object_id"` // id of the changed or read object; "" for none
	Summary   string        `json:"summary"`   // a sentence
	Status    string        `json:"status"`    // started, done or failed
	CreatedAt time.Time     `json:"created_at"`
}

// ActivityActor is the actor of an action.
type ActivityActor struct {
	Type string `json:"type"` // user, api_key, mailbox, operator or nobody
	ID   string `json:"id"`   // id of the user, key or mailbox; "" for others
	Name string `json:"name"` // name at that time
	IP   string `json:"ip"`   // client address; "" for the command line
}

// ListActivity returns a page of the audit log, newest first. It needs the scope activity.read.
func (c *Client) ListActivity(ctx context.Context, p Paging) (*Page[Activity], error) {
	return list[Activity](ctx, c, "/activity", nil, p)
}

// AllActivity iterates over the whole audit log, newest first. It stops after an error.
func (c *Client) AllActivity(ctx context.Context) iter.Seq2[Activity, error] {
	return walk(func(p Paging) (*Page[Activity], error) { return c.ListActivity(ctx, p) })
}
