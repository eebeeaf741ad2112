// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
)

type recordAnswer struct {
	Kind          string     `json:"kind" doc:"MX, SPF, DKIM, DMARC, OWNERSHIP, or a recommended one."`
	Type          string     `json:"type" doc:"The DNS type."`
	Name          string     `json:"name"`
	Value         string     `json:"value"`
	Priority      *int       `json:"priority,omitempty"`
	TTL           int        `json:"ttl"`
	Required      bool       `json:"required"`
	Status        string     `json:"status" enum:"pending,verified,failed,temporary_failure"`
	Observed      []string   `json:"observed" nullable:"false" doc:"What the DNS says now."`
	Error         *string    `json:"error" doc:"What is wrong, and what to do."`
	LastCheckedAt *time.Time `json:"last_checked_at"`
}

type domainAnswer struct {
	ID              db.ID          `json:"id"`
	Name            string         `json:"name"`
	DisplayName     string         `json:"display_name" doc:"The name in Unicode."`
	Status          string         `json:"status" enum:"pending,verified,degraded,failed,suspended"`
	OwnershipStatus string         `json:"ownership_status" enum:"pending,verified"`
	Records         []recordAnswer `json:"records" nullable:"false"`
	CreatedAt       time.Time      `json:"created_at"`
	VerifiedAt      *time.Time     `json:"verified_at"`
	LastCheckedAt   *time.Time     `json:"last_checked_at"`
	NextCheckAt     *time.Time     `json:"next_check_at"`
}

func showRecord(r domain.Record) recordAnswer {
	return recordAnswer{
		Kind: r.Kind, Type: r.Type, Name: r.Name, Value: r.Value, Priority: r.Priority, TTL: r.TTL, Required: r.Required,
		Status: r.Status, Observed: append([]string{}, r.Observed...), Error: optional(r.Error), LastCheckedAt: r.LastCheckedAt,
	}
}

func showDomain(d domain.Domain) domainAnswer {
	out := domainAnswer{
		ID: d.ID, Name: d.Name, DisplayName: d.DisplayName, Status: d.Status, OwnershipStatus: d.OwnershipStatus,
		Records: []recordAnswer{}, CreatedAt: d.CreatedAt, VerifiedAt: optionalTime(d.VerifiedAt),
		LastCheckedAt: optionalTime(d.CheckedAt), NextCheckAt: optionalTime(d.NextCheckAt),
	}
	for _, r := range d.Records {
		out.Records = append(out.Records, showRecord(r))
	}
	return out
}

type createDomainInput struct {
	Body struct {
		Name string `json:"name" doc:"The domain name to add." example:"example.com"`
	}
}

func (a *API) createDomain(ctx context.Context, p account.Principal, in *createDomainInput) (*body[domainAnswer], error) {
	if p.Domain != "" {
		return nil, errOneDomain
	}
	d, err := a.Domains.Create(ctx, p.Account, in.Body.Name)
	return shown(d, err, showDomain)
}

// shown wraps what a package returned.
func shown[S, T any](s S, err error, show func(S) T) (*body[T], error) {
	if err != nil {
		return nil, err
	}
	return &body[T]{show(s)}, nil
}

func (a *API) listDomains(ctx context.Context, p account.Principal, in *page) (*list[domainAnswer], error) {
	at, err := in.db()
	if err != nil {
		return nil, err
	}
	domains, more, err := a.Domains.List(ctx, p.Account, at)
	if err != nil {
		return nil, err
	}
	return answer(domains, more, showDomain, func(d domain.Domain) db.ID { return d.ID }), nil
}

func (a *API) getDomain(ctx context.Context, p account.Principal, in *one) (*body[domainAnswer], error) {
	return a.onDomain(ctx, p, in, a.Domains.Get)
}

// onDomain does something with one of the account's domains.
func (a *API) onDomain(ctx context.Context, p account.Principal, in *one,
	do func(ctx context.Context, account, id db.ID) (domain.Domain, error)) (*body[domainAnswer], error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	d, err := do(ctx, p.Account, id)
	return shown(d, err, showDomain)
}

// domainID reads the path's id; for a key of one domain all others are not
// there.
func (a *API) domainID(ctx context.Context, p account.Principal, in *one) (db.ID, error) {
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

func (a *API) deleteDomain(ctx context.Context, p account.Principal, in *one) (*empty, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	return &empty{}, a.Domains.Delete(ctx, p.Account, id)
}

func (a *API) verifyDomain(ctx context.Context, p account.Principal, in *one) (*body[domainAnswer], error) {
	return a.onDomain(ctx, p, in, a.Domains.VerifyOwnership)
}

func (a *API) verifyDNS(ctx context.Context, p account.Principal, in *one) (*body[domainAnswer], error) {
	return a.onDomain(ctx, p, in, a.Domains.CheckDNS)
}

type ownershipAnswer struct {
	ID              db.ID        `json:"id"`
	Name            string       `json:"name"`
	OwnershipStatus string       `json:"ownership_status" enum:"pending,verified"`
	Record          recordAnswer `json:"record"`
}

func (a *API) showOwnership(ctx context.Context, p account.Principal, in *one) (*body[ownershipAnswer], error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	d, err := a.Domains.Get(ctx, p.Account, id)
	return shown(d, err, func(d domain.Domain) ownershipAnswer {
		out := ownershipAnswer{ID: d.ID, Name: d.Name, OwnershipStatus: d.OwnershipStatus}
		for _, r := range d.Records {
			if r.Kind == domain.Ownership {
				out.Record = showRecord(r)
			}
		}
		return out
	})
}

type zoneAnswer struct {
	ContentType string `header:"Content-Type"`
	Body        []byte `contentType:"text/dns"`
}

func (a *API) domainZone(ctx context.Context, p account.Principal, in *one) (*zoneAnswer, error) {
	id, err := a.domainID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	text, err := a.Domains.Zone(ctx, p.Account, id)
	if err != nil {
		return nil, err
	}
	return &zoneAnswer{"text/dns; charset=utf-8", []byte(text)}, nil
}
