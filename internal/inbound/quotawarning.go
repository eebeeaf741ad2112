// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// warningInterval is the time between checks for owners to warn, in case a signal was lost.
	warningInterval = 30 * time.Second
	// warningBatch is the number of mailboxes per round.
	warningBatch = 100
)

// RunQuotaWarnings warns the owners of nearly full mailboxes until ctx ends. Every node runs it;
// the commit decides which node sends a warning.
func (i *Service) RunQuotaWarnings(ctx context.Context) error {
	sub := i.Hub.Subscribe(notify.Key{Kind: notify.QuotaWarning})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, i.SendQuotaWarnings, func(err error) {
		i.Log.Error("telling owners that their mailboxes are nearly full failed", "error", err)
	})
	return nil
}

// SendQuotaWarnings does one round: it sends a message to each mailbox that has reached 90 % of its
// quota, even if the mailbox is full. It returns the time until the next round.
func (i *Service) SendQuotaWarnings(ctx context.Context) (again time.Duration, err error) {
	ids, err := i.Mailboxes.ListNearlyFull(ctx, warningBatch)
	if err != nil {
		return warningInterval, err
	}
	var failed error
	for _, id := range ids {
		if err := i.sendQuotaWarning(ctx, id); err != nil {
			failed = errors.Join(failed, fmt.Errorf("mailbox %s: %w", id, err))
		}
	}
	if len(ids) < warningBatch || failed != nil {
		return warningInterval, failed
	}
	return 0, nil
}

// errAlreadyWarned reports that the owner was warned already, or that the mailbox is no longer
// nearly full.
var errAlreadyWarned = errors.New("the owner of the mailbox was told")

// sendQuotaWarning files one warning.
func (i *Service) sendQuotaWarning(ctx context.Context, id db.ID) error {
	box, err := i.Mailboxes.ByID(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	m, err := i.StoreServiceMessage(ctx, func(w io.Writer) error { return i.composeQuotaWarning(w, box) })
	if err != nil {
		return err
	}
	to := mailbox.Recipient{Mailbox: box.ID, Account: box.Account, Domain: box.Domain, Address: box.Address}
	err = i.FileServiceMessage(ctx, m, to, box.Address, &db.Mutation{Guard: func(b *db.Batch) {
		b.Queue(mailbox.MarkWarned(id)).One(new(int64)).OrFail(errAlreadyWarned)
	}})
	if errors.Is(err, errAlreadyWarned) {
		return nil
	}
	if err == nil {
		i.Log.Info("an owner was told that a mailbox is nearly full", "mailbox", id, "used", box.Used, "quota", box.Quota)
	}
	return err
}

// composeQuotaWarning composes the warning to the owner of a mailbox.
func (i *Service) composeQuotaWarning(w io.Writer, box mailbox.Mailbox) error {
	to, err := address.Parse(box.Address)
	if err != nil {
		return err
	}
	share := min(box.Used/max(box.Quota/100, 1), 999)
	_, err = message.Compose(w, &message.Draft{
		Date: i.Now(), MessageID: "<" + i.db.NewID().String() + "@" + i.Host + ">",
		From:        message.Address{Name: "Postmaster", Local: PostmasterLocalPart, Domain: i.Host},
		To:          []message.Address{{Name: box.DisplayName, Local: to.Local, Domain: to.Domain}},
		Subject:     fmt.Sprintf("Your mailbox is %d %% full", share),
		ExtraFields: []message.ExtraField{{Name: "Auto-Submitted", Value: "auto-generated"}},
		Text: fmt.Sprintf(`Your mailbox %s is nearly full: %s of %s are used (%d %%).

When it is full, mail to you is no longer accepted. Senders try again for
some days; when it has been full for seven days, their mail is returned to
them at once. Nothing that is in the mailbox is lost.

What you can do:

- Delete what you no longer need: large attachments first, and what lies in
  Trash and Junk. Then have your mail program empty Trash, which it may call
  "expunge" or "compact": only then there is room.
- Move old mail out of the mailbox, into folders on your own computer.
- Ask whoever made the mailbox for you for more room.

You are told once. If there is room again and it becomes scarce once more,
you are told again.
`, to.Display(), bytesize.Format(box.Used), bytesize.Format(box.Quota), share),
	})
	return err
}
