// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"io"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// CheckKeySender returns fault.Denied unless the key's account may send from the domain
// of the address in MAIL FROM, with any local part. nil, the null sender, is
// allowed: the header's From decides.
func (o *Outbox) CheckKeySender(ctx context.Context, p account.Principal, from *address.Address) error {
	if from == nil {
		return nil
	}
	_, err := o.authorizeDomain(ctx, p, from.Domain)
	return err
}

// SubmitByKey accepts a message that a program handed in by SMTP with an API
// key for its password. It is API mail in the dress of a submission: with
// signed return paths, events in place of reports, and the account's
// suppressions; but it keeps its Message-ID.
func (o *Outbox) SubmitByKey(ctx context.Context, p account.Principal, s Submission, body io.Reader) (db.ID, error) {
	if err := o.CheckKeySender(ctx, p, s.From); err != nil {
		return 0, err
	}
	return o.submit(ctx, LimitSubject(p), s, body, func(r *row, h message.Header) ([]recipient, error) {
		from, sender, err := o.authorizeKeyAuthor(ctx, p, h)
		if err != nil {
			return nil, err
		}
		r.account, r.domain, r.returnPathHost, r.from = p.Account, sender.Domain, o.returnPathHost(sender), from.String()
		r.expires = r.created.Add(ExpiryAPI)
		if p.Domain != "" {
			r.onlyDomain = sender.Domain
		}
		r.ret, r.envid = "", "" // it has events
		if isServiceMail(h) {   // the account's people could not read it
			return nil, fault.New(fault.Invalid, "invalid_header", "The header Feedback-ID is not valid: the service alone writes this class.")
		}
		if h.Count("Feedback-ID") == 0 {
			f := o.feedbackIDField(p.Account, &validSend{from: from, class: "smtp"})
			r.addedFields = append(r.addedFields, f.Name+": "+f.Value+"\r\n"...)
		}
		return s.headerRecipients(h), nil
	})
}

// authorizeKeyAuthor returns the author of a message that a key hands in. All that From and
// Sender name must be on one domain that it may send from: the one that signs.
func (o *Outbox) authorizeKeyAuthor(ctx context.Context, p account.Principal, h message.Header) (address.Address, domain.SendingDomain, error) {
	authors, err := headerAuthors(h)
	if err != nil {
		return address.Address{}, domain.SendingDomain{}, err
	}
	for _, a := range authors {
		if a.Domain != authors[0].Domain {
			return a, domain.SendingDomain{}, fault.New(fault.Denied, "sender_not_allowed", "All addresses in From and Sender must be on the same domain.")
		}
	}
	sender, err := o.authorizeDomain(ctx, p, authors[0].Domain)
	return authors[0], sender, err
}

// authorizeDomain finds out whether the principal may send from a domain.
func (o *Outbox) authorizeDomain(ctx context.Context, p account.Principal, name string) (domain.SendingDomain, error) {
	if p.Domain != "" && p.Domain != name {
		return domain.SendingDomain{}, fault.New(fault.Denied, "sender_not_allowed", "This API key may send for another domain only.")
	}
	return o.Domains.SendingDomain(ctx, p.Account, name)
}

// headerRecipients takes each address of the envelope once, with what the header says of
// it as the API would. Whom it does not name is blind.
func (s Submission) headerRecipients(h message.Header) []recipient {
	kinds := map[string]string{}
	for _, field := range [...]struct{ name, kind string }{{"To", "to"}, {"Cc", "cc"}} {
		for _, a := range h.Addresses(field.name) {
			if parsed, err := address.Parse(a.Local + "@" + a.Domain); err == nil && kinds[parsed.Key()] == "" {
				kinds[parsed.Key()] = field.kind
			}
		}
	}
	return s.uniqueRecipients(func(key string) string {
		if kind := kinds[key]; kind != "" {
			return kind
		}
		return "bcc"
	})
}
