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

// CheckKeySender returns fault.Denied unless the key's account may send from the domain of the
// address in MAIL FROM; any local part is allowed. It allows nil, the null sender, because the
// header's From decides.
func (o *Outbox) CheckKeySender(ctx context.Context, p account.Principal, from *address.Address) error {
	if from == nil {
		return nil
	}
	_, err := o.authorizeDomain(ctx, p, from.Domain)
	return err
}

// SubmitByKey accepts a message that a program submits by SMTP with an API key as its password. It
// is handled as API mail: with signed return paths, events instead of reports, and the account's
// suppressions; but it keeps its Message-ID.
func (o *Outbox) SubmitByKey(ctx context.Context, p account.Principal, s Submission, body io.Reader) (db.ID, error) {
	if err := o.CheckKeySender(ctx, p, s.From); err != nil {
		return 0, err
	}
	return o.submit(ctx, KeyConsumer(p), s, body, func(r *row, h message.Header) ([]recipient, error) {
		from, sender, err := o.authorizeKeyAuthor(ctx, p, h)
		if err != nil {
			return nil, err
		}
		r.account, r.domain, r.returnPathHost, r.from = p.Account, sender.Domain, o.returnPathHost(sender), from.String()
		r.expires = r.created.Add(ExpiryAPI)
		if p.Domain != "" {
			r.onlyDomain = sender.Domain
		}
		r.ret, r.envid = "", "" // API mail has events instead of reports
		if isServiceMail(h) {
			return nil, fault.New(fault.Invalid, "invalid_header", "The header Feedback-ID is not valid: the service alone writes this class.")
		}
		if h.Count("Feedback-ID") == 0 {
			f := o.feedbackIDField(p.Account, &validSend{from: from, class: "smtp"})
			r.addedFields = append(r.addedFields, f.Name+": "+f.Value+"\r\n"...)
		}
		return s.headerRecipients(h), nil
	})
}

// authorizeKeyAuthor returns the author of a message submitted with a key. All addresses in From
// and Sender must be on one domain that the key may send from; that domain signs.
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

// authorizeDomain returns fault.Denied unless the principal may send from the domain.
func (o *Outbox) authorizeDomain(ctx context.Context, p account.Principal, name string) (domain.SendingDomain, error) {
	if p.Domain != "" && p.Domain != name {
		return domain.SendingDomain{}, fault.New(fault.Denied, "sender_not_allowed", "This API key may send for another domain only.")
	}
	return o.Domains.SendingDomain(ctx, p.Account, name)
}

// headerRecipients returns each address of the envelope once, with its kind (to, cc) from the
// header. An address that the header doesn't name is blind.
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
