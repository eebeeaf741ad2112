// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/signal"
)

var (
	nextUses = db.SQL(`SELECT mailbox, bytes, messages, surcharge FROM mailbox_usage WHERE mailbox > $1 ORDER BY mailbox LIMIT $2`)
	sumUse   = db.SQL(`SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(messages), 0) AS BIGINT),
		CAST(COALESCE(SUM(surcharge), 0) AS BIGINT) FROM folder WHERE mailbox = $1`)
	uncounted = db.SQL(`SELECT id, uid_next, changed FROM folder WHERE mailbox = $1 AND surcharge_mark <> 2 * uid_next - messages`)
	onePlace  = db.SQL(`SELECT id, uid_next, changed FROM folder WHERE id = $1`)
	// sumSurcharge is mailbox.Surcharge of each message, with $4 for mailbox.MinCharge.
	sumSurcharge = db.SQL(`SELECT COALESCE(MAX(uid), 0), CAST(COALESCE(SUM(CASE WHEN size < $4 THEN $4 - size ELSE 0 END), 0) AS BIGINT)
		FROM (SELECT uid, size FROM folder_message WHERE folder = $1 AND uid > $2 ORDER BY uid LIMIT $3) AS page`)
	setSurcharge = db.SQL(`UPDATE folder SET surcharge = $4, surcharge_mark = 2 * uid_next - messages
		WHERE id = $1 AND uid_next = $2 AND changed = $3`)
)

const (
	recountEvery = time.Hour
	recountPage  = 500 // mailboxes
	recountTries = 3   // while others change the folder
)

// RunRecount corrects the use of mailboxes, at once and then every hour, until ctx
// ends: that of mailboxes from before messages had a surcharge, and what nodes of a
// release that has none change.
func (s *Store) RunRecount(ctx context.Context) error {
	for {
		n, err := s.Recount(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("recounting the use of mailboxes failed", "err", err)
		}
		if n > 0 {
			s.Log.Info("recounted the use of mailboxes", "count", n)
		}
		if signal.Sleep(ctx, recountEvery) != nil {
			return nil //nolint:nilerr // the server stops
		}
	}
}

// Recount corrects the use of all mailboxes whose folders don't add up to it, or
// have changes without a surcharge. It returns how many it corrected.
func (s *Store) Recount(ctx context.Context) (corrected int, err error) {
	type found struct {
		box db.ID
		use mailbox.Use
	}
	for last := db.ID(0); ; {
		page, err := db.All(ctx, s.DB, nextUses.With(last, recountPage), func(r db.Row) (f found, err error) {
			return f, r.Scan(&f.box, &f.use.Bytes, &f.use.Messages, &f.use.Surcharge)
		})
		if err != nil || len(page) == 0 {
			return corrected, err
		}
		for _, f := range page {
			changed, err := s.recount(ctx, f.box, f.use)
			if err != nil {
				return corrected, err
			}
			if changed {
				corrected++
			}
		}
		last = page[len(page)-1].box
	}
}

// recount corrects the use of one mailbox, if it has to.
func (s *Store) recount(ctx context.Context, box db.ID, known mailbox.Use) (changed bool, err error) {
	places, err := db.All(ctx, s.DB, uncounted.With(box), scanPlace)
	if err != nil {
		return false, err
	}
	for _, p := range places {
		if err := s.recountFolder(ctx, box, p); err != nil {
			return false, err
		}
	}
	if len(places) == 0 {
		var sum mailbox.Use
		// A change in between makes them differ: no harm, it is looked at again.
		if err := s.DB.One(ctx, sumUse.With(box), &sum.Bytes, &sum.Messages, &sum.Surcharge); err != nil || sum == known {
			return false, err
		}
	}
	err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		changed, err = correct(ctx, tx, box)
		return err
	})
	return changed || len(places) > 0, err
}

// correct makes the use of a mailbox what its folders add up to.
func correct(ctx context.Context, tx *db.Tx, box db.ID) (changed bool, err error) {
	if _, err := tx.Exec(ctx, mailbox.Hold(box)); err != nil {
		return false, err
	}
	var sum mailbox.Use
	if err := tx.One(ctx, sumUse.With(box), &sum.Bytes, &sum.Messages, &sum.Surcharge); err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, mailbox.SetUse(box, sum))
	return n > 0, err
}

// place is a state of a folder: while it lasts its messages stay the same.
type place struct {
	folder  db.ID
	next    int64
	changed int64
}

func scanPlace(r db.Row) (p place, err error) { return p, r.Scan(&p.folder, &p.next, &p.changed) }

// recountFolder counts the surcharge of a folder beside others who change it, and
// if they do so all the time, while they wait.
func (s *Store) recountFolder(ctx context.Context, box db.ID, p place) error {
	for range recountTries {
		sum, err := surchargeOf(ctx, s.DB, p.folder)
		if err != nil {
			return err
		}
		n, err := s.DB.Exec(ctx, setSurcharge.With(p.folder, p.next, p.changed, sum))
		if err != nil || n > 0 {
			return err
		}
		if p, err = one(ctx, s.DB, onePlace.With(p.folder), scanPlace); errors.Is(err, db.ErrNoRow) {
			return nil // it was deleted
		} else if err != nil {
			return err
		}
	}
	return s.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, mailbox.Hold(box)); err != nil {
			return err
		}
		p, err := one(ctx, tx, onePlace.With(p.folder), scanPlace)
		if errors.Is(err, db.ErrNoRow) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, err := surchargeOf(ctx, tx, p.folder)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, setSurcharge.With(p.folder, p.next, p.changed, sum))
		return err
	})
}

// surchargeOf adds up the surcharge of a folder's messages, page by page.
func surchargeOf(ctx context.Context, r db.Reader, folder db.ID) (sum int64, err error) {
	for last := int64(0); ; {
		var some int64
		next := last
		if err := r.One(ctx, sumSurcharge.With(folder, last, loadPage, mailbox.MinCharge), &next, &some); err != nil || next == 0 {
			return sum, err
		}
		sum, last = sum+some, next
	}
}
