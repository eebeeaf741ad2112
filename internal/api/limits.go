// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/outbound"
)

func (a *API) limitRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/limits", id: "getLimits", scope: "limits.read",
		summary: "Show the limits and what is used", description: "Of the account, and of the key that asks where it has limits of its own. A message counts when it is accepted, scheduled ones too, " +
			"once and for each of its recipients; refused requests and repeated ones (`Idempotency-Key`) don't count. " +
			"At 80 % of an hour's or a day's limit there is one `rate_limit_warning`."}, a.getLimits)
}

type limitsAnswer struct {
	Requests   requestLimitAnswer `json:"requests" doc:"Requests to the API."`
	SendsHour  usageAnswer        `json:"sends_per_hour" doc:"Messages in this hour."`
	SendsDay   usageAnswer        `json:"sends_per_day" doc:"Messages in this day."`
	Recipients usageAnswer        `json:"recipients_per_day" doc:"Recipients in this day, each once per message."`
	Storage    storageAnswer      `json:"storage" doc:"What the mailboxes may hold."`
	Key        *keyUsageAnswer    `json:"api_key,omitempty" doc:"The key's own limits, which hold beside the account's; absent if it has none."`
}

type requestLimitAnswer struct {
	PerSecond *int64 `json:"per_second" doc:"How many may be made a second, on each node of the service; null for no limit." example:"2000"`
	Burst     *int64 `json:"burst" doc:"How many may come at once; null for no limit." example:"20000"`
}

type usageAnswer struct {
	Limit    *int64    `json:"limit" doc:"How much is allowed; null for no limit." example:"1000000"`
	Used     int64     `json:"used" doc:"How much is used." example:"42"`
	Left     *int64    `json:"remaining" doc:"How much is left; null for no limit." example:"999958"`
	ResetsAt time.Time `json:"resets_at" doc:"When the next hour, or day, of UTC begins."`
}

type storageAnswer struct {
	Limit    *int64 `json:"limit_bytes" doc:"What the quotas of all mailboxes may be together; null for no limit."`
	Allotted int64  `json:"allotted_bytes" doc:"What they are together. Deleted mailboxes count with what they hold."`
	Used     int64  `json:"used_bytes" doc:"How much of their quotas the mailboxes use. Each message counts for 1,024 bytes at least. Of an account with more than 1,000 mailboxes this is up to a minute old."`
}

type keyUsageAnswer struct {
	ID         db.ID               `json:"id" doc:"The key's id."`
	Requests   *requestLimitAnswer `json:"requests,omitempty" doc:"Requests to the API; absent for no limit of its own."`
	SendsHour  *usageAnswer        `json:"sends_per_hour,omitempty" doc:"Messages in this hour; absent for no limit of its own."`
	SendsDay   *usageAnswer        `json:"sends_per_day,omitempty" doc:"Messages in this day; absent for no limit of its own."`
	Recipients *usageAnswer        `json:"recipients_per_day,omitempty" doc:"Recipients in this day; absent for no limit of its own."`
}

// figure shows no limit as null.
func figure(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func showRequests(r limit.Rates) requestLimitAnswer {
	if r.RequestsPerSecond == 0 {
		return requestLimitAnswer{}
	}
	burst := r.Burst
	if burst == 0 {
		burst = r.RequestsPerSecond
	}
	return requestLimitAnswer{&r.RequestsPerSecond, &burst}
}

func showUsage(u limit.Usage) usageAnswer {
	out := usageAnswer{Limit: figure(u.Limit), Used: u.Used, ResetsAt: stamp(u.Resets)}
	if u.Limit > 0 {
		left := max(0, u.Limit-u.Used)
		out.Left = &left
	}
	return out
}

func (a *API) getLimits(ctx context.Context, p account.Principal, _ *struct{}) (limitsAnswer, error) {
	set, err := a.Limits.Account(ctx, p.Account)
	if err != nil {
		return limitsAnswer{}, err
	}
	who := outbound.UserOf(p)
	usage, err := a.Limits.Usage(ctx, who)
	if err != nil {
		return limitsAnswer{}, err
	}
	out := limitsAnswer{Requests: showRequests(set.Rates), Storage: storageAnswer{Limit: figure(set.StorageMB << 20)}}
	if out.Storage.Allotted, out.Storage.Used, err = a.Mailboxes.Stored(ctx, p.Account); err != nil {
		return out, err
	}
	for i, into := range []*usageAnswer{&out.SendsHour, &out.SendsDay, &out.Recipients} {
		*into = showUsage(usage[i])
	}
	if who.Own != (limit.Rates{}) {
		out.Key = showKeyUsage(who, usage[3:])
	}
	return out, nil
}

func showKeyUsage(who limit.Who, usage []limit.Usage) *keyUsageAnswer {
	out := &keyUsageAnswer{ID: who.Key}
	if who.Own.RequestsPerSecond > 0 {
		requests := showRequests(who.Own)
		out.Requests = &requests
	}
	for _, u := range usage {
		shown := showUsage(u)
		switch u.Name {
		case "sends_per_hour":
			out.SendsHour = &shown
		case "sends_per_day":
			out.SendsDay = &shown
		case "recipients_per_day":
			out.Recipients = &shown
		}
	}
	return out
}

// keyLimitsRequest are limits of a key's own.
type keyLimitsRequest struct {
	RequestsPerSecond *int `json:"requests_per_second,omitempty" nullable:"false" minimum:"1" doc:"Requests a second, on each node of the service." example:"10"`
	Burst             *int `json:"burst,omitempty" nullable:"false" minimum:"1" doc:"Requests that may come at once; as many as in a second when left out." example:"50"`
	SendsPerHour      *int `json:"sends_per_hour,omitempty" nullable:"false" minimum:"1" doc:"Messages in an hour of UTC." example:"1000"`
	SendsPerDay       *int `json:"sends_per_day,omitempty" nullable:"false" minimum:"1" doc:"Messages in a day of UTC." example:"10000"`
	RecipientsPerDay  *int `json:"recipients_per_day,omitempty" nullable:"false" minimum:"1" doc:"Recipients in a day of UTC." example:"10000"`
}

type keyLimitsAnswer keyLimitsRequest

// rates are the limits as the account takes them; one that was given and is none
// becomes one that it refuses.
func (k *keyLimitsRequest) rates() account.Rates {
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

// showKeyLimits shows the limits of a key's own; nil if it has none.
func showKeyLimits(r account.Rates) *keyLimitsAnswer {
	if r == (account.Rates{}) {
		return nil
	}
	show := func(n int64) *int {
		if n == 0 {
			return nil
		}
		return new(int(n))
	}
	return &keyLimitsAnswer{show(r.RequestsPerSecond), show(r.Burst), show(r.SendsPerHour), show(r.SendsPerDay), show(r.RecipientsPerDay)}
}
