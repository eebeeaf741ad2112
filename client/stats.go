// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Periods of Stats.
const (
	ByDay  = "day"
	ByHour = "hour"
)

// StatsQuery selects statistics; the zero value selects all domains and the last 30 days.
type StatsQuery struct {
	By       string    // ByDay, the default, or ByHour
	StartsAt time.Time // zero: 30 days or 24 hours, including the current period
	EndsAt   time.Time // zero: now
	DomainID string    // "" for all domains
	Tag      string    // only messages with this tag; "" for all
}

// Stats are the statistics of an account, or of one of its domains.
type Stats struct {
	By       string        `json:"by"`
	StartsAt time.Time     `json:"starts_at"` // start of the first period
	EndsAt   time.Time     `json:"ends_at"`   // end of the last period
	Totals   StatsCounts   `json:"totals"`
	Data     []StatsPeriod `json:"data"` // oldest first, without gaps
}

// StatsPeriod is an hour or a day (UTC).
type StatsPeriod struct {
	Period time.Time `json:"period"` // start of the period
	StatsCounts
}

// StatsCounts are counts of events. All except Messages and Inbound count recipients.
type StatsCounts struct {
	Messages      int64    `json:"messages"` // accepted messages
	Accepted      int64    `json:"accepted"` // their recipients
	Delivered     int64    `json:"delivered"`
	Deferred      int64    `json:"deferred"`
	Bounced       int64    `json:"bounced"`
	Complained    int64    `json:"complained"`
	Suppressed    int64    `json:"suppressed"`
	Failed        int64    `json:"failed"`
	Cancelled     int64    `json:"cancelled"`
	Unsubscribed  int64    `json:"unsubscribed"`
	Inbound       int64    `json:"inbound"`        // messages received in mailboxes
	BounceRate    *float64 `json:"bounce_rate"`    // 0 to 1; nil if nothing was delivered or bounced
	ComplaintRate *float64 `json:"complaint_rate"` // nil if nothing was delivered
}

func (q StatsQuery) query() url.Values {
	params := url.Values{}
	set(params, "by", q.By)
	set(params, "domain_id", q.DomainID)
	set(params, "tag", q.Tag)
	for name, at := range map[string]time.Time{"starts_at": q.StartsAt, "ends_at": q.EndsAt} {
		if !at.IsZero() {
			params.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return params
}

// GetStats returns statistics by day or hour. Its cost doesn't depend on the volume sent.
func (c *Client) GetStats(ctx context.Context, q StatsQuery) (*Stats, error) {
	return do[Stats](ctx, c, call{method: http.MethodGet, path: "/stats", query: q.query()})
}
