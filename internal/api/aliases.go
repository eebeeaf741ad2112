// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// aliasRoutes registers the alias endpoints.
func (a *API) aliasRoutes(r *router) {
	handle(r, operation{method: "POST", path: "/aliases", id: "createAlias", validatesFirst: true, scope: "mailboxes.write", status: 201, mayConflict: true,
		summary: "Make an alias", description: "An address without a password, whose mail goes to one or several mailboxes, each of which may also send as it, and to addresses elsewhere. " +
			"*@example.com is the domain's catch-all: it takes what no mailbox and no other alias does. Plus-tags work as for mailboxes. " +
			"What goes elsewhere is sent on as it came, with a return path that leads its reports back to the original sender, and counts for your limits. " +
			"Spam, and mail that the domain of its author disowns (DMARC), is not sent on."}, a.createAlias)
	handle(r, operation{method: "GET", path: "/aliases", id: "listAliases", scope: "mailboxes.read",
		summary: "List aliases", description: "Newest first."}, a.listAliases)
	handle(r, operation{method: "GET", path: "/aliases/{id}", id: "getAlias", scope: "mailboxes.read",
		summary: "Show an alias", description: "With its targets."}, a.getAlias)
	handle(r, operation{method: "PATCH", path: "/aliases/{id}", id: "updateAlias", validatesFirst: true, scope: "mailboxes.write",
		summary: "Change where an alias leads", description: "The targets given take the place of the former ones, for what arrives from now on."}, a.updateAlias)
	handle(r, operation{method: "DELETE", path: "/aliases/{id}", id: "deleteAlias", scope: "mailboxes.write", status: 204,
		summary: "Delete an alias", description: "Its address takes no more mail and is free for another. What it has brought stays where it is."}, a.deleteAlias)
}

type aliasResponse struct {
	ID        db.ID     `json:"id" doc:"The alias's id."`
	DomainID  db.ID     `json:"domain_id" doc:"The domain it lives under."`
	Address   string    `json:"address" doc:"Its address; * before the @ for the domain's catch-all." example:"info@example.com"`
	Targets   []string  `json:"targets" doc:"The addresses that its mail goes to: of mailboxes, and elsewhere. Mailboxes that are deleted are left out." example:"ann@example.com"`
	CreatedAt time.Time `json:"created_at" doc:"When it was made."`
	UpdatedAt time.Time `json:"updated_at" doc:"When its targets were last changed."`
}

func newAliasResponse(a mailbox.Alias) aliasResponse {
	out := aliasResponse{ID: a.ID, DomainID: a.Domain, Address: a.Address, Targets: []string{}, CreatedAt: utcTime(a.CreatedAt), UpdatedAt: utcTime(a.UpdatedAt)}
	for _, t := range a.Targets {
		out.Targets = append(out.Targets, t.String())
	}
	return out
}

type createAliasRequest struct {
	Address string   `json:"address" doc:"On a domain whose ownership is verified; * before the @ for all addresses that nothing else takes." example:"info@example.com"`
	Targets []string `json:"targets" minItems:"1" maxItems:"100" doc:"Ids or addresses of your mailboxes, and addresses elsewhere. postmaster and abuse need a mailbox." example:"ann@example.com"`
}

type createAliasInput struct{ Body createAliasRequest }

func (a *API) createAlias(ctx context.Context, p account.Principal, in *createAliasInput) (aliasResponse, error) {
	var bad fault.FieldErrors
	if at, err := address.Parse(in.Body.Address); err == nil && p.Domain != "" && at.Domain != p.Domain {
		bad.Add("address", "domain_restricted", "This API key acts for one domain only.")
	}
	if err := mergeFaults(&bad, a.checkTargetAccess(ctx, p, in.Body.Targets)); err != nil {
		return aliasResponse{}, err
	}
	if err := bad.Err(); err != nil {
		return aliasResponse{}, err
	}
	made, err := a.Mailboxes.CreateAlias(ctx, p.Account, in.Body.Address, in.Body.Targets)
	return convertResult(made, err, newAliasResponse)
}

