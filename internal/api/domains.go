// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
)

type recordResponse struct {
	Kind          string     `json:"kind" doc:"MX, SPF, DKIM, DMARC, OWNERSHIP, or a recommended one; of the service itself also ADDRESS and REVERSE." example:"MX"`
	Type          string     `json:"type" doc:"The DNS type." example:"MX"`
	Name          string     `json:"name" doc:"The name to publish it under." example:"example.com"`
	Value         string     `json:"value" doc:"The value to publish." example:"mail.example.net"`
	Priority      *int       `json:"priority" doc:"The preference of an MX record or the priority of an SRV record." example:"10"`
	TTL           int        `json:"ttl" doc:"Seconds." example:"3600"`
	Required      bool       `json:"required" doc:"Whether the domain is verified only with it; of the service itself whether it has to be published."`
	Status        string     `json:"status" enum:"pending,verified,failed,temporary_failure" doc:"What the last check found."`
	Observed      []string   `json:"observed" doc:"What the DNS said then."`
	Error         *string    `json:"error" doc:"What is wrong, and what to do; null if nothing is."`
	Note          *string    `json:"note" doc:"What the record of the service itself is for, or what a DKIM key that is new or no longer used is for and how long to keep it; else null."`
	LastCheckedAt *time.Time `json:"last_checked_at" doc:"When it was last looked for; null for never."`
}

type domainResponse struct {
	ID                db.ID             `json:"id" doc:"The domain's id."`
	Name              string            `json:"name" doc:"The name in ASCII (A-labels)." example:"example.com"`
	DisplayName       string            `json:"display_name" doc:"The name in Unicode." example:"example.com"`
	Status            string            `json:"status" enum:"pending,verified,degraded,failed,suspended" doc:"verified with all required records; degraded while one of them has gone; suspended by the operator of the service."`
	OwnershipStatus   string            `json:"ownership_status" enum:"pending,verified" doc:"Whether it is proven to be yours; mailboxes need that."`
	CanSend           bool              `json:"can_send" doc:"Whether mail can be sent from addresses on it."`
	CanSendReasons    []blockerResponse `json:"can_send_reasons" doc:"What keeps it from sending; empty if it can."`
	CanReceive        bool              `json:"can_receive" doc:"Whether mail to it comes here: it is delivered to its mailboxes and aliases."`
	CanReceiveReasons []blockerResponse `json:"can_receive_reasons" doc:"What keeps it from receiving; empty if it can."`
	Records           []recordResponse  `json:"records" doc:"The DNS records to publish."`
	DKIMRotationDays  int               `json:"dkim_rotation_days" doc:"After how many days in use DKIM keys are replaced; 0 for never." example:"90"`
	DMARCEnforcement  string            `json:"dmarc_enforcement" enum:"enforce,junk,off" doc:"What is done with mail to this domain that fails the DMARC policy of its author's domain: what that asks for, at most Junk, or nothing." example:"enforce"`
	SpamFiltering     string            `json:"spam_filtering" enum:"enforce,junk,off" doc:"What is done with mail to this domain that the spam filter objects to: what the filter asks for, at most Junk, or nothing." example:"enforce"`
	MTASTS            string            `json:"mta_sts" enum:"none,testing,enforce" doc:"The mode of the MTA-STS policy that is published for this domain (RFC 8461)." example:"testing"`
	CreatedAt         time.Time         `json:"created_at" doc:"When it was added."`
	VerifiedAt        *time.Time        `json:"verified_at" doc:"When it last became verified; null for never."`
	LastCheckedAt     *time.Time        `json:"last_checked_at" doc:"When its records were last looked for; null for never."`
	NextCheckAt       *time.Time        `json:"next_check_at" doc:"When they will be looked for again."`
}

// blockerResponse is a reason why a domain can't send or receive.
type blockerResponse struct {
	Reason string `json:"reason" enum:"ownership_not_verified,dkim_not_verified,mx_not_verified,suspended" doc:"A stable code." example:"mx_not_verified"`
	Detail string `json:"detail" doc:"The same in words, with what to do." example:"The MX record was not seen. Publish it as records shows it."`
}

var blockerDetails = map[domain.Blocker]string{
	domain.BlockedByOwnership:  "The OWNERSHIP record was not seen. Publish it as records shows it.",
	domain.BlockedByDKIM:       "No DKIM record was seen. Publish one as records shows it.",
	domain.BlockedByMX:         "The MX record was not seen. Publish it as records shows it.",
	domain.BlockedBySuspension: "The operator of the service has suspended the domain.",
}

func newBlockerResponses(blockers []domain.Blocker) []blockerResponse {
	all := []blockerResponse{}
	for _, b := range blockers {
		all = append(all, blockerResponse{string(b), blockerDetails[b]})
	}
	return all
}

func newRecordResponse(r domain.Record) recordResponse {
	return recordResponse{
		Kind: r.Kind, Type: r.Type, Name: r.Name, Value: r.Value, Priority: r.Priority, TTL: r.TTL, Required: r.Required,
		Status: r.Status, Observed: append([]string{}, r.Observed...), Error: optionalString(r.Error), Note: optionalString(r.Note), LastCheckedAt: optionalTimePtr(r.LastCheckedAt),
	}
}

