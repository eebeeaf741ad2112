// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
)

type dkimKeyResponse struct {
	ID        db.ID          `json:"id" doc:"The key's id."`
	Selector  string         `json:"selector" doc:"Where its record stands: SELECTOR._domainkey.DOMAIN." example:"s1"`
	Algorithm string         `json:"algorithm" enum:"rsa,ed25519" doc:"Its kind."`
	Status    string         `json:"status" enum:"pending,active,retiring,retired" doc:"pending until its record was seen; active while mail is signed with it; retiring while it stays published after another took its place; retired when it was destroyed and its record can be removed."`
	Origin    string         `json:"origin" enum:"service,own" doc:"Who made it: the service or you."`
	Record    recordResponse `json:"record" doc:"The TXT record to publish, or to remove when it is retired."`
	CreatedAt time.Time      `json:"created_at" doc:"When it was made or added."`
	ActiveAt  *time.Time     `json:"active_at" doc:"Since when it has been used; null for never."`
	KeepUntil *time.Time     `json:"keep_until" doc:"Until when the record of a retiring key must stay; else null."`
	RetiredAt *time.Time     `json:"retired_at" doc:"When it was destroyed; else null. Retired keys are listed for 90 days."`
}

func newDKIMKeyResponse(k domain.DKIMKey) dkimKeyResponse {
	origin := "service"
	if k.CustomerProvided {
		origin = "own"
	}
	return dkimKeyResponse{
		ID: k.ID, Selector: k.Selector, Algorithm: k.Algorithm, Status: k.State, Origin: origin, Record: newRecordResponse(k.Record),
		CreatedAt: utcTime(k.CreatedAt), ActiveAt: optionalTime(k.ActiveAt), KeepUntil: optionalTime(k.PublishUntil), RetiredAt: optionalTime(k.RetiredAt),
	}
}

func (a *API) dkimRoutes(r *router) {
	handle(r, operation{method: "PATCH", path: "/domains/{id}", id: "updateDomain", validatesFirst: true, scope: "domains.write",
		summary: "Change a domain's settings", description: "Only what is given is changed."}, a.updateDomain)
	handle(r, operation{method: "GET", path: "/domains/{id}/dkim", id: "listDKIMKeys", scope: "domains.read",
		summary: "List a domain's DKIM keys", description: "Newest first. The private halves are never shown."}, a.listDKIMKeys)
	handle(r, operation{method: "POST", path: "/domains/{id}/dkim", id: "addDKIMKey", validatesFirst: true, scope: "domains.write", status: 201, mayConflict: true,
		summary: "Bring your own DKIM key", description: "Its record joins those of the domain. Once it was seen in the DNS, mail is signed with this key, " +
			"and the former one of its algorithm stays published for 7 days. The schedule of rotation leaves it alone."}, a.addDKIMKey)
	handle(r, operation{method: "POST", path: "/domains/{id}/dkim/rotate", id: "rotateDKIM", scope: "domains.write", mayConflict: true,
		summary: "Rotate a domain's DKIM keys", description: "Makes new keys under new selectors for the algorithms in use, or for the one that is given. Their records join those of the domain; " +
			"nothing else changes until they were seen in the DNS. Then mail is signed with them; the old ones stay published for 7 days. " +
			"While a new key waits to be seen another rotation is a conflict."}, a.rotateDKIM)
	handle(r, operation{method: "DELETE", path: "/domains/{id}/dkim/{key}", id: "deleteDKIMKey", scope: "domains.write", status: 204, mayConflict: true,
		summary: "Delete a DKIM key", description: "It is destroyed at once, whatever its state. Mail that it signed can't be verified once its record is gone, so rotate instead unless the key is compromised. " +
			"The last key that the domain can sign with can't be deleted."}, a.deleteDKIMKey)
}

type updateDomainRequest struct {
	DKIMRotationDays *int    `json:"dkim_rotation_days,omitempty" minimum:"0" maximum:"3650" doc:"After how many days in use DKIM keys are replaced by new ones, 7 at least; 0 for never. Watch the domain's records: the new keys must be published." example:"90"`
	DMARCEnforcement *string `json:"dmarc_enforcement,omitempty" enum:"enforce,junk,off" doc:"What is done with mail to this domain that fails the DMARC policy of its author's domain: enforce does what that asks for, junk refuses nothing but files it in Junk, off does nothing. The operator may have chosen something softer for all." example:"junk"`
	SpamFiltering    *string `json:"spam_filtering,omitempty" enum:"enforce,junk,off" doc:"What is done with mail to this domain that the spam filter objects to: enforce does what the filter asks for, junk refuses nothing but files it in Junk, off does nothing. Viruses are always refused." example:"junk"`
	MTASTS           *string `json:"mta_sts,omitempty" enum:"none,testing,enforce" doc:"The mode of the MTA-STS policy that is published for this domain: enforce makes other hosts deliver to it over TLS only, and only to a host with a certificate of our name; testing makes them report what that would have refused; none asks nothing. The id= of the domain's _mta-sts record changes with it: publish the new one, or others will not learn of the change." example:"enforce"`
}

