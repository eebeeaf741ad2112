// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/cmd/load/fill"
	"github.com/mailstead/mailstead/internal/db"
)

// idStride is the distance between the ids of consecutive copies: ten seconds, which is longer than
// creating the originals took (db.ID).
const idStride = 10_000 << 22

// multiplyRows multiplies the rows of the mailbox, its mail, its domain and its account: a third
// belongs to the existing account, and the rest to ten others per thousand mailboxes.
func (g *grownService) multiplyRows(ctx context.Context) (err error) {
	d, err := fill.Open(ctx, g.database, g.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(ctx)) }()
	m := &multiplier{DB: d, grownService: g, otherAccounts: max(1, g.mailboxCount/100), ownDomains: max(60, g.mailboxCount/100)}
	if err := m.readIDs(ctx); err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{m.accounts, m.mailboxes, m.mail, m.events, m.folderMessages} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

type multiplier struct {
	*fill.DB
	*grownService
	otherAccounts, ownDomains         int // additional accounts, each with a domain; domains of the first account
	accountKey, domainKey, mailboxKey int64
	folderID                          int64 // folder that gets many messages
}

func (m *multiplier) readIDs(ctx context.Context) (err error) {
	for _, id := range []struct {
		text string
		into *int64
	}{{m.domainID, &m.domainKey}, {m.mailboxID, &m.mailboxKey}} {
		parsed, failed := db.ParseID(id.text)
		*id.into, err = int64(parsed), errors.Join(err, failed)
	}
	archive, failed := db.ParseID(m.archiveID)
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if m.accountKey, err = m.QueryInt(ctx, fmt.Sprintf("SELECT account FROM domain WHERE id = %d", m.domainKey)); err != nil {
		return err
	}
	m.folderID, err = m.QueryInt(ctx, fmt.Sprintf("SELECT id FROM folder WHERE mailbox = %d AND name = 'INBOX'", archive))
	return err
}

// copiedID returns the column's value in copy k.
func copiedID(column string) string {
	return fmt.Sprintf("r.%s - k * CAST(%d AS BIGINT)", column, idStride)
}

// domainIndex returns the number of mailbox k's domain. The last domain has no mailboxes.
func (m *multiplier) domainIndex() string {
	return fmt.Sprintf("(CASE WHEN k %% 3 = 0 THEN %d + (k / 3) %% %d ELSE 1 + k %% %d END)", m.otherAccounts+1, m.ownDomains-1, m.otherAccounts)
}

func (m *multiplier) copiedAccount() string {
	return fmt.Sprintf("%d - CASE WHEN k %% 3 = 0 THEN 0 ELSE (1 + k %% %d) * CAST(%d AS BIGINT) END", m.accountKey, m.otherAccounts, idStride)
}

func (m *multiplier) copiedDomain() string {
	return fmt.Sprintf("%d - %s * CAST(%d AS BIGINT)", m.domainKey, m.domainIndex(), idStride)
}

// copiedAddress returns a column in which the copy's address replaces the mailbox's.
func (m *multiplier) copiedAddress(column string) string {
	return fmt.Sprintf("REPLACE(r.%s, 'seed@%s', 'box' || k || '@d' || %s || '.%s')", column, m.domainName, m.domainIndex(), m.domainName)
}

func (m *multiplier) accounts(ctx context.Context) error {
	all := m.otherAccounts + m.ownDomains
	distant := "9000000000000000" // never due
	where := fmt.Sprintf("domain = %d", m.domainKey)
	err := errors.Join(
		m.Copy(ctx, "account", fmt.Sprintf("id = %d", m.accountKey), m.otherAccounts, fill.Values{"id": copiedID("id"), "email": "'owner' || k || '@' || 'd' || k || '.' || '" + m.domainName + "'"}),
		m.Copy(ctx, "domain", fmt.Sprintf("id = %d", m.domainKey), all, fill.Values{
			"id": copiedID("id"), "name": "'d' || k || '.' || r.name", "next_check_at": distant,
			"account": fmt.Sprintf("CASE WHEN k <= %d THEN %s ELSE r.account END", m.otherAccounts, copiedID("account")),
		}),
		m.Copy(ctx, "dkim_key", where, all, fill.Values{"id": copiedID("id"), "domain": copiedID("domain")}),
		m.Copy(ctx, "suppression", "address = 'seed@bench-sink.net'", 3*m.mailboxCount, fill.Values{"id": copiedID("id"), "address": "'s' || k || '@bench-sink.net'"}),
		m.Copy(ctx, "dashboard_audit", "id = (SELECT MAX(id) FROM dashboard_audit)", 3*m.mailboxCount, fill.Values{"id": copiedID("id")}),
	)
	m.emptyDomainID = db.ID(m.domainKey - int64(all)*idStride).String()
	return err
}

