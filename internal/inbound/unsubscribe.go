// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/suppression"
)

// unsubscribe does the same as the unsubscribe link in a message. The author doesn't matter: people
// forward their mail and reply from other addresses, and only the recipient got the unsubscribe
// address. An automatic reply changes nothing. If the message is no longer stored, the author must
// be the recipient.
func (i *Service) unsubscribe(ctx context.Context, r returnPath, s *spooledMessage) error {
	// Mail programs that unsubscribe automatically use auto-generated.
	if strings.HasPrefix(strings.ToLower(s.header.Unfolded("Auto-Submitted")), "auto-replied") {
		i.Log.Info("an automatic reply does not unsubscribe", "message", r.message, "n", r.n)
		return nil
	}
	link, err := i.unsubscribeLink(ctx, r, s)
	if err != nil {
		return err
	}
	changed, err := i.Queue.RecordUnsubscribe(ctx, link, queue.UnsubscribeByEmail)
	if err == nil {
		i.Log.Info("a recipient unsubscribed by mail", "message", r.message, "n", r.n, "changed", changed)
	}
	return err
}

// unsubscribeLink returns who unsubscribes from which account's mail.
func (i *Service) unsubscribeLink(ctx context.Context, r returnPath, s *spooledMessage) (suppression.UnsubscribeLink, error) {
	d, err := i.reportedDelivery(ctx, r)
	if err != nil {
		return suppression.UnsubscribeLink{}, err
	}
	if d.Recipient != "" {
		about, err := i.Outbox.MessageInfo(ctx, r.message)
		return suppression.UnsubscribeLink{Account: about.Account, Message: r.message, Address: d.Recipient}, err
	}
	var authors []address.Address
	for _, f := range s.header.All("From") {
		for _, from := range message.ParseAddresses(f.Value) {
			if a, err := address.Parse(from.String()); err == nil {
				authors = append(authors, a)
			}
		}
	}
	account, to, err := i.Outbox.PrunedRecipient(ctx, r.message, r.n, authors)
	if fault.Is(err, fault.NotFound) {
		err = fault.New(fault.NotFound, mailbox.CodeNoMailbox, "The message is too old to unsubscribe by mail. Open the link in it.")
	}
	return suppression.UnsubscribeLink{Account: account, Message: r.message, Address: to.String()}, err
}
