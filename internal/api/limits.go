// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/quota"
)

func (a *API) limitRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/limits", id: "getLimits", scope: "limits.read",
		summary: "Show the limits and what is used", description: "Of the account, and of the key that asks where it has limits of its own. A message counts when it is accepted, scheduled ones too, " +
			"once and for each of its recipients; refused requests and repeated ones (`Idempotency-Key`) don't count. " +
			"At 80 % of an hour's or a day's limit there is one `rate_limit_warning`."}, a.getLimits)
}

type limitsResponse struct {
	Requests         requestLimitResponse `json:"requests" doc:"Requests to the API."`
	SendsPerHour     usageResponse        `json:"sends_per_hour" doc:"Messages in this hour."`
	SendsPerDay      usageResponse        `json:"sends_per_day" doc:"Messages in this day."`
	RecipientsPerDay usageResponse        `json:"recipients_per_day" doc:"Recipients in this day, each once per message."`
	Storage          storageResponse      `json:"storage" doc:"What the mailboxes may hold."`
	APIKey           *keyUsageResponse    `json:"api_key" doc:"The key's own limits, which hold beside the account's; null if it has none."`
}

type requestLimitResponse struct {
	PerSecond *int64 `json:"per_second" doc:"How many may be made a second, on each node of the service; null for no limit." example:"2000"`
	Burst     *int64 `json:"burst" doc:"How many may come at once; null for no limit." example:"20000"`
}

type usageResponse struct {
	Limit     *int64    `json:"limit" doc:"How much is allowed; null for no limit." example:"1000000"`
	Used      int64     `json:"used" doc:"How much is used." example:"42"`
	Remaining *int64    `json:"remaining" doc:"How much is left; null for no limit." example:"999958"`
	ResetsAt  time.Time `json:"resets_at" doc:"When the next hour, or day, of UTC begins."`
}

type storageResponse struct {
	LimitBytes    *int64 `json:"limit_bytes" doc:"What the quotas of all mailboxes may be together; null for no limit."`
	AllottedBytes int64  `json:"allotted_bytes" doc:"What they are together. Deleted mailboxes count with what they hold."`
	UsedBytes     int64  `json:"used_bytes" doc:"How much of their quotas the mailboxes use. Each message counts for 1,024 bytes at least. Of an account with more than 1,000 mailboxes this is up to a minute old."`
}

type keyUsageResponse struct {
	ID               db.ID                 `json:"id" doc:"The key's id."`
	Requests         *requestLimitResponse `json:"requests" doc:"Requests to the API; null for no limit of its own."`
	SendsPerHour     *usageResponse        `json:"sends_per_hour" doc:"Messages in this hour; null for no limit of its own."`
	SendsPerDay      *usageResponse        `json:"sends_per_day" doc:"Messages in this day; null for no limit of its own."`
	RecipientsPerDay *usageResponse        `json:"recipients_per_day" doc:"Recipients in this day; null for no limit of its own."`
}

