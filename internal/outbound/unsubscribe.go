// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"net/url"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Unsubscribe offers the recipient to unsubscribe, with the fields List-Unsubscribe (RFC 2369) and
// List-Unsubscribe-Post (RFC 8058), which the signatures cover. Such mail isn't sent to recipients
// who have unsubscribed.
type Unsubscribe struct {
	// URL receives the one-click POST of RFC 8058, so it must be https. Without it the service
	// hosts a link that is specific to the recipient; the message must then have exactly one
	// recipient.
	URL string
	// Mailto is an address, or a mailto URI. Without it the service adds its own address beside a
	// link that it hosts.
	Mailto string
}

// readUnsubscribe reads the unsubscribe offer of a send.
func (l *validSend) readUnsubscribe(s *SendRequest, bad *fault.FieldErrors) {
	if s.Unsubscribe == nil {
		return
	}
	l.offersUnsubscribe = true
	if s.Unsubscribe.URL == "" {
		l.hostsUnsubscribe = true
		if len(l.recipients) > 1 {
			bad.Add("unsubscribe", "one_recipient_required",
				"A link that the service hosts is for one recipient: send to each on its own, or give a url of yours.")
		}
	} else if !isOneClickURL(s.Unsubscribe.URL) {
		bad.Add("unsubscribe.url", "invalid_url", "This must be an https URL (RFC 8058, section 3.1), percent-encoded, of at most 900 characters.")
	} else {
		l.draft.Unsubscribe.URL = s.Unsubscribe.URL
	}
	if s.Unsubscribe.Mailto == "" {
		return
	}
	mailto, ok := mailtoURI(s.Unsubscribe.Mailto)
	if !ok {
		bad.Add("unsubscribe.mailto", "invalid_address", "This must be an address such as leave@example.com, or a mailto URI.")
	}
	l.draft.Unsubscribe.Mailto = mailto
}

// isOneClickURL reports whether a URL can be used in List-Unsubscribe and receive a POST.
func isOneClickURL(text string) bool {
	u, err := url.Parse(text)
	if err != nil || !strings.EqualFold(u.Scheme, "https") || u.User != nil || u.Opaque != "" || u.Fragment != "" {
		return false
	}
	if _, err := address.ParseHostname(u.Hostname()); err != nil {
		return false
	}
	return isHeaderURI(text)
}

// isHeaderURI reports whether a URI is fit for a header: printable ASCII, without characters that
// would end it, and no longer than a line.
func isHeaderURI(uri string) bool {
	return len(uri) <= 900 && !strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`<>,"\`, r) })
}

// mailtoURI returns the mailto URI (RFC 6068) of an address. It also accepts a URI, which may have
// a subject or body.
func mailtoURI(text string) (string, bool) {
	const scheme = "mailto:"
	if len(text) >= len(scheme) && strings.EqualFold(text[:len(scheme)], scheme) {
		to, query, _ := strings.Cut(text[len(scheme):], "?")
		plain, err := url.PathUnescape(to)
		if err != nil {
			return "", false
		}
		if _, err := address.Parse(plain); err != nil {
			return "", false
		}
		for _, field := range strings.Split(query, "&") {
			name, _, _ := strings.Cut(field, "=")
			if query != "" && !strings.EqualFold(name, "subject") && !strings.EqualFold(name, "body") {
				return "", false // the URI must not add other recipients
			}
		}
		return text, isHeaderURI(text)
	}
	a, err := address.Parse(text)
	if err != nil {
		return "", false
	}
	uri := scheme + strings.NewReplacer("@", "%40", "&", "%26", "+", "%2B", ",", "%2C").Replace(url.PathEscape(a.Local)) + "@" + a.Domain
	return uri, isHeaderURI(uri)
}

// addUnsubscribe adds the link that the service hosts, and an address for mail programs that can
// only send mail.
func (o *Outbox) addUnsubscribe(pc *preparedMessage, l *validSend) {
	if l.hostsUnsubscribe {
		mailto := l.draft.Unsubscribe.Mailto
		if mailto == "" {
			mailto = "mailto:" + o.Key.UnsubscribePath(int64(pc.row.id), 0) + "@" + pc.row.returnPathHost + "?subject=unsubscribe"
		}
		l.draft.Unsubscribe = message.ListUnsubscribe{
			URL: o.Suppressions.UnsubscribeURL(suppression.UnsubscribeLink{
				Account: pc.row.account, Message: pc.row.id, Address: l.recipients[0].String(),
			}),
			OneClick: true, Mailto: mailto,
		}
	}
	pc.offersUnsubscribe = l.offersUnsubscribe
}

// addSubmittedUnsubscribe adds the unsubscribe offer that optionUnsubscribe requests to a
// submission.
func (o *Outbox) addSubmittedUnsubscribe(pc *preparedMessage, offer Unsubscribe, to []recipient, h message.Header) error {
	if h.Count("List-Unsubscribe")+h.Count("List-Unsubscribe-Post") > 0 {
		return invalidOption(optionUnsubscribe, "The message has a List-Unsubscribe of its own; give one of the two.")
	}
	l := &validSend{recipients: to}
	var bad fault.FieldErrors
	if l.readUnsubscribe(&SendRequest{Unsubscribe: &offer}, &bad); len(bad) > 0 {
		return invalidOption(optionUnsubscribe, bad[0].Message)
	}
	o.addUnsubscribe(pc, l)
	pc.row.addedFields = append(pc.row.addedFields, l.draft.Unsubscribe.Fields()...)
	return nil
}

// applySuppressions marks the suppressed recipients of API mail. It makes one look-up for ordinary
// mail, and one for mail that offers to unsubscribe.
func (o *Outbox) applySuppressions(ctx context.Context, account db.ID, prepared []*preparedMessage) error {
	for _, offers := range []bool{false, true} {
		var asked []address.Address
		var marks []*suppression.Reason
		for _, pc := range prepared {
			if pc.offersUnsubscribe != offers || pc.row.mailbox != 0 {
				continue
			}
			for i := range pc.recipients {
				a, err := address.Parse(pc.recipients[i].Address)
				if err != nil {
					return err
				}
				asked, marks = append(asked, a), append(marks, &pc.recipients[i].Suppressed)
			}
		}
		if len(asked) == 0 {
			continue
		}
		blocked, err := o.Suppressions.Blocked(ctx, account, asked, offers)
		if err != nil {
			return err
		}
		for i, a := range asked {
			*marks[i] = blocked[a.Key()]
		}
	}
	return nil
}

// prepareSuppressionCheck makes the message's commit look up the suppressed recipients.
func (o *Outbox) prepareSuppressionCheck(pc *preparedMessage) error {
	if pc.row.mailbox != 0 {
		return nil
	}
	asked := make([]address.Address, len(pc.recipients))
	for i := range pc.recipients {
		var err error
		if asked[i], err = address.Parse(pc.recipients[i].Address); err != nil {
			return err
		}
	}
	pc.suppressionCheck, pc.checkedAddresses = o.Suppressions.NewCheck(pc.row.account, asked, pc.offersUnsubscribe), asked
	return nil
}

// markSuppressed marks the suppressed recipients, as read by the commit.
func (pc *preparedMessage) markSuppressed(plan *queue.Reservation) {
	for i, a := range pc.checkedAddresses {
		pc.recipients[i].Suppressed = pc.suppressionCheck.Blocked[a.Key()]
		plan.Suppress(i, pc.recipients[i].Suppressed)
	}
}
