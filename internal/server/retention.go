// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/ratelimit"
	"github.com/mailstead/mailstead/internal/retention"
	"github.com/mailstead/mailstead/internal/stat"
)

// maxRetentionDays is the longest retention, other than forever. The shortest one depends on how
// long the data may still be needed.
const maxRetentionDays = 36500

// auditRetention is how long audit log entries are stored.
const auditRetention = 400 * 24 * time.Hour

func (c *Config) checkRetention() error {
	for _, s := range []struct {
		flag        string
		days, least int
	}{
		{"messages", c.KeepMessages, 7}, // remote hosts may retry for so long before they bounce (RFC 5321 §4.5.4.1)
		{"attempts", c.KeepAttempts, 1},
		{"threads", c.KeepThreads, 7},
		{"events", c.KeepEvents, 10}, // a webhook may need one for up to eight days
	} {
		if s.days != 0 && (s.days < s.least || s.days > maxRetentionDays) {
			return fmt.Errorf("--keep-%s must be 0, for ever, or from %d to %d days", s.flag, s.least, maxRetentionDays)
		}
	}
	return nil
}

// newRetention creates the pruner of expired data. It deletes attempts before messages, so that
// these have fewer rows.
func (s *Server) newRetention() *retention.Pruner {
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	return &retention.Pruner{
		DB: s.DB, Node: s.node, Load: s.Outbox.AcceptLoad, Now: time.Now, Log: s.Log,
		Tasks: []retention.Task{
			{Name: "attempts", MaxAge: days(s.Config.KeepAttempts), Prune: s.Queue.PruneAttempts},
			{Name: "messages", MaxAge: days(s.Config.KeepMessages), Prune: s.Outbox.Prune},
			{Name: "traces of messages", MaxAge: days(s.Config.KeepThreads), Prune: s.Outbox.PruneTraces},
			{Name: "webhook deliveries", MaxAge: days(s.Config.KeepEvents), Prune: s.Webhooks.Prune},
			{Name: "events", MaxAge: days(s.Config.KeepEvents), Prune: s.Events.Prune},
			{Name: "figures of hours", MaxAge: stat.HourlyRetention, Prune: s.Stats.Prune},
			{Name: "figures of tags", MaxAge: stat.TagRetention, Prune: s.Stats.PruneTags},
			{Name: "sessions and links", MaxAge: time.Hour, Prune: s.Users.PruneSessions},
			{Name: "activity of people", MaxAge: auditRetention, Prune: s.Audit.Prune},
			{Name: "sign-ins", MaxAge: mailbox.SignInRetention, Prune: s.Mailboxes.PruneSignIns},
			{Name: "failed log-ins", MaxAge: time.Minute, Prune: s.Logins.PruneFailures},
			{Name: "networks of log-ins", MaxAge: ratelimit.KnownNetworkTTL, Prune: s.Logins.PruneNetworks},
			{Name: "whom vacation replies answered", MaxAge: mailbox.VacationReplyRetention, Prune: s.Mailboxes.PruneVacationReplies},
			{Name: "notes of what was filed", MaxAge: inbound.FilingRetention, Prune: s.Inbound.PruneFilings},
			{Name: "senders of forwarded messages", MaxAge: inbound.ForwardPathRetention, Prune: s.Inbound.PruneForwardPaths},
		},
	}
}