func (m *multiplier) mailboxes(ctx context.Context) error {
	at := fmt.Sprintf("mailbox = %d", m.mailboxKey)
	return errors.Join(
		m.Copy(ctx, "mailbox", fmt.Sprintf("id = %d", m.mailboxKey), m.mailboxCount, fill.Values{
			"id": copiedID("id"), "account": m.copiedAccount(), "domain": m.copiedDomain(), "local_part": "'box' || k", "address": m.copiedAddress("address"),
		}),
		m.Exec(ctx, "DELETE FROM mailbox_storage"),
		m.Exec(ctx, "INSERT INTO mailbox_storage (account, allotted) SELECT account, SUM(quota) FROM mailbox WHERE deleted_at = 0 GROUP BY account"),
		// The right number of rows; searches only find that they belong to other accounts.
		m.Copy(ctx, "mailbox_piece", at, m.mailboxCount, fill.Values{"account": m.copiedAccount(), "mailbox": copiedID("mailbox")}),
		m.Copy(ctx, "mailbox_usage", at, m.mailboxCount, fill.Values{"mailbox": copiedID("mailbox")}),
		m.Copy(ctx, "folder", at, m.mailboxCount, fill.Values{"id": copiedID("id"), "mailbox": copiedID("mailbox")}),
		m.Copy(ctx, "subscription", at, m.mailboxCount, fill.Values{"mailbox": copiedID("mailbox")}),
	)
}

func (m *multiplier) mail(ctx context.Context) error {
	message := fmt.Sprintf("message IN (SELECT id FROM message WHERE mailbox = %d)", m.mailboxKey)
	sent := fmt.Sprintf("IN (SELECT outbound FROM message WHERE mailbox = %d)", m.mailboxKey)
	threads := fill.Values{"thread_id": "CASE WHEN r.thread_id = '' THEN '' ELSE r.thread_id || '.' || k END"}
	return errors.Join(
		m.Copy(ctx, "folder_message", message, m.mailboxCount, fill.Values{"folder": copiedID("folder"), "message": copiedID("message")}),
		m.Copy(ctx, "blob", fmt.Sprintf("id IN (SELECT blob FROM message WHERE mailbox = %d) OR id IN (SELECT blob FROM outbound_message WHERE id %s)", m.mailboxKey, sent),
			m.mailboxCount, fill.Values{"id": copiedID("id")}),
		m.Copy(ctx, "attempt", "message "+sent, m.mailboxCount, fill.Values{"message": copiedID("message")}),
		m.Copy(ctx, "filed_delivery", "message "+sent, m.mailboxCount, fill.Values{"message": copiedID("message")}),
		m.Copy(ctx, "delivery", "message "+sent, m.mailboxCount, fill.Values{"message": copiedID("message"), "account": m.copiedAccount(), "recipient": m.copiedAddress("recipient")}),
		m.Copy(ctx, "outbound_trace", "id "+sent, m.mailboxCount, threads.Merge(fill.Values{
			"id": copiedID("id"), "account": m.copiedAccount(), "domain": m.copiedDomain(), "reference": "r.reference + k",
		})),
		// Of the search terms for sent messages, only those of the domain are real; the others
		// match nothing.
		m.Copy(ctx, "outbound_term", "message "+sent, m.mailboxCount, fill.Values{
			"message": copiedID("message"), "account": m.copiedAccount(), "term": fmt.Sprintf("CASE WHEN r.term = %d THEN %s ELSE r.term + k END", m.domainKey, m.copiedDomain()),
		}),
		m.Copy(ctx, "outbound_message", "id "+sent, m.mailboxCount, threads.Merge(fill.Values{
			"id": copiedID("id"), "account": m.copiedAccount(), "domain": m.copiedDomain(), "blob": copiedID("blob"), "reference": "r.reference + k",
		})),
		m.Copy(ctx, "message", fmt.Sprintf("mailbox = %d", m.mailboxKey), m.mailboxCount, fill.Values{
			"id": copiedID("id"), "mailbox": copiedID("mailbox"), "account": m.copiedAccount(), "domain": m.copiedDomain(), "blob": copiedID("blob"), "outbound": copiedID("outbound"),
			"reference": "r.reference + k", "thread_id": "CASE WHEN r.thread_id = '' THEN '' ELSE r.thread_id || '.' || k END",
		}),
	)
}

