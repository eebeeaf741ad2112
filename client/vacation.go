// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"time"
)

// Vacation is what a mailbox answers while its owner is away.
type Vacation struct {
	Enabled      bool       `json:"enabled"`
	StartsAt     *time.Time `json:"starts_at"`     // nil: at once
	EndsAt       *time.Time `json:"ends_at"`       // nil: for as long as it is enabled
	Subject      string     `json:"subject"`       // "": "Auto: " and that of the message
	Text         string     `json:"text"`          // plain
	IntervalDays int        `json:"interval_days"` // after how many days a sender is answered again
	UpdatedAt    *time.Time `json:"updated_at"`    // nil: it was never set
}

// NewVacation describes what a mailbox is to answer.
type NewVacation struct {
	Enabled      bool       `json:"enabled"`
	StartsAt     *time.Time `json:"starts_at,omitempty"`     // nil: at once
	EndsAt       *time.Time `json:"ends_at,omitempty"`       // nil: for as long as it is enabled
	Subject      string     `json:"subject,omitempty"`       // "": "Auto: " and that of the message
	Text         string     `json:"text,omitempty"`          // at most 16,384 bytes
	IntervalDays int        `json:"interval_days,omitempty"` // 1 to 90; 7 if 0
}

// GetVacation shows what a mailbox answers; if that was never set, an answer that
// is not enabled.
func (c *Client) GetVacation(ctx context.Context, mailbox string) (*Vacation, error) {
	return do[Vacation](ctx, c, call{method: http.MethodGet, path: "/mailboxes/{id}/vacation", id: mailbox})
}

// SetVacation sets all of what a mailbox answers.
func (c *Client) SetVacation(ctx context.Context, mailbox string, v NewVacation) (*Vacation, error) {
	b, err := jsonBody(v)
	if err != nil {
		return nil, err
	}
	return do[Vacation](ctx, c, call{method: http.MethodPut, path: "/mailboxes/{id}/vacation", id: mailbox, body: b, again: true})
}

// DeleteVacation has a mailbox answer nothing.
func (c *Client) DeleteVacation(ctx context.Context, mailbox string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/mailboxes/{id}/vacation", id: mailbox})
}
