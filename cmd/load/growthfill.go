// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/cmd/load/fill"
	"github.com/mailstead/mailstead/internal/db"
)

// stride is how far the ids of one copy are from those of the next: ten seconds,
// which is longer than it took to make what is copied (db.ID).
const stride = 10_000 << 22

// multiply makes the rows of the mailbox, of its mail, of its domain and of its
// account many: a third of all belongs to the account that there is, and the rest
// to ten others for every thousand mailboxes.
func (g *grown) multiply(ctx context.Context) (err error) {
	d, err := fill.Open(ctx, g.database, g.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(ctx)) }()
	m := &multiplied{DB: d, grown: g, others: max(1, g.boxes/100), own: max(60, g.boxes/100)}
	if err := m.read(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.accounts, m.mailboxes, m.mail, m.events, m.letters} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

type multiplied struct {
	*fill.DB
	*grown
	others, own                int // accounts beside the first, each with a domain; domains of the first
	accountID, domainID, boxID int64
	folder                     int64 // that gets many messages
}

func (m *multiplied) read(ctx context.Context) (err error) {
	for _, id := range []struct {
		text string
		into *int64
	}{{m.domain, &m.domainID}, {m.box, &m.boxID}} {
		parsed, failed := db.ParseID(id.text)
		*id.into, err = int64(parsed), errors.Join(err, failed)
	}
	archive, failed := db.ParseID(m.archive)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if m.accountID, err = m.Int(ctx, fmt.Sprintf("SELECT account FROM domain WHERE id = %d", m.domainID)); err != nil {
		return err
	}
	m.folder, err = m.Int(ctx, fmt.Sprintf("SELECT id FROM folder WHERE mailbox = %d AND name = 'INBOX'", archive))
	return err
}

// back is the column's value in the copy k.
func back(column string) string { return fmt.Sprintf("r.%s - k * CAST(%d AS BIGINT)", column, stride) }

// ofAccount and ofDomain are what the mailbox k belongs to. The last domain has
// no mailboxes.
func (m *multiplied) place() string {
	return fmt.Sprintf("(CASE WHEN k %% 3 = 0 THEN %d + (k / 3) %% %d ELSE 1 + k %% %d END)", m.others+1, m.own-1, m.others)
}

func (m *multiplied) ofAccount() string {
	return fmt.Sprintf("%d - CASE WHEN k %% 3 = 0 THEN 0 ELSE (1 + k %% %d) * CAST(%d AS BIGINT) END", m.accountID, m.others, stride)
}

func (m *multiplied) ofDomain() string {
	return fmt.Sprintf("%d - %s * CAST(%d AS BIGINT)", m.domainID, m.place(), stride)
}

// renamed is a column in which the address of the mailbox is the copy's.
func (m *multiplied) renamed(column string) string {
	return fmt.Sprintf("REPLACE(r.%s, 'seed@%s', 'box' || k || '@d' || %s || '.%s')", column, m.home, m.place(), m.home)
}

func (m *multiplied) accounts(ctx context.Context) error {
	all := m.others + m.own
	distant := "9000000000000000" // never due
	where := fmt.Sprintf("domain = %d", m.domainID)
	err := errors.Join(
		m.Copy(ctx, "account", fmt.Sprintf("id = %d", m.accountID), m.others, fill.Change{"id": back("id"), "email": "'owner' || k || '@' || 'd' || k || '.' || '" + m.home + "'"}),
		m.Copy(ctx, "domain", fmt.Sprintf("id = %d", m.domainID), all, fill.Change{
			"id": back("id"), "name": "'d' || k || '.' || r.name", "next_check_at": distant,
			"account": fmt.Sprintf("CASE WHEN k <= %d THEN %s ELSE r.account END", m.others, back("account")),
		}),
		m.Copy(ctx, "dkim_key", where, all, fill.Change{"id": back("id"), "domain": back("domain")}),
		m.Copy(ctx, "suppression", "address = 'seed@bench-sink.net'", 3*m.boxes, fill.Change{"id": back("id"), "address": "'s' || k || '@bench-sink.net'"}),
		m.Copy(ctx, "dashboard_audit", "id = (SELECT MAX(id) FROM dashboard_audit)", 3*m.boxes, fill.Change{"id": back("id")}),
	)
	m.empty = db.ID(m.domainID - int64(all)*stride).String()
	return err
}

func (m *multiplied) mailboxes(ctx context.Context) error {
	at := fmt.Sprintf("mailbox = %d", m.boxID)
	return errors.Join(
		m.Copy(ctx, "mailbox", fmt.Sprintf("id = %d", m.boxID), m.boxes, fill.Change{
			"id": back("id"), "account": m.ofAccount(), "domain": m.ofDomain(), "local_part": "'box' || k", "address": m.renamed("address"),
		}),
		m.Exec(ctx, "DELETE FROM mailbox_storage"),
		m.Exec(ctx, "INSERT INTO mailbox_storage (account, allotted) SELECT account, SUM(counted) FROM mailbox GROUP BY account"),
		// As many as there would be; searches find only that they are of others.
		m.Copy(ctx, "mailbox_piece", at, m.boxes, fill.Change{"account": m.ofAccount(), "mailbox": back("mailbox")}),
		m.Copy(ctx, "mailbox_usage", at, m.boxes, fill.Change{"mailbox": back("mailbox")}),
		m.Copy(ctx, "folder", at, m.boxes, fill.Change{"id": back("id"), "mailbox": back("mailbox")}),
		m.Copy(ctx, "subscription", at, m.boxes, fill.Change{"mailbox": back("mailbox")}),
	)
}