// nullIfUnlimited converts an absent limit to null.
func nullIfUnlimited(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func newRequestLimitResponse(r quota.Rates) requestLimitResponse {
	if r.RequestsPerSecond == 0 {
		return requestLimitResponse{}
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.RequestsPerSecond
	}
	return requestLimitResponse{&r.RequestsPerSecond, &burst}
}

func newUsageResponse(u quota.Usage) usageResponse {
	out := usageResponse{Limit: nullIfUnlimited(u.Limit), Used: u.Used, ResetsAt: utcTime(u.ResetsAt)}
	if u.Limit > 0 {
		left := max(0, u.Limit-u.Used)
		out.Remaining = &left
	}
	return out
}

func (a *API) getLimits(ctx context.Context, p account.Principal, _ *struct{}) (limitsResponse, error) {
	set, err := a.Limits.AccountLimits(ctx, p.Account)
	if err != nil {
		return limitsResponse{}, err
	}
	who := outbound.KeyConsumer(p)
	usage, err := a.Limits.Usage(ctx, who)
	if err != nil {
		return limitsResponse{}, err
	}
	out := limitsResponse{Requests: newRequestLimitResponse(set.Rates), Storage: storageResponse{LimitBytes: nullIfUnlimited(set.StorageMB << 20)}}
	if out.Storage.AllottedBytes, out.Storage.UsedBytes, err = a.Mailboxes.StorageUsage(ctx, p.Account); err != nil {
		return out, err
	}
	for i, into := range []*usageResponse{&out.SendsPerHour, &out.SendsPerDay, &out.RecipientsPerDay} {
		*into = newUsageResponse(usage[i])
	}
	if who.KeyRates != (quota.Rates{}) {
		out.APIKey = newKeyUsageResponse(who, usage[3:])
	}
	return out, nil
}

func newKeyUsageResponse(who quota.Consumer, usage []quota.Usage) *keyUsageResponse {
	out := &keyUsageResponse{ID: who.Key}
	if who.KeyRates.RequestsPerSecond > 0 {
		requests := newRequestLimitResponse(who.KeyRates)
		out.Requests = &requests
	}
	for _, u := range usage {
		shown := newUsageResponse(u)
		switch u.Name {
		case "sends_per_hour":
			out.SendsPerHour = &shown
		case "sends_per_day":
			out.SendsPerDay = &shown
		case "recipients_per_day":
			out.RecipientsPerDay = &shown
		}
	}
	return out
}

// keyLimitsRequest holds a key's own limits.
type keyLimitsRequest struct {
	RequestsPerSecond *int `json:"requests_per_second,omitempty" minimum:"1" doc:"Requests a second, on each node of the service." example:"10"`
	Burst             *int `json:"burst,omitempty" minimum:"1" doc:"Requests that may come at once; as many as in a second when left out." example:"50"`
	SendsPerHour      *int `json:"sends_per_hour,omitempty" minimum:"1" doc:"Messages in an hour of UTC." example:"1000"`
	SendsPerDay       *int `json:"sends_per_day,omitempty" minimum:"1" doc:"Messages in a day of UTC." example:"10000"`
	RecipientsPerDay  *int `json:"recipients_per_day,omitempty" minimum:"1" doc:"Recipients in a day of UTC." example:"10000"`
}

type keyLimitsResponse struct {
	RequestsPerSecond *int `json:"requests_per_second" doc:"Requests a second, on each node of the service; null for no limit of its own." example:"10"`
	Burst             *int `json:"burst" doc:"Requests that may come at once; null for as many as in a second." example:"50"`
	SendsPerHour      *int `json:"sends_per_hour" doc:"Messages in an hour of UTC; null for no limit of its own." example:"1000"`
	SendsPerDay       *int `json:"sends_per_day" doc:"Messages in a day of UTC; null for no limit of its own." example:"10000"`
	RecipientsPerDay  *int `json:"recipients_per_day" doc:"Recipients in a day of UTC; null for no limit of its own." example:"10000"`
}

// accountRates converts the limits for package account. An explicit 0 becomes a value that the
// package rejects.
func (k *keyLimitsRequest) accountRates() account.Rates {
	if k == nil {
		return account.Rates{}
	}
	read := func(n *int) int64 {
		switch {
		case n == nil:
			return 0
		case *n == 0:
			return -1
		}
		return int64(*n)
	}
	return account.Rates{
		RequestsPerSecond: read(k.RequestsPerSecond), Burst: read(k.Burst), SendsPerHour: read(k.SendsPerHour),
		SendsPerDay: read(k.SendsPerDay), RecipientsPerDay: read(k.RecipientsPerDay),
	}
}

// newKeyLimitsResponse returns a key's own limits, or nil if it has none.
func newKeyLimitsResponse(r account.Rates) *keyLimitsResponse {
	if r == (account.Rates{}) {
		return nil
	}
	show := func(n int64) *int {
		if n == 0 {
			return nil
		}
		return new(int(n))
	}
	return &keyLimitsResponse{show(r.RequestsPerSecond), show(r.Burst), show(r.SendsPerHour), show(r.SendsPerDay), show(r.RecipientsPerDay)}
}
