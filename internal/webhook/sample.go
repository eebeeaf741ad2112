// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
)

// samples is made-up data of every kind, in the form of real ones.
func samples(now time.Time, newID func() db.ID) map[string]map[string]any {
	message := newID()
	about := func(sequence int, more map[string]any) map[string]any {
		data := map[string]any{
			"message_id": "<" + message.String() + "@example.com>", "id": message, "thread_id": newID(), "metadata": map[string]any{"order": "1234"},
			"recipient": "carol@example.net", "sequence": sequence,
		}
		for k, v := range more {
			data[k] = v
		}
		return data
	}
	return map[string]map[string]any{
		event.DeliveryStatus: about(1, map[string]any{
			"status": "delivered", "attempts": 1, "smtp_code": 250, "enhanced_code": "2.0.0", "diagnostic": "OK", "remote_mta": "mx.example.net",
		}),
		event.Bounce: about(2, map[string]any{
			"type": "Permanent", "subtype": "NoSuchUser", "category": "recipient", "smtp_code": 550, "enhanced_code": "5.1.1",
			"diagnostic": "no such user here", "remote_mta": "mx.example.net",
		}),
		event.Complaint: about(2, map[string]any{"feedback_type": "abuse", "reporter": "example.net"}),
		event.InboundEmail: {
			"message_id": "<test@example.net>", "id": message, "mailbox_id": newID(), "domain_id": newID(), "recipient": "alice@example.com",
			"from": map[string]any{"email": "carol@example.net", "name": "Carol"}, "to": []any{map[string]any{"email": "alice@example.com"}},
			"subject": "Hello", "text": "Hello Alice", "html": "", "thread_id": newID(), "attachments": []any{},
		},
		event.DomainVerified:    {"domain_id": newID(), "name": "example.com", "status": "verified", "verified_at": now},
		event.MailboxCreated:    {"mailbox_id": newID(), "domain_id": newID(), "address": "alice@example.com", "display_name": "Alice"},
		event.MigrationComplete: {"migration_id": newID(), "mailbox_id": newID(), "status": "completed", "folders": 7, "messages": 1234, "failed": 0},
		event.RateLimitWarning:  {"limit": "sends_per_hour", "window": "hour", "used": 800, "quota": 1000, "resets_at": now.Add(time.Hour).Truncate(time.Hour)},
	}
}