func (m *multiplied) mail(ctx context.Context) error {
	message := fmt.Sprintf("message IN (SELECT id FROM message WHERE mailbox = %d)", m.boxID)
	sent := fmt.Sprintf("IN (SELECT outbound FROM message WHERE mailbox = %d)", m.boxID)
	threads := fill.Change{"thread_id": "CASE WHEN r.thread_id = '' THEN '' ELSE r.thread_id || '.' || k END"}
	return errors.Join(
		m.Copy(ctx, "folder_message", message, m.boxes, fill.Change{"folder": back("folder"), "message": back("message")}),
		m.Copy(ctx, "blob", fmt.Sprintf("id IN (SELECT blob FROM message WHERE mailbox = %d) OR id IN (SELECT blob FROM outbound_message WHERE id %s)", m.boxID, sent),
			m.boxes, fill.Change{"id": back("id")}),
		m.Copy(ctx, "attempt", "message "+sent, m.boxes, fill.Change{"message": back("message")}),
		m.Copy(ctx, "filing", "message "+sent, m.boxes, fill.Change{"message": back("message")}),
		m.Copy(ctx, "delivery", "message "+sent, m.boxes, fill.Change{"message": back("message"), "account": m.ofAccount(), "recipient": m.renamed("recipient")}),
		m.Copy(ctx, "outbound_trace", "id "+sent, m.boxes, threads.With(fill.Change{
			"id": back("id"), "account": m.ofAccount(), "domain": m.ofDomain(), "reference": "r.reference + k",
		})),
		// Of the terms by which sent messages are found those of the domain are
		// right, and the others are those of nothing.
		m.Copy(ctx, "outbound_term", "message "+sent, m.boxes, fill.Change{
			"message": back("message"), "account": m.ofAccount(), "term": fmt.Sprintf("CASE WHEN r.term = %d THEN %s ELSE r.term + k END", m.domainID, m.ofDomain()),
		}),
		m.Copy(ctx, "outbound_message", "id "+sent, m.boxes, threads.With(fill.Change{
			"id": back("id"), "account": m.ofAccount(), "domain": m.ofDomain(), "blob": back("blob"), "reference": "r.reference + k",
		})),
		m.Copy(ctx, "message", fmt.Sprintf("mailbox = %d", m.boxID), m.boxes, fill.Change{
			"id": back("id"), "mailbox": back("mailbox"), "account": m.ofAccount(), "domain": m.ofDomain(), "blob": back("blob"), "outbound": back("outbound"),
			"reference": "r.reference + k", "thread": "CASE WHEN r.thread = '' THEN '' ELSE r.thread || '.' || k END",
		}),
	)
}

// events come before those that there are, which get later positions.
func (m *multiplied) events(ctx context.Context) error {
	where := fmt.Sprintf("(mailbox = %d OR message IN (SELECT outbound FROM message WHERE mailbox = %d))", m.boxID, m.boxID)
	copied, err := m.Ints(ctx, "SELECT id FROM event WHERE "+where+" ORDER BY position")
	if err != nil {
		return err
	}
	each, rank := int64(len(copied)), "CASE r.id"
	for i, id := range copied {
		rank += fmt.Sprintf(" WHEN %d THEN %d", id, i+1)
	}
	if err := m.Exec(ctx, fmt.Sprintf("UPDATE event SET position = position + %d", int64(m.boxes)*each)); err != nil {
		return err
	}
	last, err := m.Int(ctx, "SELECT MAX(position) FROM event")
	if err != nil {
		return err
	}
	return errors.Join(
		m.Exec(ctx, fmt.Sprintf("UPDATE webhook_mark SET position = %d", last)),
		m.Exec(ctx, fmt.Sprintf("UPDATE stat_upto SET position = %d", last)),
		m.Copy(ctx, "event", where, m.boxes, fill.Change{
			"id": back("id"), "account": m.ofAccount(), "domain": m.ofDomain(), "recipient": m.renamed("recipient"), "data": m.renamed("data"),
			"mailbox":  "CASE WHEN r.mailbox = 0 THEN 0 ELSE " + back("mailbox") + " END",
			"message":  "CASE WHEN r.message = 0 THEN 0 ELSE " + back("message") + " END",
			"position": fmt.Sprintf("CAST(%d - k AS BIGINT) * %d + %s END", m.boxes, each, rank),
		}),
		m.Copy(ctx, "webhook_delivery", fmt.Sprintf("id = (SELECT MIN(id) FROM event WHERE %s)", where), 10*m.boxes, fill.Change{"id": back("id"), "state": "'delivered'"}),
	)
}

// letters fill the large folder.
func (m *multiplied) letters(ctx context.Context) error {
	n := growthLetters * m.boxes
	where := fmt.Sprintf("id IN (SELECT message FROM folder_message WHERE folder = %d)", m.folder)
	size, err := m.Int(ctx, "SELECT size FROM message WHERE "+where)
	if err != nil {
		return err
	}
	if err := errors.Join(
		m.Copy(ctx, "message", where, n, fill.Change{"id": back("id")}),
		m.Copy(ctx, "folder_message", fmt.Sprintf("folder = %d", m.folder), n, fill.Change{"message": back("message"), "uid": "1 + k"}),
	); err != nil {
		return err
	}
	return errors.Join(
		m.Exec(ctx, fmt.Sprintf("UPDATE folder SET uid_next = uid_next + %d, messages = messages + %d, unseen = unseen + %d, bytes = bytes + %d, modseq = modseq + 1 WHERE id = %d",
			n, n, n, int64(n)*size, m.folder)),
		m.Exec(ctx, fmt.Sprintf("UPDATE mailbox_usage SET messages = messages + %d, bytes = bytes + %d WHERE mailbox = (SELECT mailbox FROM folder WHERE id = %d)",
			n, int64(n)*size, m.folder)),
	)
}
