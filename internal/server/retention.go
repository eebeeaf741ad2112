// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/retention"
	"github.com/mailstead/mailstead/internal/stat"
	"github.com/mailstead/mailstead/internal/throttle"
)

// mostKeep is the most days that something can be kept, if not for ever. What is
// the least depends on who may still ask for it.
const mostKeep = 36500

// activityKept is how long it is known who did what in the dashboard.
const activityKept = 400 * 24 * time.Hour

func (c *Config) checkRetention() error {
	for _, s := range []struct {
		flag        string
		days, least int
	}{
		{"messages", c.KeepMessages, 7}, // a host may try for so long before it reports (RFC 5321 §4.5.4.1)
		{"attempts", c.KeepAttempts, 1},
		{"threads", c.KeepThreads, 7},
		{"events", c.KeepEvents, 10}, // a webhook may wait for one for eight days
	} {
		if s.days != 0 && (s.days < s.least || s.days > mostKeep) {
			return fmt.Errorf("--keep-%s must be 0, for ever, or from %d to %d days", s.flag, s.least, mostKeep)
		}
	}
	return nil
}

// retention deletes what was kept for long enough. Attempts go before the
// messages, so that these have fewer rows.
func (s *Server) retention() *retention.Keeper {
	days := func(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }
	return &retention.Keeper{
		DB: s.DB, Node: s.node, Load: s.Outbox.Load, Now: time.Now, Log: s.Log,
		Tasks: []retention.Task{
			{Name: "attempts", Keep: days(s.Config.KeepAttempts), Prune: s.Queue.PruneAttempts},
			{Name: "messages", Keep: days(s.Config.KeepMessages), Prune: s.Outbox.Prune},
			{Name: "traces of messages", Keep: days(s.Config.KeepThreads), Prune: s.Outbox.PruneTraces},
			{Name: "webhook deliveries", Keep: days(s.Config.KeepEvents), Prune: s.Webhooks.Prune},
			{Name: "events", Keep: days(s.Config.KeepEvents), Prune: s.Events.Prune},
			{Name: "figures of hours", Keep: stat.HoursKept, Prune: s.Stats.Prune},
			{Name: "sessions and links", Keep: time.Hour, Prune: s.Users.Prune},
			{Name: "activity of people", Keep: activityKept, Prune: s.Audit.Prune},
			{Name: "sign-ins", Keep: mailbox.SignInLife, Prune: s.Mailboxes.PruneSignIns},
			{Name: "failed log-ins", Keep: time.Minute, Prune: s.Logins.PruneFailures},
			{Name: "networks of log-ins", Keep: throttle.KnownFor, Prune: s.Logins.PruneNetworks},
			{Name: "whom vacation replies answered", Keep: mailbox.AnswerLife, Prune: s.Mailboxes.PruneAnswers},
			{Name: "notes of what was filed", Keep: inbound.FilingLife, Prune: s.Inbound.Prune},
			{Name: "senders of forwarded messages", Keep: inbound.PathLife, Prune: s.Inbound.PrunePaths},
		},
	}
}