// checkTargetAccess returns a fault for each target that a domain-restricted key can't see: a
// mailbox of another domain.
func (a *API) checkTargetAccess(ctx context.Context, p account.Principal, targets []string) error {
	if p.Domain == "" {
		return nil
	}
	found, err := a.Mailboxes.ParseTargets(ctx, p.Account, targets)
	if err != nil {
		return err
	}
	var bad fault.FieldErrors
	for i, t := range found {
		if t.Mailbox == 0 {
			continue
		}
		m, err := a.Mailboxes.Get(ctx, p.Account, t.Mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		if err != nil || !strings.HasSuffix(m.Address, "@"+p.Domain) {
			mailbox.AddTargetFault(&bad, i)
		}
	}
	return bad.Err()
}

type listAliasesInput struct {
	pageParams
	DomainID []string `query:"domain_id" format:"uuid" doc:"Only those of these domains; separated by commas, at most 10."`
}

func (a *API) listAliases(ctx context.Context, p account.Principal, in *listAliasesInput) (listResponse[aliasResponse], error) {
	var none listResponse[aliasResponse]
	var bad fault.FieldErrors
	only, ok, err := a.keyDomainID(ctx, p)
	if err != nil {
		return none, err
	}
	domains, err := a.filterIDs(ctx, p, &bad, "domain_id", in.DomainID, "There is no domain of yours with this id.", a.domainID)
	if err != nil {
		return none, err
	}
	id := func(a mailbox.Alias) db.ID { return a.ID }
	read := readAny(domains, only, id, func(domain db.ID) pageReader[mailbox.Alias] {
		return func(at db.Page) ([]mailbox.Alias, bool, error) {
			if !ok {
				return nil, false, nil
			}
			return a.Mailboxes.Aliases(ctx, p.Account, domain, at)
		}
	})
	at, err := in.dbPage(read.exists(id))
	if err := mergeFaults(&bad, err); err != nil {
		return none, err
	}
	if err := bad.Err(); err != nil {
		return none, err
	}
	return listPageAt(&in.pageParams, at, read, newAliasResponse, id)
}

// alias returns the alias that the path names. A domain-restricted key can't see the aliases of
// other domains.
func (a *API) alias(ctx context.Context, p account.Principal, in *idParams) (mailbox.Alias, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return mailbox.Alias{}, err
	}
	found, err := a.Mailboxes.GetAlias(ctx, p.Account, id)
	if err == nil && p.Domain != "" && !strings.HasSuffix(found.Address, "@"+p.Domain) {
		return mailbox.Alias{}, errNotFound
	}
	return found, err
}

func (a *API) getAlias(ctx context.Context, p account.Principal, in *idParams) (aliasResponse, error) {
	found, err := a.alias(ctx, p, in)
	return convertResult(found, err, newAliasResponse)
}

type updateAliasRequest struct {
	Targets []string `json:"targets" minItems:"1" maxItems:"100" doc:"Ids or addresses of your mailboxes, and addresses elsewhere. postmaster and abuse need a mailbox." example:"ann@example.com"`
}

type updateAliasInput struct {
	idParams
	Body updateAliasRequest
}

func (a *API) updateAlias(ctx context.Context, p account.Principal, in *updateAliasInput) (aliasResponse, error) {
	found, err := a.alias(ctx, p, &in.idParams)
	if err == nil {
		err = a.checkTargetAccess(ctx, p, in.Body.Targets)
	}
	if err == nil {
		found, err = a.Mailboxes.UpdateAlias(ctx, p.Account, found.ID, in.Body.Targets)
	}
	return convertResult(found, err, newAliasResponse)
}

func (a *API) deleteAlias(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	found, err := a.alias(ctx, p, in)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Mailboxes.DeleteAlias(ctx, p.Account, found.ID)
}
