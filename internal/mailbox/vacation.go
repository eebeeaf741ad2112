// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// Vacation is the automatic reply of a mailbox while its owner is away (RFC 3834).
type Vacation struct {
	Enabled  bool
	StartsAt time.Time // zero: immediately
	EndsAt   time.Time // zero: never
	Subject  string    // "": "Auto: " and the subject of the message
	Text     string
	Days     int       // days until a sender gets another reply
	Updated  time.Time // zero: never set

	round db.ID
}

// Limits of a Vacation. Lengths are in bytes.
const (
	DefaultVacationDays = 7 // RFC 3834 §2
	MaxVacationDays     = 90
	MaxVacationSubject  = 200
	MaxVacationText     = 16 << 10
)

// VacationReplyRetention is how long replies to senders are recorded.
const VacationReplyRetention = (MaxVacationDays + 1) * 24 * time.Hour

var (
	setHasVacationQuery = db.SQL(`UPDATE mailbox SET auto_reply = $3 WHERE id = $1 AND account = $2 AND deleted_at = 0`)
	// Every sender gets a new reply when the text changes or a new absence begins.
	putVacationQuery = db.SQL(`INSERT INTO vacation (mailbox, enabled, starts_at, ends_at, subject, body, days, round, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (mailbox) DO UPDATE SET enabled = excluded.enabled, starts_at = excluded.starts_at, ends_at = excluded.ends_at,
			subject = excluded.subject, body = excluded.body, days = excluded.days, updated_at = excluded.updated_at,
			round = CASE WHEN vacation.body <> excluded.body OR vacation.subject <> excluded.subject
				OR (excluded.enabled AND NOT vacation.enabled)
				OR (vacation.ends_at > 0 AND vacation.ends_at <= excluded.updated_at) THEN excluded.round ELSE vacation.round END`)
	vacationQuery       = db.SQL(`SELECT enabled, starts_at, ends_at, subject, body, days, round, updated_at FROM vacation WHERE mailbox = $1`)
	deleteVacationQuery = db.SQL(`DELETE FROM vacation WHERE mailbox = $1`)
	deleteRepliesQuery  = db.SQL(`DELETE FROM vacation_reply WHERE mailbox = $1`)

	repliedQuery = db.SQL(`SELECT mailbox FROM vacation_reply WHERE mailbox = $1 AND sender = $2 AND round = $3 AND at > $4`)
	// recordReplyQuery decides which of several concurrent messages of a sender is answered: one
	// gets the row, and none if the reply was changed or turned off.
	recordReplyQuery = db.SQL(`INSERT INTO vacation_reply (mailbox, sender, round, at)
		SELECT mailbox, CAST($2 AS TEXT), round, CAST($4 AS BIGINT) FROM vacation WHERE mailbox = $1 AND round = $3 AND enabled
		ON CONFLICT (mailbox, sender) DO UPDATE SET round = excluded.round, at = excluded.at
			WHERE vacation_reply.round <> excluded.round OR vacation_reply.at <= $5
		RETURNING at`)
	// The outer condition is checked again for a sender who got a new reply meanwhile; the + 0
	// prevents the use of an index.
	pruneRepliesQuery = db.SQL(`DELETE FROM vacation_reply WHERE at + 0 < $1 AND (mailbox, sender) IN
		(SELECT mailbox, sender FROM vacation_reply WHERE at < $1 ORDER BY at LIMIT $2)`)
	aliasAddressesQuery = db.SQL(`SELECT a.local_part, a.address FROM alias_target t JOIN alias a ON a.id = t.alias
		WHERE t.mailbox = $1 AND t.mailbox > 0 LIMIT $2`)
)

// Active reports whether a message that arrives now gets a reply.
func (v Vacation) Active(now time.Time) bool {
	return v.Enabled && !now.Before(v.StartsAt) && (v.EndsAt.IsZero() || now.Before(v.EndsAt))
}

// ReplyOnce returns the statement that decides whether a sender, by address.Key, gets a reply now.
// It returns a row if so, once per interval, until the reply changes.
func (v Vacation) ReplyOnce(mailbox db.ID, sender string, now time.Time) db.Statement {
	return recordReplyQuery.With(mailbox, sender, v.round, db.Micros(now), db.Micros(v.replyCutoff(now)))
}

func (v Vacation) replyCutoff(now time.Time) time.Time { return now.AddDate(0, 0, -v.Days) }

// HasReplied reports whether a sender got a reply recently; if not, ReplyOnce decides.
func (m *Mailboxes) HasReplied(ctx context.Context, mailbox db.ID, v Vacation, sender string) (bool, error) {
	return db.Exists(ctx, m.db, repliedQuery.With(mailbox, sender, v.round, db.Micros(v.replyCutoff(m.now()))))
}

// Vacation returns the vacation reply of a mailbox of the account. If none was ever set, it returns
// one that is not enabled.
func (m *Mailboxes) Vacation(ctx context.Context, account, mailbox db.ID) (Vacation, error) {
	if _, err := m.Get(ctx, account, mailbox); err != nil {
		return Vacation{}, err
	}
	return m.VacationByMailbox(ctx, mailbox)
}

