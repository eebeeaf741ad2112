// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

// ThreadRef is the place of a message among an account's threads. The zero value is for a message
// without a thread.
type ThreadRef struct {
	Account db.ID
	Domain  db.ID // of the mailbox
	Thread  string
	// Arrival is the same for all copies of one message, so that they are shown as one.
	Arrival db.ID
}

// referenceKey is the key by which replies find the message. All copies have the same key, even
// without a Message-ID.
func (p ThreadRef) referenceKey(messageID string) int64 {
	switch {
	case p.Thread == "":
		return 0
	case messageID == "":
		return thread.LookupKey(p.Arrival.String())
	}
	return thread.LookupKey(messageID)
}

var (
	knownThreadsQuery = db.SQL(`WITH wanted (reference) AS (VALUES (CAST($3 AS BIGINT)), ($4), ($5), ($6), ($7), ($8), ($9), ($10), ($11), ($12),
			($13), ($14), ($15), ($16), ($17), ($18), ($19), ($20), ($21), ($22))
		SELECT m.id, m.thread_id, m.reference FROM wanted JOIN message m
			ON m.id = (SELECT id FROM message WHERE account = $1 AND reference = wanted.reference AND reference <> 0
				AND (CAST($2 AS BIGINT) = 0 OR domain = $2) ORDER BY arrival_id, id LIMIT 1)`)
	threadLinksQuery = db.SQL(`SELECT id, message_id FROM (SELECT id, message_id FROM message
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id LIMIT 1) AS oldest
		UNION SELECT id, message_id FROM (SELECT id, message_id FROM message
			WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id <= $4
			ORDER BY id DESC LIMIT 20) AS newest
		ORDER BY id`)
	// threadMessagesQuery leaves out messages that no folder shows, and all but the first of
	// several copies. It reads only as much of an envelope as honest senders need.
	threadMessagesQuery = db.SQL(`SELECT id, mailbox, outbound, message_id, SUBSTR(envelope, 1, 32768), size FROM message m
		WHERE account = $1 AND thread_id = $2 AND thread_id <> '' AND (CAST($3 AS BIGINT) = 0 OR domain = $3) AND id > $4
			AND EXISTS (SELECT 1 FROM folder_message WHERE message = m.id)
			AND NOT EXISTS (SELECT 1 FROM message c WHERE c.account = $1 AND c.reference = m.reference AND c.reference <> 0
				AND c.arrival_id = m.arrival_id AND c.id < m.id AND (CAST($3 AS BIGINT) = 0 OR c.domain = $3)
				AND EXISTS (SELECT 1 FROM folder_message WHERE message = c.id))
		ORDER BY id LIMIT $5`)
)

// Lookup implements thread.Source.
func (s *Folders) Lookup(ctx context.Context, account, domain db.ID, messageIDs []string) (map[string]thread.Match, error) {
	args := make([]any, 2+thread.MaxRepliedIDs)
	for i := range args {
		args[i] = 0
	}
	args[0], args[1] = account, domain
	names := map[int64]string{}
	for i, messageID := range messageIDs {
		key := thread.LookupKey(messageID)
		args[2+i], names[key] = key, messageID
	}
	found := map[string]thread.Match{}
	err := s.DB.Each(ctx, knownThreadsQuery.With(args...), func(r db.Row) error {
		var k thread.Match
		var key int64
		err := r.Scan(&k.ID, &k.Thread, &key)
		found[names[key]] = k
		return err
	})
	return found, err
}

// Chain implements thread.Source.
func (s *Folders) Chain(ctx context.Context, account, domain db.ID, name string, upTo db.ID) ([]thread.Message, error) {
	return db.All(ctx, s.DB, threadLinksQuery.With(account, name, domain, upTo), func(r db.Row) (l thread.Message, err error) {
		return l, r.Scan(&l.ID, &l.MessageID)
	})
}

// ThreadMessage is a received message of a thread.
type ThreadMessage struct {
	ID        db.ID // in the order of arrival
	Mailbox   db.ID // of the first copy
	Outbound  db.ID // the outbound_message that it is a delivery of; 0 for none
	MessageID string
	From      []message.Address // from its header
	To, Cc    []message.Address // likewise
	Subject   string
	Size      int64
}

// ThreadMessages returns at most limit messages of a thread of the account with ids above after,
// oldest first, and one of several copies. A domain other than 0 limits the result to its
// mailboxes.
func (s *Folders) ThreadMessages(ctx context.Context, account, domain db.ID, name string, after db.ID, limit int) ([]ThreadMessage, error) {
	return db.All(ctx, s.DB, threadMessagesQuery.With(account, name, domain, after, limit), func(r db.Row) (a ThreadMessage, err error) {
		var envelope []byte
		err = r.Scan(&a.ID, &a.Mailbox, &a.Outbound, &a.MessageID, &envelope, &a.Size)
		a.Subject = message.EnvelopeText(envelope, message.EnvelopeSubject)
		a.From, a.To, a.Cc = message.EnvelopeAddresses(envelope, message.EnvelopeFrom), message.EnvelopeAddresses(envelope, message.EnvelopeTo), message.EnvelopeAddresses(envelope, message.EnvelopeCc)
		return a, err
	})
}
