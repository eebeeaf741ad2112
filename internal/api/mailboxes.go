// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

type mailboxResponse struct {
	ID          db.ID              `json:"id" doc:"The mailbox's id."`
	DomainID    db.ID              `json:"domain_id" doc:"The domain it lives under."`
	Address     string             `json:"address" doc:"Its address, which is the user name too." example:"ann@example.com"`
	LocalPart   string             `json:"local_part" doc:"What stands before the @." example:"ann"`
	DisplayName string             `json:"display_name" doc:"The person's name, or empty." example:"Ann Lee"`
	Password    apijson.NullString `json:"password" doc:"Generated, and shown only in the response that created it; else null."`
	QuotaMB     int64              `json:"quota_mb" doc:"How much it may hold, in megabytes of 1,048,576 bytes." example:"1024"`
	UsedBytes   int64              `json:"used_bytes" doc:"How much of the quota is used, in bytes. Each message counts for its size, but for 1,024 bytes at least."`
	Messages    int64              `json:"messages" doc:"How many messages it holds."`
	Status      string             `json:"status" enum:"active,suspended" doc:"A suspended mailbox can't be signed in to."`
	ForwardTo   []string           `json:"forward_to" doc:"Where its mail goes as well; empty for nowhere." example:"ann@example.org"`
	KeepCopy    bool               `json:"keep_copy" doc:"Whether what is forwarded is kept here too."`
	SpamFilter  string             `json:"spam_filter" enum:"off,lenient,normal,strict" doc:"How much the spam filter may say about mail to it." example:"normal"`
	CreatedAt   time.Time          `json:"created_at" doc:"When it was made."`
	DeletedAt   *time.Time         `json:"deleted_at" doc:"When it was deleted; null for those in use."`
}

func newMailboxResponse(m mailbox.Mailbox) mailboxResponse {
	at := strings.LastIndexByte(m.Address, '@')
	return mailboxResponse{
		ID: m.ID, DomainID: m.Domain, Address: m.Address, LocalPart: m.Address[:at], DisplayName: m.DisplayName,
		QuotaMB: m.Quota >> 20, UsedBytes: m.Used, Messages: m.Messages, Status: m.Status, SpamFilter: string(m.SpamFilter),
		ForwardTo: append([]string{}, m.ForwardTo()...), KeepCopy: m.KeepCopy, CreatedAt: utcTime(m.CreatedAt), DeletedAt: optionalTime(m.DeletedAt),
	}
}

type createMailboxRequest struct {
	DomainID    string  `json:"domain_id" format:"uuid" doc:"A domain whose ownership is verified."`
	LocalPart   string  `json:"local_part" doc:"What stands before the @." example:"ann"`
	Password    *string `json:"password,omitempty" doc:"At least 8 characters with upper case, lower case, digit and special character; generated when left out."`
	DisplayName string  `json:"display_name,omitempty" doc:"The person's name." example:"Ann Lee"`
	QuotaMB     *int    `json:"quota_mb,omitempty" minimum:"1" doc:"1024 when left out." example:"2048"`
}

func (r createMailboxRequest) mailbox(domain db.ID) mailbox.CreateParams {
	return mailbox.CreateParams{Domain: domain, LocalPart: r.LocalPart, Password: r.Password, DisplayName: r.DisplayName, QuotaMB: r.QuotaMB}
}

type createMailboxInput struct{ Body createMailboxRequest }

func (a *API) createMailbox(ctx context.Context, p account.Principal, in *createMailboxInput) (mailboxResponse, error) {
	const noDomain = "There is no domain of yours with this id."
	domainID, err := a.domainID(ctx, p, &idParams{in.Body.DomainID})
	unknown := notFoundAsFieldFault(err, "domain_id", noDomain)
	if unknown != nil {
		if !fault.Is(unknown, fault.Invalid) {
			return mailboxResponse{}, unknown
		}
		domainID = 0 // matches nothing; the other fields are still checked
	}
	m, password, err := a.Mailboxes.Create(ctx, p.Account, in.Body.mailbox(domainID))
	if err = notFoundAsFieldFault(err, "domain_id", noDomain); err != nil {
		var bad fault.FieldErrors
		for _, found := range []error{unknown, err} {
			if err := mergeFaults(&bad, found); err != nil {
				return mailboxResponse{}, err
			}
		}
		return mailboxResponse{}, bad.Err()
	}
	out := newMailboxResponse(m)
	out.Password = apijson.NullString(password)
	return out, nil
}

// notFoundAsFieldFault turns a not-found fault into a fault of the field that named the resource.
func notFoundAsFieldFault(err error, field, message string) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	var bad fault.FieldErrors
	bad.Add(field, "not_found", "%s", message)
	return bad.Err()
}

type listMailboxesInput struct {
	pageParams
	DomainID []string `query:"domain_id" format:"uuid" doc:"Only those of these domains; separated by commas, at most 10."`
	Deleted  bool     `query:"deleted" doc:"Those that can be restored, instead of those that live."`
}

