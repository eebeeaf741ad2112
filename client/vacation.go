// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"time"
)

// Vacation is the automatic reply of a mailbox.
type Vacation struct {
	Enabled      bool       `json:"enabled"`
	StartsAt     *time.Time `json:"starts_at"`     // nil: now
	EndsAt       *time.Time `json:"ends_at"`       // nil: while it is enabled
	Subject      string     `json:"subject"`       // "": "Auto: " and the message's subject
	Text         string     `json:"text"`          // plain text
	IntervalDays int        `json:"interval_days"` // days before the same sender gets another reply
	UpdatedAt    *time.Time `json:"updated_at"`    // nil: never set
}

// NewVacation is an automatic reply to set.
type NewVacation struct {
	Enabled      bool       `json:"enabled"`
	StartsAt     *time.Time `json:"starts_at,omitempty"`     // nil: now
	EndsAt       *time.Time `json:"ends_at,omitempty"`       // nil: while it is enabled
	Subject      string     `json:"subject,omitempty"`       // "": "Auto: " and the message's subject
	Text         string     `json:"text,omitempty"`          // at most 16,384 bytes
	IntervalDays int        `json:"interval_days,omitempty"` // 1 to 90; 7 if 0
}

// GetVacation returns the automatic reply of a mailbox. If it was never set, the result is not
// enabled.
func (c *Client) GetVacation(ctx context.Context, mailbox string) (*Vacation, error) {
	return do[Vacation](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/vacation", id: mailbox})
}

// SetVacation replaces the automatic reply of a mailbox.
func (c *Client) SetVacation(ctx context.Context, mailbox string, v NewVacation) (*Vacation, error) {
	b, err := jsonBody(v)
	if err != nil {
		return nil, err
	}
	return do[Vacation](ctx, c, call{method: http.MethodPut, path: "/mailboxes/{id}/vacation", id: mailbox, body: b, again: true})
}

// DeleteVacation deletes the automatic reply of a mailbox.
func (c *Client) DeleteVacation(ctx context.Context, mailbox string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/mailboxes/{id}/vacation", id: mailbox})
}
