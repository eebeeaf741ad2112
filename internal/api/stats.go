// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/tag"
)

type getStatsInput struct {
	StartsAt string `query:"starts_at" format:"date-time" doc:"The first period is the one with this time in it; by default 30 days, or 24 hours, up to the last one." example:"2026-01-01T00:00:00Z"`
	EndsAt   string `query:"ends_at" format:"date-time" doc:"Only periods that begin before this time; by default now, so that the last one is not over yet." example:"2026-02-01T00:00:00Z"`
	By       string `query:"by" enum:"day,hour" default:"day" doc:"How long a period is, in UTC. Hours are kept for 90 days, days for ever; 750 periods can be asked for."`
	DomainID string `query:"domain_id" format:"uuid" doc:"Only what was sent from this domain, or arrived in its mailboxes."`
	Tag      string `query:"tag" doc:"Only messages sent with this tag, counted some seconds later. Of each day, the first 1,000 different tags are counted; their days are kept for 750 days." example:"welcome"`
}

// StatsCounts are the counts of a period. It is exported because it is embedded.
type StatsCounts struct {
	Messages     int64 `json:"messages" doc:"Messages that were accepted, by the API or from a mailbox. They are counted some seconds later."`
	Accepted     int64 `json:"accepted" doc:"Their recipients. What follows counts recipients too."`
	Delivered    int64 `json:"delivered" doc:"Taken by the recipient's mail host."`
	Deferred     int64 `json:"deferred" doc:"Not taken at the first attempt."`
	Bounced      int64 `json:"bounced" doc:"Refused for good, at once or after having been delivered."`
	Complained   int64 `json:"complained" doc:"Marked as spam by the recipient."`
	Suppressed   int64 `json:"suppressed" doc:"Not sent, as the recipient is on the suppression list."`
	Failed       int64 `json:"failed" doc:"Given up for a reason of ours."`
	Cancelled    int64 `json:"cancelled" doc:"Cancelled before it was delivered."`
	Unsubscribed int64 `json:"unsubscribed" doc:"Recipients who unsubscribed by the hosted link or by mail to the address beside it."`
	Inbound      int64 `json:"inbound" doc:"Messages that arrived in mailboxes, one for each mailbox."`

	BounceRate    *float64 `json:"bounce_rate" doc:"bounced / (delivered + bounced); null if there was neither." example:"0.012"`
	ComplaintRate *float64 `json:"complaint_rate" doc:"complained / delivered; null if nothing was delivered." example:"0.0003"`
}

type statsPeriod struct {
	Period time.Time `json:"period" doc:"When the hour or the day begins." example:"2026-01-31T00:00:00Z"`
	StatsCounts
}

type statsResponse struct {
	By       string        `json:"by" enum:"day,hour" doc:"How long a period is."`
	StartsAt time.Time     `json:"starts_at" doc:"When the first period begins."`
	EndsAt   time.Time     `json:"ends_at" doc:"When the last period ends."`
	Totals   StatsCounts   `json:"totals" doc:"All periods together."`
	Data     []statsPeriod `json:"data" doc:"The periods, oldest first; those in which nothing happened too."`
}

func (a *API) statsRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/stats", id: "getStats", scope: "stats.read",
		summary: "Show figures by day or hour", description: "How much was sent and arrived, and what became of it, each thing counted where it happened: a mail that was accepted " +
			"on Monday and bounced on Tuesday is accepted on Monday and bounced on Tuesday. A delivery may be counted in several states: first deferred, then delivered. " +
			"No figure is an estimate. A key of one domain sees the figures of that domain."}, a.getStats)
	handleExport(r, operation{path: "/stats/export", id: "exportStats", scope: "stats.read",
		summary: "Export figures by day or hour", description: "The periods, oldest first, by the same parameters; without the totals."}, a.exportStats)
}

type exportStatsInput struct {
	exportParams
	getStatsInput
}

func (a *API) exportStats(ctx context.Context, p account.Principal, in *exportStatsInput, _ string) (listResponse[statsPeriod], error) {
	out, err := a.getStats(ctx, p, &in.getStatsInput)
	return listResponse[statsPeriod]{Data: out.Data}, err
}

// maxPeriods is the maximum number of periods in one request: a month of hours, or two years of
// days.
const maxPeriods = 750

