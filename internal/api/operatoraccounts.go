// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
)

func (a *API) operatorAccountRoutes(r *router) {
	handle(r, operation{method: "GET", path: "/operator/accounts", id: "listAccounts", scope: account.ScopeOperator,
		summary: "List the accounts", description: "The customers of the service, the newest first."}, a.listAccounts)
	handle(r, operation{method: "POST", path: "/operator/accounts", id: "createAccount", validatesFirst: true, scope: account.ScopeOperator, status: 201,
		summary: "Make an account", description: "`mailstead user link` makes a link for its first owner; an operator can also send an invitation on the dashboard. A second account of one address is a 409."}, a.createAccount)
	handle(r, operation{method: "GET", path: "/operator/accounts/{id}", id: "getAccount", scope: account.ScopeOperator,
		summary: "Show an account", description: "A customer, with whether it may be used."}, a.getAccount)
	handle(r, operation{method: "PATCH", path: "/operator/accounts/{id}", id: "updateAccount", validatesFirst: true, scope: account.ScopeOperator,
		summary: "Suspend an account, or end that", description: "A suspended account sends and receives nothing, and nobody signs in to it; open sessions end. What it has is kept. It holds on all nodes within seconds."}, a.updateAccount)
	handle(r, operation{method: "GET", path: "/operator/domains/{id}", id: "getOperatorDomain", scope: account.ScopeOperator,
		summary: "Show a domain to operators", description: "Who holds a domain, and whether it is suspended."}, a.getOperatorDomain)
	handle(r, operation{method: "PATCH", path: "/operator/domains/{id}", id: "suspendDomain", scope: account.ScopeOperator,
		summary: "Suspend a domain, or end that", description: "Nobody sends from a suspended domain, receives at it or signs in to its mailboxes; what it has is kept. " +
			"Its DNS is still checked, it can't be deleted, and no other account can take it over. The suspension holds on all nodes within seconds."}, a.suspendDomain)
}

type operatorDomainInput struct {
	Name string `path:"id" doc:"The domain's name."`
}

type operatorDomainResponse struct {
	Name      string `json:"name" doc:"The domain, as A-labels." example:"example.com"`
	AccountID *db.ID `json:"account_id" doc:"The account that holds it; null if its ownership is not verified."`
	Suspended bool   `json:"suspended" doc:"Whether it is suspended."`
}

func (a *API) getOperatorDomain(ctx context.Context, _ account.Principal, in *operatorDomainInput) (operatorDomainResponse, error) {
	h, err := a.Domains.OwnerOf(ctx, in.Name)
	if err != nil {
		return operatorDomainResponse{}, err
	}
	shown := operatorDomainResponse{Name: h.Name, Suspended: h.Suspended}
	if h.Account != 0 {
		shown.AccountID = &h.Account
	}
	return shown, nil
}

type suspendDomainInput struct {
	operatorDomainInput
	Body suspendDomainRequest
}

type suspendDomainRequest struct {
	Suspended bool `json:"suspended" required:"true" doc:"Whether it is to be suspended." example:"true"`
}

func (a *API) suspendDomain(ctx context.Context, p account.Principal, in *suspendDomainInput) (operatorDomainResponse, error) {
	if err := a.Domains.SetSuspended(ctx, in.Name, in.Body.Suspended); err != nil {
		return operatorDomainResponse{}, err
	}
	return a.getOperatorDomain(ctx, p, &in.operatorDomainInput)
}

type accountResponse struct {
	ID        db.ID     `json:"id" doc:"The account's id."`
	Email     string    `json:"email" doc:"The customer's e-mail address." example:"customer@example.com"`
	Name      string    `json:"name" doc:"The customer's name; may be empty." example:"Example Ltd"`
	Status    string    `json:"status" enum:"active,suspended" doc:"Whether it may be used." example:"active"`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
}

func newAccountResponse(a account.Account) accountResponse {
	return accountResponse{a.ID, a.Email, a.Name, a.Status, utcTime(a.CreatedAt)}
}

func (a *API) listAccounts(ctx context.Context, _ account.Principal, in *pageParams) (listResponse[accountResponse], error) {
	read := func(at db.Page) ([]account.Account, bool, error) { return a.Accounts.List(ctx, at) }
	return listPage(in, read, newAccountResponse, func(a account.Account) db.ID { return a.ID })
}

type createAccountRequest struct {
	Email string `json:"email" required:"true" doc:"The customer's e-mail address." example:"customer@example.com"`
	Name  string `json:"name,omitempty" doc:"The customer's name, at most 200 bytes." example:"Example Ltd"`
}

type createAccountInput struct {
	Body createAccountRequest
}

func (a *API) createAccount(ctx context.Context, _ account.Principal, in *createAccountInput) (accountResponse, error) {
	made, err := a.Accounts.Create(ctx, in.Body.Email, in.Body.Name)
	return newAccountResponse(made), err
}

func (a *API) getAccount(ctx context.Context, _ account.Principal, in *idParams) (accountResponse, error) {
	id, err := a.accountID(ctx, in)
	if err != nil {
		return accountResponse{}, err
	}
	found, err := a.Accounts.Get(ctx, id)
	return newAccountResponse(found), err
}

type updateAccountRequest struct {
	Status string `json:"status" required:"true" enum:"active,suspended" doc:"Whether it may be used." example:"suspended"`
}

type updateAccountInput struct {
	idParams
	Body updateAccountRequest
}

func (a *API) updateAccount(ctx context.Context, p account.Principal, in *updateAccountInput) (accountResponse, error) {
	id, err := a.accountID(ctx, &in.idParams)
	if err != nil {
		return accountResponse{}, err
	}
	if err := a.Accounts.SetStatus(ctx, id, in.Body.Status); err != nil {
		return accountResponse{}, err
	}
	return a.getAccount(ctx, p, &in.idParams)
}
