// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"time"
)

// Limits are the account's limits and usage.
type Limits struct {
	Requests         RequestLimit `json:"requests"`
	SendsPerHour     Usage        `json:"sends_per_hour"` // messages
	SendsPerDay      Usage        `json:"sends_per_day"`
	RecipientsPerDay Usage        `json:"recipients_per_day"` // each counts once per message
	Storage          Storage      `json:"storage"`
	APIKey           *KeyUsage    `json:"api_key"` // limits of the key itself, besides the account's; nil if it has none
}

// RequestLimit is the limit for requests to each node of the service; nil means no limit.
type RequestLimit struct {
	PerSecond *int64 `json:"per_second"`
	Burst     *int64 `json:"burst"` // requests at once
}

// Usage is the usage of a limit in an hour or a day (UTC).
type Usage struct {
	Limit     *int64    `json:"limit"` // nil: no limit
	Used      int64     `json:"used"`
	Remaining *int64    `json:"remaining"` // nil: no limit
	ResetsAt  time.Time `json:"resets_at"`
}

// Storage is the storage of all mailboxes, in bytes.
type Storage struct {
	Limit    *int64 `json:"limit_bytes"`    // for the sum of all quotas; nil: no limit
	Allotted int64  `json:"allotted_bytes"` // sum of all quotas
	Used     int64  `json:"used_bytes"`
}

// KeyUsage is the usage of a key's own limits; nil for none.
type KeyUsage struct {
	ID               string        `json:"id"`
	Requests         *RequestLimit `json:"requests"`
	SendsPerHour     *Usage        `json:"sends_per_hour"`
	SendsPerDay      *Usage        `json:"sends_per_day"`
	RecipientsPerDay *Usage        `json:"recipients_per_day"`
}

// KeyLimits are a key's own limits, besides those of the account; nil for none.
type KeyLimits struct {
	RequestsPerSecond *int64 `json:"requests_per_second,omitempty"` // per node of the service
	Burst             *int64 `json:"burst,omitempty"`               // requests at once; nil: as many as per second
	SendsPerHour      *int64 `json:"sends_per_hour,omitempty"`
	SendsPerDay       *int64 `json:"sends_per_day,omitempty"`
	RecipientsPerDay  *int64 `json:"recipients_per_day,omitempty"`
}

// GetLimits returns the limits and their usage. Requests beyond a limit return [ErrRateLimited].
func (c *Client) GetLimits(ctx context.Context) (*Limits, error) {
	return do[Limits](ctx, c, call{method: http.MethodGet, path: "/limits"})
}

// LimitSet are the limits of an account; 0 means no limit, and nil the service's default.
type LimitSet struct {
	RequestsPerSecond *int64 `json:"requests_per_second,omitempty"` // per node
	Burst             *int64 `json:"burst,omitempty"`
	SendsPerHour      *int64 `json:"sends_per_hour,omitempty"`
	SendsPerDay       *int64 `json:"sends_per_day,omitempty"`
	RecipientsPerDay  *int64 `json:"recipients_per_day,omitempty"`
	StorageMB         *int64 `json:"storage_mb,omitempty"` // sum of the quotas of all mailboxes
}

// AccountLimits are the limits of an account, for operators.
type AccountLimits struct {
	AccountID string   `json:"account_id"`
	Set       LimitSet `json:"set"`    // set for this account
	Limits    LimitSet `json:"limits"` // effective limits
}

// GetAccountLimits returns the limits of an account. It is for operators.
func (c *Client) GetAccountLimits(ctx context.Context, account string) (*AccountLimits, error) {
	return do[AccountLimits](ctx, c, call{method: http.MethodGet, path: "/operator/accounts/{id}/limits", id: account})
}

// SetAccountLimits sets all limits of an account. It is for operators.
func (c *Client) SetAccountLimits(ctx context.Context, account string, set LimitSet) (*AccountLimits, error) {
	b, err := jsonBody(set)
	if err != nil {
		return nil, err
	}
	return do[AccountLimits](ctx, c, call{method: http.MethodPut, path: "/operator/accounts/{id}/limits", id: account, body: b})
}