func newDomainResponse(d domain.Domain) domainResponse {
	out := domainResponse{
		ID: d.ID, Name: d.Name, DisplayName: d.DisplayName, Status: d.Status, OwnershipStatus: d.OwnershipStatus,
		CanSend: d.Sends, CanSendReasons: newBlockerResponses(d.SendBlockers), CanReceive: d.Receives, CanReceiveReasons: newBlockerResponses(d.ReceiveBlockers),
		Records: []recordResponse{}, DKIMRotationDays: d.RotationDays, DMARCEnforcement: string(d.DMARCEnforcement), SpamFiltering: string(d.SpamFiltering), MTASTS: string(d.STS), CreatedAt: utcTime(d.CreatedAt), VerifiedAt: optionalTime(d.VerifiedAt),
		LastCheckedAt: optionalTime(d.CheckedAt), NextCheckAt: optionalTime(d.NextCheckAt),
	}
	for _, r := range d.Records {
		out.Records = append(out.Records, newRecordResponse(r))
	}
	return out
}

func optionalTimePtr(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return optionalTime(*t)
}

type createDomainRequest struct {
	Name string `json:"name" doc:"The domain name to add, in ASCII or Unicode." example:"example.com"`
}

type createDomainInput struct{ Body createDomainRequest }

func (a *API) createDomain(ctx context.Context, p account.Principal, in *createDomainInput) (domainResponse, error) {
	if p.Domain != "" {
		return domainResponse{}, errDomainRestricted
	}
	d, err := a.Domains.Create(ctx, p.Account, in.Body.Name)
	return convertResult(d, asFieldFault(err, "name"), newDomainResponse)
}

// convertResult converts a package's result to a response.
func convertResult[S, T any](s S, err error, show func(S) T) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return show(s), nil
}

func (a *API) listDomains(ctx context.Context, p account.Principal, in *pageParams) (listResponse[domainResponse], error) {
	id := func(d domain.Domain) db.ID { return d.ID }
	return listPage(in, func(at db.Page) ([]domain.Domain, bool, error) {
		if p.Domain == "" {
			return a.Domains.List(ctx, p.Account, at)
		}
		d, ok, err := a.keyDomain(ctx, p)
		if err != nil || !ok {
			return nil, false, err
		}
		all, more := db.Paginate([]domain.Domain{d}, at, id)
		return all, more, nil
	}, newDomainResponse, id)
}

func (a *API) getDomain(ctx context.Context, p account.Principal, in *idParams) (domainResponse, error) {
	return a.withDomain(ctx, p, in, a.Domains.Get)
}

// withDomain calls a function with one of the account's domains and returns the response.
func (a *API) withDomain(ctx context.Context, p account.Principal, in *idParams,
	do func(ctx context.Context, account, id db.ID) (domain.Domain, error)) (domainResponse, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return domainResponse{}, err
	}
	d, err := do(ctx, p.Account, id)
	return convertResult(d, err, newDomainResponse)
}

// domainID parses the path's id. A domain-restricted key can't see other domains.
func (a *API) domainID(ctx context.Context, p account.Principal, in *idParams) (db.ID, error) {
	id, err := db.ParseID(in.ID)
	if err != nil || p.Domain == "" {
		return id, err
	}
	d, err := a.Domains.Get(ctx, p.Account, id)
	if err == nil && d.Name != p.Domain {
		err = errNotFound
	}
	return id, err
}

func (a *API) deleteDomain(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Domains.Delete(ctx, p.Account, id)
}

func (a *API) verifyDomain(ctx context.Context, p account.Principal, in *idParams) (domainResponse, error) {
	return a.withDomain(ctx, p, in, a.Domains.VerifyOwnership)
}

func (a *API) verifyDomainDNS(ctx context.Context, p account.Principal, in *idParams) (domainResponse, error) {
	return a.withDomain(ctx, p, in, a.Domains.CheckDNS)
}

type ownershipResponse struct {
	ID              db.ID          `json:"id" doc:"The domain's id."`
	Name            string         `json:"name" doc:"The name in ASCII (A-labels)." example:"example.com"`
	OwnershipStatus string         `json:"ownership_status" enum:"pending,verified" doc:"Whether the record was seen."`
	Record          recordResponse `json:"record" doc:"The TXT record that proves that the domain is yours."`
}

func (a *API) getDomainVerification(ctx context.Context, p account.Principal, in *idParams) (ownershipResponse, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return ownershipResponse{}, err
	}
	d, err := a.Domains.Get(ctx, p.Account, id)
	return convertResult(d, err, func(d domain.Domain) ownershipResponse {
		out := ownershipResponse{ID: d.ID, Name: d.Name, OwnershipStatus: d.OwnershipStatus}
		for _, r := range d.Records {
			if r.Kind == domain.KindOwnership {
				out.Record = newRecordResponse(r)
			}
		}
		return out
	})
}

func (a *API) getDomainZone(ctx context.Context, p account.Principal, in *idParams) ([]byte, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	text, err := a.Domains.Zone(ctx, p.Account, id)
	return []byte(text), err
}
