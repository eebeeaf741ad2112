// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// The lengths of a period of Stats.
const (
	ByDay  = "day"
	ByHour = "hour"
)

// StatsQuery says which figures are wanted; the zero value is those of all
// domains for the last 30 days.
type StatsQuery struct {
	By       string    // ByDay, also if it is ""; or ByHour
	From     time.Time // zero: 30 days, or 24 hours, up to the last period
	To       time.Time // zero: now
	DomainID string    // "" for all domains
}

// Stats are figures of an account, or of one of its domains.
type Stats struct {
	By     string        `json:"by"`
	From   time.Time     `json:"from"` // when the first period begins
	To     time.Time     `json:"to"`   // when the last one ends
	Totals Figures       `json:"totals"`
	Data   []StatsPeriod `json:"data"` // oldest first, none left out
}

// StatsPeriod is an hour or a day, in UTC.
type StatsPeriod struct {
	Period time.Time `json:"period"` // when it begins
	Figures
}

// Figures say how often what happened. All but Messages and Inbound count
// recipients.
type Figures struct {
	Messages      int64    `json:"messages"` // that were accepted
	Accepted      int64    `json:"accepted"` // their recipients
	Delivered     int64    `json:"delivered"`
	Deferred      int64    `json:"deferred"`
	Bounced       int64    `json:"bounced"`
	Complained    int64    `json:"complained"`
	Suppressed    int64    `json:"suppressed"`
	Failed        int64    `json:"failed"`
	Cancelled     int64    `json:"cancelled"`
	Unsubscribed  int64    `json:"unsubscribed"`
	Inbound       int64    `json:"inbound"`        // messages that arrived in mailboxes
	BounceRate    *float64 `json:"bounce_rate"`    // 0 to 1; nil if nothing was delivered or bounced
	ComplaintRate *float64 `json:"complaint_rate"` // nil if nothing was delivered
}

// GetStats returns figures by day or hour. It costs the same however much was
// sent.
func (c *Client) GetStats(ctx context.Context, q StatsQuery) (*Stats, error) {
	params := url.Values{}
	set(params, "by", q.By)
	set(params, "domain_id", q.DomainID)
	for name, at := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !at.IsZero() {
			params.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return do[Stats](ctx, c, call{method: http.MethodGet, path: "/stats", query: params})
}