func (a *API) listMailboxes(ctx context.Context, p account.Principal, in *listMailboxesInput) (listResponse[mailboxResponse], error) {
	var bad fault.FieldErrors
	only, visible, err := a.keyDomainID(ctx, p)
	if err != nil {
		return listResponse[mailboxResponse]{}, err
	}
	domains, err := a.filterIDs(ctx, p, &bad, "domain_id", in.DomainID, "There is no domain of yours with this id.", a.domainID)
	if err != nil {
		return listResponse[mailboxResponse]{}, err
	}
	id := func(m mailbox.Mailbox) db.ID { return m.ID }
	read := readAny(domains, only, id, func(domain db.ID) pageReader[mailbox.Mailbox] {
		return func(at db.Page) ([]mailbox.Mailbox, bool, error) {
			if !visible {
				return nil, false, nil
			}
			return a.Mailboxes.List(ctx, p.Account, mailbox.Filter{Deleted: in.Deleted, Domain: domain}, at)
		}
	})
	at, err := in.dbPage(read.exists(id))
	if err := mergeFaults(&bad, err); err != nil {
		return listResponse[mailboxResponse]{}, err
	}
	if err := bad.Err(); err != nil {
		return listResponse[mailboxResponse]{}, err
	}
	return listPageAt(&in.pageParams, at, read, newMailboxResponse, id)
}

// mailboxID parses the path's id. A domain-restricted key can't see the mailboxes of other domains.
func (a *API) mailboxID(ctx context.Context, p account.Principal, in *idParams) (db.ID, error) {
	id, err := db.ParseID(in.ID)
	if err != nil || p.Domain == "" {
		return id, err
	}
	m, err := a.Mailboxes.Get(ctx, p.Account, id)
	if err == nil && !strings.HasSuffix(m.Address, "@"+p.Domain) {
		err = errNotFound
	}
	return id, err
}

func (a *API) getMailbox(ctx context.Context, p account.Principal, in *idParams) (mailboxResponse, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return mailboxResponse{}, err
	}
	m, err := a.Mailboxes.Get(ctx, p.Account, id)
	return convertResult(m, err, newMailboxResponse)
}

type updateMailboxRequest struct {
	DisplayName *string `json:"display_name,omitempty" doc:"The person's name." example:"Ann Lee"`
	QuotaMB     *int    `json:"quota_mb,omitempty" minimum:"1" doc:"How much it may hold, in megabytes." example:"2048"`
	Status      *string `json:"status,omitempty" enum:"active,suspended" doc:"A suspended mailbox can't be signed in to."`
	// nil leaves the value unchanged.
	ForwardTo  []string `json:"forward_to,omitempty" doc:"Where its mail goes as well: at most 10 addresses, here or elsewhere; an empty list ends that." example:"ann@example.org"`
	KeepCopy   *bool    `json:"keep_copy,omitempty" doc:"Whether what is forwarded is kept here too, which it is at first."`
	SpamFilter *string  `json:"spam_filter,omitempty" enum:"off,lenient,normal,strict" doc:"How much the spam filter may say about mail to this mailbox: off files nothing in Junk for it, lenient only what has twice the score that makes mail spam (with rspamd: what it would refuse), normal what the filter calls spam, strict what has half of that score (with rspamd: a fifth of the score that it refuses). off and lenient refuse nothing. With spam_filtering off for the domain nothing is filtered whatever is chosen here. Viruses are always refused, and what the filter calls spam is never forwarded." example:"lenient"`
}

type updateMailboxInput struct {
	idParams
	Body updateMailboxRequest
}

func (a *API) updateMailbox(ctx context.Context, p account.Principal, in *updateMailboxInput) (mailboxResponse, error) {
	id, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return mailboxResponse{}, err
	}
	c := mailbox.Change{DisplayName: in.Body.DisplayName, QuotaMB: in.Body.QuotaMB, Status: in.Body.Status, KeepCopy: in.Body.KeepCopy, SpamFilter: (*mailbox.SpamFilter)(in.Body.SpamFilter)}
	if in.Body.ForwardTo != nil {
		c.ForwardTo = &in.Body.ForwardTo
	}
	m, err := a.Mailboxes.Update(ctx, p.Account, id, c)
	return convertResult(m, err, newMailboxResponse)
}

func (a *API) deleteMailbox(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Mailboxes.Delete(ctx, p.Account, id)
}

func (a *API) restoreMailbox(ctx context.Context, p account.Principal, in *idParams) (mailboxResponse, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return mailboxResponse{}, err
	}
	if p.Domain != "" {
		// Get doesn't return deleted mailboxes.
		found, _, err := a.Mailboxes.List(ctx, p.Account, mailbox.Filter{Deleted: true}, db.Page{After: id + 1, Limit: 1})
		if err != nil {
			return mailboxResponse{}, err
		}
		if len(found) == 0 || found[0].ID != id || !strings.HasSuffix(found[0].Address, "@"+p.Domain) {
			return mailboxResponse{}, errNotFound
		}
	}
	m, err := a.Mailboxes.Restore(ctx, p.Account, id)
	return convertResult(m, err, newMailboxResponse)
}

type setPasswordRequest struct {
	Password *string `json:"password,omitempty" doc:"At least 8 characters with upper case, lower case, digit and special character; generated when left out."`
}

type setPasswordInput struct {
	idParams
	Body *setPasswordRequest
}

type passwordResponse struct {
	Password apijson.NullString `json:"password" doc:"Generated, and shown only in the response that created it; else null."`
}

func (a *API) setMailboxPassword(ctx context.Context, p account.Principal, in *setPasswordInput) (passwordResponse, error) {
	id, err := a.mailboxID(ctx, p, &in.idParams)
	if err != nil {
		return passwordResponse{}, err
	}
	var given *string
	if in.Body != nil {
		given = in.Body.Password
	}
	password, err := a.Mailboxes.SetPassword(ctx, p.Account, id, given)
	return convertResult(password, err, func(s string) passwordResponse { return passwordResponse{apijson.NullString(s)} })
}
