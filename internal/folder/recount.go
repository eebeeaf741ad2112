// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	usagePageQuery = db.SQL(`SELECT mailbox, bytes, messages, surcharge FROM mailbox_usage WHERE mailbox > $1 ORDER BY mailbox LIMIT $2`)
	sumUseQuery    = db.SQL(`SELECT CAST(COALESCE(SUM(bytes), 0) AS BIGINT), CAST(COALESCE(SUM(messages), 0) AS BIGINT),
		CAST(COALESCE(SUM(surcharge), 0) AS BIGINT) FROM folder WHERE mailbox = $1`)
	staleSurchargesQuery = db.SQL(`SELECT id, uid_next, changed_modseq FROM folder WHERE mailbox = $1 AND surcharge_mark <> 2 * uid_next - messages`)
	folderVersionQuery   = db.SQL(`SELECT id, uid_next, changed_modseq FROM folder WHERE id = $1`)
	// sumSurchargeQuery sums mailbox.Overhead of each message; $4 is mailbox.MinCountedSize.
	sumSurchargeQuery = db.SQL(`SELECT COALESCE(MAX(uid), 0), CAST(COALESCE(SUM(CASE WHEN size < $4 THEN $4 - size ELSE 0 END), 0) AS BIGINT)
		FROM (SELECT uid, size FROM folder_message WHERE folder = $1 AND uid > $2 ORDER BY uid LIMIT $3) AS page`)
	setSurchargeQuery = db.SQL(`UPDATE folder SET surcharge = $4, surcharge_mark = 2 * uid_next - messages
		WHERE id = $1 AND uid_next = $2 AND changed_modseq = $3`)
)

const (
	recountInterval = time.Hour
	recountPage     = 500 // mailboxes
	recountTries    = 3   // while others change the folder
)

// RunUsageRecount corrects the usage of mailboxes, at once and then every hour, until ctx ends. It
// covers mailboxes from before messages had a surcharge, and changes by nodes of a release without
// it.
func (s *Folders) RunUsageRecount(ctx context.Context) error {
	for {
		n, err := s.RecountUsage(ctx)
		if err != nil && ctx.Err() == nil {
			s.Log.Error("recounting the use of mailboxes failed", "err", err)
		}
		if n > 0 {
			s.Log.Info("recounted the use of mailboxes", "count", n)
		}
		if notify.Sleep(ctx, recountInterval) != nil {
			return nil //nolint:nilerr // the server stops
		}
	}
}

// RecountUsage corrects the usage of all mailboxes whose folders don't add up to it, or that have
// changes without a surcharge. It returns how many it corrected.
func (s *Folders) RecountUsage(ctx context.Context) (corrected int, err error) {
	type found struct {
		box db.ID
		use mailbox.Usage
	}
	for last := db.ID(0); ; {
		page, err := db.All(ctx, s.DB, usagePageQuery.With(last, recountPage), func(r db.Row) (f found, err error) {
			return f, r.Scan(&f.box, &f.use.Bytes, &f.use.Messages, &f.use.Overhead)
		})
		if err != nil || len(page) == 0 {
			return corrected, err
		}
		for _, f := range page {
			changed, err := s.recountMailbox(ctx, f.box, f.use)
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

// recountMailbox corrects the usage of one mailbox if necessary.
func (s *Folders) recountMailbox(ctx context.Context, box db.ID, known mailbox.Usage) (changed bool, err error) {
	places, err := db.All(ctx, s.DB, staleSurchargesQuery.With(box), scanFolderVersion)
	if err != nil {
		return false, err
	}
	for _, p := range places {
		if err := s.recountSurcharge(ctx, box, p); err != nil {
			return false, err
		}
	}
	if len(places) == 0 {
		var sum mailbox.Usage
		// A concurrent change also makes them differ. Then the mailbox is only checked again.
		if err := s.DB.One(ctx, sumUseQuery.With(box), &sum.Bytes, &sum.Messages, &sum.Overhead); err != nil || sum == known {
			return false, err
		}
	}
	err = s.DB.Tx(ctx, func(tx *db.Tx) error {
		changed, err = correctUsage(ctx, tx, box)
		return err
	})
	return changed || len(places) > 0, err
}

// correctUsage sets the usage of a mailbox to the sum of its folders.
func correctUsage(ctx context.Context, tx *db.Tx, box db.ID) (changed bool, err error) {
	if _, err := tx.Exec(ctx, mailbox.LockUsage(box)); err != nil {
		return false, err
	}
	var sum mailbox.Usage
	if err := tx.One(ctx, sumUseQuery.With(box), &sum.Bytes, &sum.Messages, &sum.Overhead); err != nil {
		return false, err
	}
	n, err := tx.Exec(ctx, mailbox.SetUsage(box, sum))
	return n > 0, err
}

// folderVersion is a version of a folder. Its messages don't change within a version.
type folderVersion struct {
	folder  db.ID
	nextUID int64
	changed int64
}

func scanFolderVersion(r db.Row) (p folderVersion, err error) {
	return p, r.Scan(&p.folder, &p.nextUID, &p.changed)
}

// recountSurcharge computes the surcharge of a folder while others change it. If they do so all the
// time, it makes them wait.
func (s *Folders) recountSurcharge(ctx context.Context, box db.ID, p folderVersion) error {
	for range recountTries {
		sum, err := sumFolderSurcharge(ctx, s.DB, p.folder)
		if err != nil {
			return err
		}
		n, err := s.DB.Exec(ctx, setSurchargeQuery.With(p.folder, p.nextUID, p.changed, sum))
		if err != nil || n > 0 {
			return err
		}
		if p, err = queryOne(ctx, s.DB, folderVersionQuery.With(p.folder), scanFolderVersion); errors.Is(err, db.ErrNoRow) {
			return nil // it was deleted
		} else if err != nil {
			return err
		}
	}
	return s.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, mailbox.LockUsage(box)); err != nil {
			return err
		}
		p, err := queryOne(ctx, tx, folderVersionQuery.With(p.folder), scanFolderVersion)
		if errors.Is(err, db.ErrNoRow) {
			return nil
		}
		if err != nil {
			return err
		}
		sum, err := sumFolderSurcharge(ctx, tx, p.folder)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, setSurchargeQuery.With(p.folder, p.nextUID, p.changed, sum))
		return err
	})
}

// sumFolderSurcharge sums the surcharge of a folder's messages, page by page.
func sumFolderSurcharge(ctx context.Context, r db.Reader, folder db.ID) (sum int64, err error) {
	for last := int64(0); ; {
		var some int64
		next := last
		if err := r.One(ctx, sumSurchargeQuery.With(folder, last, loadPageMessages, mailbox.MinCountedSize), &next, &some); err != nil || next == 0 {
			return sum, err
		}
		sum, last = sum+some, next
	}
}