// VacationByMailbox is Vacation for a mailbox of any account.
func (m *Mailboxes) VacationByMailbox(ctx context.Context, mailbox db.ID) (Vacation, error) {
	v := Vacation{Days: DefaultVacationDays}
	err := m.db.One(ctx, vacationQuery.With(mailbox), &v.Enabled, db.TimeScanner(&v.StartsAt), db.TimeScanner(&v.EndsAt), &v.Subject, &v.Text, &v.Days, &v.round, db.TimeScanner(&v.Updated))
	return v, db.IfNoRow(err, nil)
}

// SetVacation sets the vacation reply of a mailbox of the account. After a change of the text, or
// at the start of a new absence, every sender gets a reply again.
func (m *Mailboxes) SetVacation(ctx context.Context, account, mailbox db.ID, v Vacation) (Vacation, error) {
	v.Text = strings.ReplaceAll(strings.ReplaceAll(v.Text, "\r\n", "\n"), "\r", "\n")
	now := m.now()
	if err := v.check(now).Err(); err != nil {
		return Vacation{}, err
	}
	err := m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, setHasVacationQuery.With(mailbox, account, v.Enabled), notFound()); err != nil {
			return err
		}
		return tx.Run(ctx, putVacationQuery.With(mailbox, v.Enabled, db.Micros(v.StartsAt), db.Micros(v.EndsAt), v.Subject, v.Text, v.Days,
			m.db.NewID(), db.Micros(now)))
	})
	if err != nil {
		return Vacation{}, err
	}
	m.notifyChanged(mailbox)
	return m.VacationByMailbox(ctx, mailbox)
}

// DeleteVacation deletes the vacation reply of a mailbox of the account: no replies are sent after
// the commit.
func (m *Mailboxes) DeleteVacation(ctx context.Context, account, mailbox db.ID) error {
	err := m.db.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.ExecOrFail(ctx, setHasVacationQuery.With(mailbox, account, false), notFound()); err != nil {
			return err
		}
		return tx.Run(ctx, deleteVacationQuery.With(mailbox))
	})
	if err == nil {
		m.notifyChanged(mailbox)
	}
	return err
}

// Check validates a vacation reply. The error is a fault.Invalid with all faults.
func (v Vacation) Check(now time.Time) error { return v.check(now).Err() }

func (v Vacation) check(now time.Time) (bad fault.FieldErrors) {
	switch {
	case v.Enabled && strings.TrimSpace(v.Text) == "":
		bad.Add("text", "required", "Say what is to be answered.")
	case len(v.Text) > MaxVacationText || !utf8.ValidString(v.Text) || strings.ContainsFunc(v.Text, isUnprintable):
		bad.Add("text", "invalid_text", "Give at most %d bytes of text.", MaxVacationText)
	}
	if len(v.Subject) > MaxVacationSubject || !utf8.ValidString(v.Subject) || strings.ContainsFunc(v.Subject, unicode.IsControl) {
		bad.Add("subject", "invalid_subject", "Give at most %d bytes of text in one line.", MaxVacationSubject)
	}
	if v.Days < 1 || v.Days > MaxVacationDays {
		bad.Add("interval_days", "out_of_range", "Give 1 to %d days.", MaxVacationDays)
	}
	switch {
	case v.EndsAt.IsZero():
	case !v.EndsAt.After(v.StartsAt):
		bad.Add("ends_at", "before_start", "The end must be after the start.")
	case v.Enabled && !v.EndsAt.After(now):
		bad.Add("ends_at", "past", "The end is in the past.")
	}
	return bad
}

func isUnprintable(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }

// maxOwnAliases limits how many aliases of a mailbox count as its own addresses.
const maxOwnAliases = 1000

// OwnAddresses returns the addresses of a mailbox that people write to, by address.Key and without
// a plus-tag: its own, and aliases that lead to it. It excludes catch-alls, postmaster and abuse.
func (m *Mailboxes) OwnAddresses(ctx context.Context, box Mailbox) (map[string]bool, error) {
	own := map[string]bool{address.KeyOf(box.Address): true}
	err := m.db.Each(ctx, aliasAddressesQuery.With(box.ID, maxOwnAliases), func(r db.Row) error {
		var local, key string
		err := r.Scan(&local, &key)
		own[key] = local != CatchAll
		return err
	})
	for key := range own {
		if a, err := address.Parse(key); err != nil || isRoleAddress(a) {
			delete(own, key)
		}
	}
	return own, err
}

// PruneVacationReplies deletes, in one commit, at most limit records of replies sent before a time,
// and returns how many; 0 means that there are no more.
func (m *Mailboxes) PruneVacationReplies(ctx context.Context, before time.Time, limit int) (n int, err error) {
	deleted, err := m.db.Exec(ctx, pruneRepliesQuery.With(db.Micros(before), limit))
	return int(deleted), err
}
