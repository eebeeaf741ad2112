// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
)

func (a *API) operatorAccountRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/operator/accounts", id: "listAccounts", scope: account.Operator,
		summary: "List the accounts", description: "The customers of the service, the newest first."}, a.listAccounts)
	handle(r, operation{method: "POST", path: "/operator/accounts", id: "createAccount", scope: account.Operator, status: 201,
		summary: "Make an account", description: "`mailstead user link` makes a link for its first owner; an operator can also send an invitation on the dashboard. A second account of one address is a 409."}, a.createAccount)
	handle(r, operation{method: "GET", path: "/operator/accounts/{id}", id: "getAccount", scope: account.Operator,
		summary: "Show an account", description: "A customer, with whether it may be used."}, a.getAccount)
	handle(r, operation{method: "PATCH", path: "/operator/accounts/{id}", id: "updateAccount", scope: account.Operator,
		summary: "Suspend an account, or end that", description: "A suspended account sends and receives nothing, and nobody signs in to it; what it has is kept. It holds on all nodes within seconds."}, a.updateAccount)
}

type accountAnswer struct {
	ID        db.ID     `json:"id" doc:"The account's id."`
	Email     string    `json:"email" doc:"The customer's e-mail address." example:"customer@example.com"`
	Name      string    `json:"name" doc:"The customer's name; may be empty." example:"Example Ltd"`
	Status    string    `json:"status" enum:"active,suspended" doc:"Whether it may be used." example:"active"`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
}

func showAccount(a account.Account) accountAnswer {
	return accountAnswer{a.ID, a.Email, a.Name, a.Status, stamp(a.CreatedAt)}
}

func (a *API) listAccounts(ctx context.Context, _ account.Principal, in *page) (list[accountAnswer], error) {
	at, err := in.db()
	if err != nil {
		return list[accountAnswer]{}, err
	}
	found, more, err := a.Accounts.List(ctx, at)
	if err != nil {
		return list[accountAnswer]{}, err
	}
	return answer(*in, found, more, showAccount, func(a account.Account) string { return a.ID.String() }), nil
}

type createAccountRequest struct {
	Email string `json:"email" required:"true" doc:"The customer's e-mail address." example:"customer@example.com"`
	Name  string `json:"name,omitempty" doc:"The customer's name, at most 200 bytes." example:"Example Ltd"`
}

type createAccountInput struct {
	Body createAccountRequest
}

func (a *API) createAccount(ctx context.Context, _ account.Principal, in *createAccountInput) (accountAnswer, error) {
	made, err := a.Accounts.Create(ctx, in.Body.Email, in.Body.Name)
	return showAccount(made), err
}

func (a *API) getAccount(ctx context.Context, _ account.Principal, in *one) (accountAnswer, error) {
	id, err := a.customer(ctx, in)
	if err != nil {
		return accountAnswer{}, err
	}
	found, err := a.Accounts.Get(ctx, id)
	return showAccount(found), err
}

type updateAccountRequest struct {
	Status string `json:"status" required:"true" enum:"active,suspended" doc:"Whether it may be used." example:"suspended"`
}

type updateAccountInput struct {
	one
	Body updateAccountRequest
}

func (a *API) updateAccount(ctx context.Context, p account.Principal, in *updateAccountInput) (accountAnswer, error) {
	id, err := a.customer(ctx, &in.one)
	if err != nil {
		return accountAnswer{}, err
	}
	if err := a.Accounts.SetStatus(ctx, id, in.Body.Status); err != nil {
		return accountAnswer{}, err
	}
	return a.getAccount(ctx, p, &in.one)
}
