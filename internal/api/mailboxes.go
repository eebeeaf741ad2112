// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

type mailboxAnswer struct {
	ID          db.ID      `json:"id"`
	DomainID    db.ID      `json:"domain_id"`
	Address     string     `json:"address"`
	LocalPart   string     `json:"local_part"`
	DisplayName string     `json:"display_name"`
	Password    string     `json:"password,omitempty" doc:"Generated, and shown in this answer only."`
	QuotaMB     int64      `json:"quota_mb"`
	UsedBytes   int64      `json:"used_bytes"`
	Messages    int64      `json:"messages"`
	Status      string     `json:"status" enum:"active,suspended"`
	CreatedAt   time.Time  `json:"created_at"`
	DeletedAt   *time.Time `json:"deleted_at,omitempty"`
}

func showMailbox(m mailbox.Mailbox) mailboxAnswer {
	at := strings.LastIndexByte(m.Address, '@')
	return mailboxAnswer{
		ID: m.ID, DomainID: m.Domain, Address: m.Address, LocalPart: m.Address[:at], DisplayName: m.DisplayName,
		QuotaMB: m.Quota >> 20, UsedBytes: m.Used, Messages: m.Messages, Status: m.Status,
		CreatedAt: m.CreatedAt, DeletedAt: optionalTime(m.DeletedAt),
	}
}

type createMailboxInput struct {
	Body struct {
		DomainID    string  `json:"domain_id" doc:"A domain whose ownership is verified."`
		LocalPart   string  `json:"local_part" doc:"What stands before the @."`
		Password    *string `json:"password,omitempty" doc:"At least 8 characters with upper case, lower case, digit and special character; generated when left out."`
		DisplayName string  `json:"display_name,omitempty"`
		QuotaMB     *int    `json:"quota_mb,omitempty" doc:"1024 when left out."`
	}
}

func (a *API) createMailbox(ctx context.Context, p account.Principal, in *createMailboxInput) (*body[mailboxAnswer], error) {
	domainID, err := a.domainID(ctx, p, &one{in.Body.DomainID})
	if err != nil {
		return nil, fieldFault(err, "domain_id", "There is no domain of yours with this id.")
	}
	m, password, err := a.Mailboxes.Create(ctx, p.Account, mailbox.New{
		Domain: domainID, LocalPart: in.Body.LocalPart, Password: in.Body.Password, DisplayName: in.Body.DisplayName, QuotaMB: in.Body.QuotaMB,
	})
	if err != nil {
		return nil, err
	}
	out := showMailbox(m)
	out.Password = password
	return &body[mailboxAnswer]{out}, nil
}

// fieldFault turns a resource that is not there into a fault of the field
// that named it.
func fieldFault(err error, field, message string) error {
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	var bad fault.Fields
	bad.Add(field, "not_found", "%s", message)
	return bad.Err()
}

type listMailboxesInput struct {
	page
	DomainID string `query:"domain_id" doc:"Only those of this domain."`
	Deleted  bool   `query:"deleted" doc:"Those that can be restored, instead of those that live."`
}

func (a *API) listMailboxes(ctx context.Context, p account.Principal, in *listMailboxesInput) (*list[mailboxAnswer], error) {
	at, err := in.db()
	if err != nil {
		return nil, err
	}
	filter := mailbox.Filter{Deleted: in.Deleted}
	if in.DomainID != "" {
		if filter.Domain, err = a.domainID(ctx, p, &one{in.DomainID}); err != nil {
			return nil, fieldFault(err, "domain_id", "There is no domain of yours with this id.")
		}
	} else if p.Domain != "" {
		return nil, errOneDomain
	}
	found, more, err := a.Mailboxes.List(ctx, p.Account, filter, at)
	if err != nil {
		return nil, err
	}
	return answer(found, more, showMailbox, func(m mailbox.Mailbox) db.ID { return m.ID }), nil
}

// mailboxID reads the path's id; for a key of one domain the mailboxes of
// others are not there.
func (a *API) mailboxID(ctx context.Context, p account.Principal, in *one) (db.ID, error) {
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

func (a *API) getMailbox(ctx context.Context, p account.Principal, in *one) (*body[mailboxAnswer], error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	m, err := a.Mailboxes.Get(ctx, p.Account, id)
	return shown(m, err, showMailbox)
}

type updateMailboxInput struct {
	one
	Body struct {
		DisplayName *string `json:"display_name,omitempty"`
		QuotaMB     *int    `json:"quota_mb,omitempty"`
		Status      *string `json:"status,omitempty" enum:"active,suspended"`
	}
}

func (a *API) updateMailbox(ctx context.Context, p account.Principal, in *updateMailboxInput) (*body[mailboxAnswer], error) {
	id, err := a.mailboxID(ctx, p, &in.one)
	if err != nil {
		return nil, err
	}
	m, err := a.Mailboxes.Update(ctx, p.Account, id, mailbox.Change{
		DisplayName: in.Body.DisplayName, QuotaMB: in.Body.QuotaMB, Status: in.Body.Status,
	})
	return shown(m, err, showMailbox)
}

func (a *API) deleteMailbox(ctx context.Context, p account.Principal, in *one) (*empty, error) {
	id, err := a.mailboxID(ctx, p, in)
	if err != nil {
		return nil, err
	}
	return &empty{}, a.Mailboxes.Delete(ctx, p.Account, id)
}

func (a *API) restoreMailbox(ctx context.Context, p account.Principal, in *one) (*body[mailboxAnswer], error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	if p.Domain != "" {
		return nil, errOneDomain
	}
	m, err := a.Mailboxes.Restore(ctx, p.Account, id)
	return shown(m, err, showMailbox)
}

type setPasswordInput struct {
	one
	Body struct {
		Password *string `json:"password,omitempty" doc:"Generated when left out."`
	}
}

type passwordAnswer struct {
	Password string `json:"password,omitempty" doc:"Generated, and shown in this answer only."`
}

func (a *API) setPassword(ctx context.Context, p account.Principal, in *setPasswordInput) (*body[passwordAnswer], error) {
	id, err := a.mailboxID(ctx, p, &in.one)
	if err != nil {
		return nil, err
	}
	password, err := a.Mailboxes.SetPassword(ctx, p.Account, id, in.Body.Password)
	return shown(password, err, func(s string) passwordAnswer { return passwordAnswer{s} })
}
