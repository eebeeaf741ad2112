// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// warningInterval is how often it is looked for owners to be told whose signal was
	// lost.
	warningInterval = 30 * time.Second
	// warningBatch is how many mailboxes are looked at in one round.
	warningBatch = 100
)

// RunQuotaWarnings tells the owners of mailboxes that are nearly full, until ctx
// ends. Every node runs it: who tells which is decided in the commit.
func (i *Service) RunQuotaWarnings(ctx context.Context) error {
	sub := i.Hub.Subscribe(notify.Key{Kind: notify.QuotaWarning})
	defer sub.Close()
	notify.Repeat(ctx, sub.C, i.SendQuotaWarnings, func(err error) {
		i.Log.Error("telling owners that their mailboxes are nearly full failed", "error", err)
	})
	return nil
}

// SendQuotaWarnings does one round of that: each mailbox that got to 90 % of its quota
// gets a message, whatever room there is left for it. It returns after how long
// to look again.
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

// errAlreadyWarned declines to tell an owner what was told already, or is no longer so.
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
	text, err := i.composeQuotaWarning(box)
	if err != nil {
		return err
	}
	s, err := i.spool(ctx, i.db.NewID(), nil, bytes.NewReader(text), nil)
	if err != nil {
		return err
	}
	to := mailbox.Recipient{Mailbox: box.ID, Account: box.Account, Domain: box.Domain, Address: box.Address}
	in, err := i.buildCopy(ctx, s, to, nil, "", box.Address)
	if err != nil {
		return err
	}
	in.Jobs = []*db.Mutation{{Guard: func(b *db.Batch) { b.Queue(mailbox.MarkWarned(id)).One(new(int64)).OrFail(errAlreadyWarned) }}}
	_, err = i.Folders.Deliver(ctx, in)
	if errors.Is(err, errAlreadyWarned) {
		return nil
	}
	if err == nil {
		i.Log.Info("an owner was told that a mailbox is nearly full", "mailbox", id, "used", box.Used, "quota", box.Quota)
	}
	return err
}

// composeQuotaWarning composes the message to the owner of a mailbox.
func (i *Service) composeQuotaWarning(box mailbox.Mailbox) ([]byte, error) {
	to, err := address.Parse(box.Address)
	if err != nil {
		return nil, err
	}
	share := min(box.Used/max(box.Quota/100, 1), 999)
	var out bytes.Buffer
	_, err = message.Compose(&out, &message.Draft{
		Date: i.Now(), MessageID: "<" + i.db.NewID().String() + "@" + i.Host + ">",
		From:        message.Address{Name: "Postmaster", Local: postmasterLocalPart, Domain: i.Host},
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
`, to.Display(), formatSize(box.Used), formatSize(box.Quota), share),
	})
	return out.Bytes(), err
}

// formatSize is a number of bytes in words.
func formatSize(n int64) string {
	const mb = 1 << 20
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%.1f GB", float64(n)/(mb<<10))
	case n >= mb/10:
		return fmt.Sprintf("%.1f MB", float64(n)/mb)
	}
	return fmt.Sprintf("%d bytes", n)
}