// query converts the input to a query, except for its domain.
func (in *getStatsInput) query(now time.Time, bad *fault.FieldErrors) stat.Query {
	q := stat.Query{Interval: stat.Day, To: now, Tag: in.Tag}
	if in.Tag != "" && !tag.Valid(in.Tag) {
		bad.Add("tag", "invalid_tag", "%s", tag.Rule)
	}
	usual := 30
	if in.By == "hour" {
		q.Interval, usual = stat.Hour, 24
	}
	given := func(name, text string, into *time.Time) bool {
		if text == "" {
			return true
		}
		var err error
		*into, err = time.Parse(time.RFC3339, text)
		if err != nil {
			bad.Add(name, "invalid_time", "Give a time such as 2026-01-31T09:00:00Z (RFC 3339).")
		}
		return err == nil
	}
	if to, from := given("ends_at", in.EndsAt, &q.To), given("starts_at", in.StartsAt, &q.From); !to || !from {
		return q
	}
	if in.StartsAt == "" {
		q.From = q.To.Add(-1).UTC().Truncate(q.Interval).Add(-time.Duration(usual-1) * q.Interval)
	}
	switch {
	case !q.From.Before(q.To):
		bad.Add("starts_at", "invalid_range", "This must be before ends_at.")
	case q.Start().Year() < 1 || q.To.UTC().Year() >= 9999: // JSON can encode the end of the last period only in these years
		bad.Add("ends_at", "out_of_range", "Give a time of the years 1 to 9998.")
	case q.PeriodCount() > maxPeriods:
		bad.Add("starts_at", "too_many_periods", "There are %d periods at most between starts_at and ends_at.", maxPeriods)
	case q.Tag != "" && q.Interval == stat.Day && q.Start().Before(now.Add(-stat.TagRetention).Truncate(stat.Day)):
		bad.Add("starts_at", "too_old", "The days of a tag are kept for %d days.", int(stat.TagRetention/stat.Day))
	case q.Interval == stat.Hour && q.Start().Before(now.Add(-stat.HourlyRetention)):
		bad.Add("starts_at", "too_old", "Hours are kept for %d days; ask for days.", int(stat.HourlyRetention/stat.Day))
	}
	return q
}

func (a *API) getStats(ctx context.Context, p account.Principal, in *getStatsInput) (statsResponse, error) {
	var bad fault.FieldErrors
	q := in.query(time.Now(), &bad)
	q.Account = p.Account
	var err error
	if in.DomainID != "" {
		q.Domain, err = a.domainID(ctx, p, &idParams{in.DomainID})
		err = notFoundAsFieldFault(err, "domain_id", "There is no domain of yours with this id.")
	} else {
		var ok bool
		if q.Domain, ok, err = a.keyDomainID(ctx, p); !ok {
			q.Domain = -1 // the key's domain is gone; 0 would match all domains
		}
	}
	if err := mergeFaults(&bad, err); err != nil {
		return statsResponse{}, err
	}
	if err := bad.Err(); err != nil {
		return statsResponse{}, err
	}
	periods, total, err := a.Stats.Read(ctx, q)
	if err != nil {
		return statsResponse{}, err
	}
	out := statsResponse{
		By: "day", StartsAt: q.Start(), EndsAt: q.Start().Add(time.Duration(len(periods)) * q.Interval), Totals: newStatsCounts(total),
		Data: make([]statsPeriod, len(periods)),
	}
	if q.Interval == stat.Hour {
		out.By = "hour"
	}
	for i, f := range periods {
		out.Data[i] = statsPeriod{f.Start, newStatsCounts(f.Counts)}
	}
	return out, nil
}

func newStatsCounts(f stat.Counts) StatsCounts {
	out := StatsCounts{
		Messages: f.Messages, Accepted: f.Accepted, Delivered: f.Delivered, Deferred: f.Deferred, Bounced: f.Bounced, Complained: f.Complained,
		Suppressed: f.Suppressed, Failed: f.Failed, Cancelled: f.Cancelled, Unsubscribed: f.Unsubscribed, Inbound: f.Inbound,
	}
	if rate, ok := f.BounceRate(); ok {
		out.BounceRate = &rate
	}
	if rate, ok := f.ComplaintRate(); ok {
		out.ComplaintRate = &rate
	}
	return out
}
