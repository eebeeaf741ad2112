// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/outbound"
)

// ThreadMessage is a message of a thread. One of Sent and Received is set.
type ThreadMessage struct {
	ID       db.ID
	Sent     *outbound.Message
	Received *folder.ThreadMessage
}

// ValidThreadID reports whether a text can be the id of a thread.
func ValidThreadID(id string) bool {
	if id == "" || !utf8.ValidString(id) || utf8.RuneCountInString(id) > 255 {
		return false
	}
	for _, c := range id {
		if !unicode.IsPrint(c) {
			return false
		}
	}
	return true
}

// ThreadPage returns a page of the messages of an account's thread, oldest first, and whether there
// are more. A domain other than 0 selects only the messages of that domain.
func (s *Services) ThreadPage(ctx context.Context, account, domain db.ID, thread string, after db.ID, limit int) (page []ThreadMessage, more bool, err error) {
	sent, err := s.Outbox.InThread(ctx, account, domain, thread, after, limit+1)
	if err != nil {
		return nil, false, err
	}
	received, err := s.Folders.ThreadMessages(ctx, account, domain, thread, after, limit+1)
	if err != nil {
		return nil, false, err
	}
	for i := range sent {
		page = append(page, ThreadMessage{ID: sent[i].ID, Sent: &sent[i]})
	}
	for i := range received {
		page = append(page, ThreadMessage{ID: received[i].ID, Received: &received[i]})
	}
	slices.SortFunc(page, func(a, b ThreadMessage) int { return cmp.Compare(a.ID, b.ID) })
	return page[:min(len(page), limit)], len(page) > limit, nil
}

// OmitDeletedMailboxMessages removes the received messages in deleted mailboxes.
func (s *Services) OmitDeletedMailboxMessages(ctx context.Context, account db.ID, page []ThreadMessage) ([]ThreadMessage, error) {
	exists := map[db.ID]bool{}
	for _, m := range page {
		if m.Received == nil {
			continue
		}
		if _, known := exists[m.Received.Mailbox]; known {
			continue
		}
		_, err := s.Mailboxes.Get(ctx, account, m.Received.Mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, err
		}
		exists[m.Received.Mailbox] = err == nil
	}
	return slices.DeleteFunc(page, func(m ThreadMessage) bool { return m.Received != nil && !exists[m.Received.Mailbox] }), nil
}
