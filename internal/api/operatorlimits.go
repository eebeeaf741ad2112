// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/quota"
)

func (a *API) operatorLimitRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/operator/accounts/{id}/limits", id: "getAccountLimits", scope: account.ScopeOperator,
		summary: "Show the limits of an account", description: "What was set for it, and what holds. In both 0 is no limit."}, a.getAccountLimits)
	handle(r, operation{method: "PUT", path: "/operator/accounts/{id}/limits", id: "setAccountLimits", validatesFirst: true, scope: account.ScopeOperator,
		summary: "Set the limits of an account", description: "What is left out is as for all accounts, by the service's settings; 0 is no limit. It holds on all nodes within seconds, and what was used counts."}, a.setAccountLimits)
}

// setLimitsRequest holds the limits that an operator sets for an account.
type setLimitsRequest struct {
	RequestsPerSecond *int `json:"requests_per_second,omitempty" minimum:"0" doc:"Requests a second, on each node." example:"100"`
	Burst             *int `json:"burst,omitempty" minimum:"0" doc:"Requests that may come at once; 0 for as many as in a second." example:"1000"`
	SendsPerHour      *int `json:"sends_per_hour,omitempty" minimum:"0" doc:"Messages in an hour of UTC." example:"10000"`
	SendsPerDay       *int `json:"sends_per_day,omitempty" minimum:"0" doc:"Messages in a day of UTC." example:"100000"`
	RecipientsPerDay  *int `json:"recipients_per_day,omitempty" minimum:"0" doc:"Recipients in a day of UTC." example:"100000"`
	StorageMB         *int `json:"storage_mb,omitempty" minimum:"0" doc:"What the quotas of its mailboxes may be together, in megabytes." example:"102400"`
}

// limitSetResponse holds limits; null is a limit that is not set.
type limitSetResponse struct {
	RequestsPerSecond *int64 `json:"requests_per_second" doc:"Requests a second, on each node." example:"100"`
	Burst             *int64 `json:"burst" doc:"Requests that may come at once." example:"1000"`
	SendsPerHour      *int64 `json:"sends_per_hour" doc:"Messages in an hour of UTC." example:"10000"`
	SendsPerDay       *int64 `json:"sends_per_day" doc:"Messages in a day of UTC." example:"100000"`
	RecipientsPerDay  *int64 `json:"recipients_per_day" doc:"Recipients in a day of UTC." example:"100000"`
	StorageMB         *int64 `json:"storage_mb" doc:"What the quotas of the mailboxes may be together, in megabytes." example:"102400"`
}

type accountLimitsResponse struct {
	AccountID db.ID            `json:"account_id" doc:"The account."`
	Set       limitSetResponse `json:"set" doc:"What was set for it; null where it is as for all accounts."`
	Limits    limitSetResponse `json:"limits" doc:"What holds."`
}

func newLimitSetResponse(s quota.AccountLimits) limitSetResponse {
	show := func(n int64) *int64 {
		if n == quota.Default {
			return nil
		}
		return &n
	}
	return limitSetResponse{show(s.RequestsPerSecond), show(s.Burst), show(s.SendsPerHour), show(s.SendsPerDay), show(s.RecipientsPerDay), show(s.StorageMB)}
}

func (in *setLimitsRequest) accountLimits() quota.AccountLimits {
	read := func(n *int) int64 {
		switch {
		case n == nil:
			return quota.Default
		case *n < 0:
			return quota.MaxValue + 1 // rejected as out of range
		}
		return int64(*n)
	}
	return quota.AccountLimits{
		Rates: quota.Rates{
			RequestsPerSecond: read(in.RequestsPerSecond), Burst: read(in.Burst), SendsPerHour: read(in.SendsPerHour), SendsPerDay: read(in.SendsPerDay),
			RecipientsPerDay: read(in.RecipientsPerDay),
		},
		StorageMB: read(in.StorageMB),
	}
}

// accountID parses the path's account id.
func (a *API) accountID(ctx context.Context, in *idParams) (db.ID, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return 0, err
	}
	acc, err := a.Accounts.Get(ctx, id)
	return acc.ID, err
}

func (a *API) getAccountLimits(ctx context.Context, _ account.Principal, in *idParams) (accountLimitsResponse, error) {
	id, err := a.accountID(ctx, in)
	if err != nil {
		return accountLimitsResponse{}, err
	}
	set, err := a.Limits.Overrides(ctx, id)
	if err != nil {
		return accountLimitsResponse{}, err
	}
	holds, err := a.Limits.AccountLimits(ctx, id)
	return accountLimitsResponse{AccountID: id, Set: newLimitSetResponse(set), Limits: newLimitSetResponse(holds)}, err
}

type setAccountLimitsInput struct {
	idParams
	Body setLimitsRequest
}

func (a *API) setAccountLimits(ctx context.Context, p account.Principal, in *setAccountLimitsInput) (accountLimitsResponse, error) {
	id, err := a.accountID(ctx, &in.idParams)
	if err != nil {
		return accountLimitsResponse{}, err
	}
	if err := a.Limits.SetOverrides(ctx, id, in.Body.accountLimits()); err != nil {
		return accountLimitsResponse{}, err
	}
	return a.getAccountLimits(ctx, p, &in.idParams)
}
