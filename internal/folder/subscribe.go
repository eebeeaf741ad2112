// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

var (
	deleteSubscriptionQuery = db.SQL(`DELETE FROM subscription WHERE mailbox = $1 AND name = $2`)
	listSubscriptionsQuery  = db.SQL(`SELECT name FROM subscription WHERE mailbox = $1 ORDER BY name`)
	countSubscriptionsQuery = db.SQL(`SELECT COUNT(*) FROM subscription WHERE mailbox = $1`)
)

// Subscribe adds a name, which need not exist (RFC 3501 §6.3.6), to the subscriptions. It returns a
// fault.RateLimited for too many.
func (s *Folders) Subscribe(ctx context.Context, mailbox db.ID, name string) error {
	name, err := cleanName(name)
	if err != nil {
		return err
	}
	return s.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "subscriptions", mailbox); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertSubscriptionQuery.With(mailbox, name)); err != nil {
			return err
		}
		var n int
		if err := tx.One(ctx, countSubscriptionsQuery.With(mailbox), &n); err != nil {
			return err
		}
		if n > 2*s.MaxFolders { // includes names that don't exist
			return fault.New(fault.RateLimited, "too_many_subscriptions", "There are too many subscriptions.")
		}
		return nil
	})
}

// Unsubscribe removes a name from the subscriptions, if it is there.
func (s *Folders) Unsubscribe(ctx context.Context, mailbox db.ID, name string) error {
	name, err := cleanName(name)
	if err != nil {
		return err
	}
	_, err = s.DB.Exec(ctx, deleteSubscriptionQuery.With(mailbox, name))
	return err
}

// Subscriptions returns the subscribed names, in order.
func (s *Folders) Subscriptions(ctx context.Context, mailbox db.ID) ([]string, error) {
	return db.All(ctx, s.DB, listSubscriptionsQuery.With(mailbox), func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
}

// renameSubscriptions renames the subscriptions of a folder and of all names below it, even of
// names that don't exist. Those whose new names would be invalid stay.
func (t *folderTree) renameSubscriptions(ctx context.Context, from, to string) error {
	if err := t.tx.Lock(ctx, "subscriptions", t.mailbox); err != nil {
		return err
	}
	names, err := db.All(ctx, t.tx, listSubscriptionsQuery.With(t.mailbox), func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		rest, below := strings.CutPrefix(name, from+string(Separator))
		moved := to
		if below {
			moved += string(Separator) + rest
		} else if name != from {
			continue
		}
		if moved, err = cleanName(moved); err != nil {
			continue
		}
		for _, statement := range []db.Statement{deleteSubscriptionQuery.With(t.mailbox, name), insertSubscriptionQuery.With(t.mailbox, moved)} {
			if _, err := t.tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	return nil
}
