// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/thread"
)

var (
	// knownByReferenceQuery finds submissions by the hashes of their Message-IDs, and the
	// traces of all mail.
	knownByReferenceQuery = db.SQL(`WITH wanted (reference) AS (VALUES (CAST($3 AS BIGINT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10), ($11), ($12),
			($13), ($14), ($15), ($16), ($17), ($18), ($19), ($20), ($21), ($22))
		SELECT m.id, m.account, m.domain, m.thread_id, m.message_id FROM wanted JOIN outbound_message m
			ON m.id = (SELECT id FROM outbound_message WHERE account = $1 AND reference = wanted.reference AND reference <> 0
				AND (CAST($2 AS BIGINT) = 0 OR domain = $2) ORDER BY id LIMIT 1)
		UNION ALL SELECT t.id, t.account, t.domain, t.thread_id, t.message_id FROM wanted JOIN outbound_trace t
			ON t.id = (SELECT id FROM outbound_trace WHERE account = $1 AND reference = wanted.reference
				AND (CAST($2 AS BIGINT) = 0 OR domain = $2) ORDER BY id LIMIT 1)`)
	// knownByIDQuery finds mail whose id is in its Message-ID.
	knownByIDQuery = db.SQL(`SELECT id, account, domain, thread_id, message_id FROM outbound_message
		WHERE id IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)`)
	threadChainQuery = db.SQL(`SELECT id, message_id FROM (SELECT id, message_id FROM outbound_message
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id LIMIT 1) AS oldest
		UNION SELECT id, message_id FROM (SELECT id, message_id FROM outbound_message
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id DESC LIMIT 20) AS newest
		UNION SELECT id, message_id FROM (SELECT id, message_id FROM outbound_trace
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id LIMIT 1) AS first_past
		UNION SELECT id, message_id FROM (SELECT id, message_id FROM outbound_trace
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id DESC LIMIT 20) AS last_past
		ORDER BY id`)
	threadMessagesQuery = db.SQL(`SELECT ` + rowColumns + ` FROM outbound_message
		WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id > $4
		ORDER BY id LIMIT $5`)
)

// assignThreads sets the thread of each message, and the fields by which the recipients' programs
// recognize it. A message that names neither a thread nor a message that it answers starts a
// thread, without a look-up. A key restricted to one domain answers messages of that domain only.
func (o *Outbox) assignThreads(ctx context.Context, p account.Principal, prepared []*preparedMessage) error {
	var placer *thread.Assigner
	for _, pc := range prepared {
		d := &pc.send.draft
		if pc.row.thread == "" && d.InReplyTo == "" {
			pc.row.thread = o.DB.NewID().String()
			continue
		}
		if placer == nil {
			only := db.ID(0)
			if p.Domain != "" {
				only = pc.sender.Domain // all messages are of this domain
			}
			placer = o.Threads.NewAssigner(p.Account, only)
		}
		at, err := placer.Assign(ctx, thread.Message{ID: pc.row.id, MessageID: pc.row.messageID}, pc.row.thread, d.InReplyTo)
		if err != nil {
			return err
		}
		pc.row.thread, d.InReplyTo = at.Thread, at.InReplyTo
		pc.send.setReferences(at.References...)
	}
	return nil
}

// parseOwnMessageID returns the id in a Message-ID that we generated.
func parseOwnMessageID(messageID string) (db.ID, bool) {
	local, _, ok := strings.Cut(strings.TrimPrefix(messageID, "<"), "@")
	if !ok || len(local) != 36 {
		return 0, false
	}
	id, err := db.ParseID(local)
	return id, err == nil
}

// IsOwnMessageID reports whether a Message-ID looks like one that the API generated.
func IsOwnMessageID(messageID string) bool {
	_, ok := parseOwnMessageID(messageID)
	return ok
}

// setReference sets the key by which a message is found when it is answered.
func (r *row) setReference() {
	if id, ok := parseOwnMessageID(r.messageID); !ok || id != r.id {
		r.reference = thread.LookupKey(r.messageID)
	}
}

// Lookup implements thread.Source.
func (o *Messages) Lookup(ctx context.Context, account, domain db.ID, messageIDs []string) (map[string]thread.Match, error) {
	found := map[string]thread.Match{}
	read := func(s db.Statement) error {
		return o.DB.Each(ctx, s, func(r db.Row) error {
			var k thread.Match
			var of, from db.ID
			var messageID string
			if err := r.Scan(&k.ID, &of, &from, &k.Thread, &messageID); err != nil {
				return err
			}
			if old, ok := found[messageID]; of == account && (domain == 0 || from == domain) && (!ok || k.ID < old.ID) {
				found[messageID] = k
			}
			return nil
		})
	}
	byID, byReference := make([]any, thread.MaxRepliedIDs), make([]any, 2+thread.MaxRepliedIDs)
	for i := range byID {
		byID[i], byReference[2+i] = 0, 0
	}
	byReference[0], byReference[1] = account, domain
	own := false
	for i, messageID := range messageIDs {
		byReference[2+i] = thread.LookupKey(messageID)
		if id, ok := parseOwnMessageID(messageID); ok {
			byID[i], own = id, true
		}
	}
	if own {
		if err := read(knownByIDQuery.With(byID...)); err != nil {
			return nil, err
		}
		if len(messageIDs) > 0 && found[messageIDs[0]].Thread != "" {
			return found, nil // the first Message-ID is known, so the others don't matter
		}
	}
	return found, read(knownByReferenceQuery.With(byReference...))
}

// Chain implements thread.Source.
func (o *Messages) Chain(ctx context.Context, account, domain db.ID, name string, upTo db.ID) ([]thread.Message, error) {
	return db.All(ctx, o.DB, threadChainQuery.With(account, name, domain, upTo), func(r db.Row) (l thread.Message, err error) {
		return l, r.Scan(&l.ID, &l.MessageID)
	})
}

// InThread returns at most limit messages of a thread of the account, those after an id, oldest
// first. If domain isn't 0, it returns only messages of that domain.
func (o *Outbox) InThread(ctx context.Context, account, domain db.ID, name string, after db.ID, limit int) ([]Message, error) {
	rows, err := db.All(ctx, o.DB, threadMessagesQuery.With(account, name, domain, after, limit), scanMessage)
	if err != nil {
		return nil, err
	}
	list := toMessages(rows)
	return list, o.Index.AddDeliveries(ctx, list)
}
