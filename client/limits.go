// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"time"
)

// Limits are how much the account may use, and how much it has.
type Limits struct {
	Requests         RequestLimit `json:"requests"`
	SendsPerHour     Usage        `json:"sends_per_hour"` // messages
	SendsPerDay      Usage        `json:"sends_per_day"`
	RecipientsPerDay Usage        `json:"recipients_per_day"` // each once per message
	Storage          Storage      `json:"storage"`
	APIKey           *KeyUsage    `json:"api_key"` // the limits of the key that asks, beside the account's; nil if it has none
}

// RequestLimit is how many requests may be made to each node of the service;
// nil for no limit.
type RequestLimit struct {
	PerSecond *int64 `json:"per_second"`
	Burst     *int64 `json:"burst"` // that may come at once
}

// Usage is how much of a limit is used in an hour or a day of UTC.
type Usage struct {
	Limit     *int64    `json:"limit"` // nil for no limit
	Used      int64     `json:"used"`
	Remaining *int64    `json:"remaining"` // nil for no limit
	ResetsAt  time.Time `json:"resets_at"`
}

// Storage is what the mailboxes may hold, in bytes.
type Storage struct {
	Limit    *int64 `json:"limit_bytes"`    // of the quotas of all together; nil for no limit
	Allotted int64  `json:"allotted_bytes"` // what the quotas are together
	Used     int64  `json:"used_bytes"`
}

// KeyUsage is how the limits stand that a key has of its own; nil for none.
type KeyUsage struct {
	ID               string        `json:"id"`
	Requests         *RequestLimit `json:"requests"`
	SendsPerHour     *Usage        `json:"sends_per_hour"`
	SendsPerDay      *Usage        `json:"sends_per_day"`
	RecipientsPerDay *Usage        `json:"recipients_per_day"`
}

// KeyLimits are limits of a key's own, beside those of the account; nil for none.
type KeyLimits struct {
	RequestsPerSecond *int64 `json:"requests_per_second,omitempty"` // on each node of the service
	Burst             *int64 `json:"burst,omitempty"`               // requests that may come at once; nil for as many as in a second
	SendsPerHour      *int64 `json:"sends_per_hour,omitempty"`
	SendsPerDay       *int64 `json:"sends_per_day,omitempty"`
	RecipientsPerDay  *int64 `json:"recipients_per_day,omitempty"`
}

// GetLimits shows the limits and what is used of them. What is too much is
// refused with [ErrRateLimited].
func (c *Client) GetLimits(ctx context.Context) (*Limits, error) {
	return do[Limits](ctx, c, call{method: http.MethodGet, path: "/limits"})
}

// LimitSet are the limits of an account; 0 is no limit, and nil that of all
// accounts.
type LimitSet struct {
	RequestsPerSecond *int64 `json:"requests_per_second,omitempty"` // on each node
	Burst             *int64 `json:"burst,omitempty"`
	SendsPerHour      *int64 `json:"sends_per_hour,omitempty"`
	SendsPerDay       *int64 `json:"sends_per_day,omitempty"`
	RecipientsPerDay  *int64 `json:"recipients_per_day,omitempty"`
	StorageMB         *int64 `json:"storage_mb,omitempty"` // of the quotas of all mailboxes together
}

// AccountLimits are what operators see of the limits of an account.
type AccountLimits struct {
	AccountID string   `json:"account_id"`
	Set       LimitSet `json:"set"`    // for the account itself
	Limits    LimitSet `json:"limits"` // what holds
}

// GetAccountLimits shows the limits of an account. It is for those who run the
// service.
func (c *Client) GetAccountLimits(ctx context.Context, account string) (*AccountLimits, error) {
	return do[AccountLimits](ctx, c, call{method: http.MethodGet, path: "/operator/accounts/{id}/limits", id: account})
}

// SetAccountLimits sets all limits of an account. It is for those who run the
// service.
func (c *Client) SetAccountLimits(ctx context.Context, account string, set LimitSet) (*AccountLimits, error) {
	b, err := jsonBody(set)
	if err != nil {
		return nil, err
	}
	return do[AccountLimits](ctx, c, call{method: http.MethodPut, path: "/operator/accounts/{id}/limits", id: account, body: b})
}