type updateDomainInput struct {
	idParams
	Body updateDomainRequest
}

func (a *API) updateDomain(ctx context.Context, p account.Principal, in *updateDomainInput) (domainResponse, error) {
	return a.withDomain(ctx, p, &in.idParams, func(ctx context.Context, account, id db.ID) (domain.Domain, error) {
		return a.Domains.Update(ctx, account, id, domain.Change{
			RotationDays: in.Body.DKIMRotationDays, DMARCEnforcement: (*domain.Enforcement)(in.Body.DMARCEnforcement),
			SpamFiltering: (*domain.Enforcement)(in.Body.SpamFiltering), STS: (*domain.STSMode)(in.Body.MTASTS),
		})
	})
}

type listDKIMKeysInput struct {
	idParams
	pageParams
}

func (a *API) listDKIMKeys(ctx context.Context, p account.Principal, in *listDKIMKeysInput) (listResponse[dkimKeyResponse], error) {
	id, err := a.domainID(ctx, p, &in.idParams)
	if err != nil {
		return listResponse[dkimKeyResponse]{}, err
	}
	read := func(at db.Page) ([]domain.DKIMKey, bool, error) { return a.Domains.Keys(ctx, p.Account, id, at) }
	return listPage(&in.pageParams, read, newDKIMKeyResponse, func(k domain.DKIMKey) db.ID { return k.ID })
}

type addDKIMKeyRequest struct {
	Selector   string `json:"selector" doc:"Letters, digits, hyphens and dots; not one that the domain had before." example:"s1"`
	PrivateKey string `json:"private_key" doc:"In PEM: PKCS #8, or PKCS #1 for RSA; RSA of 2048 to 4096 bits, or Ed25519. It is kept encrypted and never shown." example:"-----BEGIN PRIVATE KEY-----\n…\n-----END PRIVATE KEY-----\n"`
}

type addDKIMKeyInput struct {
	idParams
	Body addDKIMKeyRequest
}

func (a *API) addDKIMKey(ctx context.Context, p account.Principal, in *addDKIMKeyInput) (dkimKeyResponse, error) {
	id, err := a.domainID(ctx, p, &in.idParams)
	if err != nil {
		return dkimKeyResponse{}, err
	}
	k, err := a.Domains.AddKey(ctx, p.Account, id, in.Body.Selector, in.Body.PrivateKey)
	return convertResult(k, err, newDKIMKeyResponse)
}

type rotateDKIMRequest struct {
	Algorithm string `json:"algorithm,omitempty" enum:"rsa,ed25519" doc:"The only one to renew, or to add; those in use when left out."`
}

type rotateDKIMInput struct {
	idParams
	Body *rotateDKIMRequest
}

func (a *API) rotateDKIM(ctx context.Context, p account.Principal, in *rotateDKIMInput) (listResponse[dkimKeyResponse], error) {
	id, err := a.domainID(ctx, p, &in.idParams)
	if err != nil {
		return listResponse[dkimKeyResponse]{}, err
	}
	algorithm := ""
	if in.Body != nil {
		algorithm = in.Body.Algorithm
	}
	keys, err := a.Domains.RotateKeys(ctx, p.Account, id, algorithm)
	if err != nil {
		return listResponse[dkimKeyResponse]{}, err
	}
	return wholeList(keys, newDKIMKeyResponse), nil
}

type dkimKeyInput struct {
	idParams
	Key string `path:"key" format:"uuid" doc:"The DKIM key's id."`
}

func (a *API) deleteDKIMKey(ctx context.Context, p account.Principal, in *dkimKeyInput) (emptyResponse, error) {
	id, err := a.domainID(ctx, p, &in.idParams)
	if err != nil {
		return emptyResponse{}, err
	}
	key, err := db.ParseID(in.Key)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Domains.DeleteKey(ctx, p.Account, id, key)
}