// events inserts copies before the existing events, which get later positions.
func (m *multiplier) events(ctx context.Context) error {
	where := fmt.Sprintf("(mailbox = %d OR message IN (SELECT outbound FROM message WHERE mailbox = %d))", m.mailboxKey, m.mailboxKey)
	copied, err := m.QueryInts(ctx, "SELECT id FROM event WHERE "+where+" ORDER BY position")
	if err != nil {
		return err
	}
	each, rank := int64(len(copied)), "CASE r.id"
	for i, id := range copied {
		rank += fmt.Sprintf(" WHEN %d THEN %d", id, i+1)
	}
	if err := m.Exec(ctx, fmt.Sprintf("UPDATE event SET position = position + %d", int64(m.mailboxCount)*each)); err != nil {
		return err
	}
	last, err := m.QueryInt(ctx, "SELECT MAX(position) FROM event")
	if err != nil {
		return err
	}
	return errors.Join(
		m.Exec(ctx, fmt.Sprintf("UPDATE webhook_position SET position = %d", last)),
		m.Exec(ctx, fmt.Sprintf("UPDATE stat_position SET position = %d", last)),
		m.Copy(ctx, "event", where, m.mailboxCount, fill.Values{
			"id": copiedID("id"), "account": m.copiedAccount(), "domain": m.copiedDomain(), "recipient": m.copiedAddress("recipient"), "data": m.copiedAddress("data"),
			"mailbox":  "CASE WHEN r.mailbox = 0 THEN 0 ELSE " + copiedID("mailbox") + " END",
			"message":  "CASE WHEN r.message = 0 THEN 0 ELSE " + copiedID("message") + " END",
			"position": fmt.Sprintf("CAST(%d - k AS BIGINT) * %d + %s END", m.mailboxCount, each, rank),
		}),
		m.Copy(ctx, "webhook_delivery", fmt.Sprintf("id = (SELECT MIN(id) FROM event WHERE %s)", where), 10*m.mailboxCount, fill.Values{"id": copiedID("id"), "state": "'delivered'"}),
	)
}

// folderMessages fills the large folder.
func (m *multiplier) folderMessages(ctx context.Context) error {
	n := growthFolderMessages * m.mailboxCount
	where := fmt.Sprintf("id IN (SELECT message FROM folder_message WHERE folder = %d)", m.folderID)
	size, err := m.QueryInt(ctx, "SELECT size FROM message WHERE "+where)
	if err != nil {
		return err
	}
	if err := errors.Join(
		m.Copy(ctx, "message", where, n, fill.Values{"id": copiedID("id")}),
		m.Copy(ctx, "folder_message", fmt.Sprintf("folder = %d", m.folderID), n, fill.Values{"message": copiedID("message"), "uid": "1 + k"}),
	); err != nil {
		return err
	}
	return errors.Join(
		m.Exec(ctx, fmt.Sprintf("UPDATE folder SET uid_next = uid_next + %d, messages = messages + %d, unseen = unseen + %d, bytes = bytes + %d, modseq = modseq + 1 WHERE id = %d",
			n, n, n, int64(n)*size, m.folderID)),
		m.Exec(ctx, fmt.Sprintf("UPDATE mailbox_usage SET messages = messages + %d, bytes = bytes + %d WHERE mailbox = (SELECT mailbox FROM folder WHERE id = %d)",
			n, int64(n)*size, m.folderID)),
	)
}
