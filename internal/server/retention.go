// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/retention"
)

// The least and the most days that something can be kept. Within a week a mail
// host may still report that it gave up (RFC 5321 §4.5.4.1), and a webhook is
// still being tried.
const leastKeep, mostKeep = 7, 36500

func (c *Config) checkRetention() error {
	for _, s := range []struct {
		flag string
		days int
	}{{"messages", c.KeepMessages}, {"attempts", c.KeepAttempts}, {"threads", c.KeepThreads}, {"events", c.KeepEvents}} {
		if s.days != 0 && (s.days < leastKeep || s.days > mostKeep) {
			return fmt.Errorf("--keep-%s must be 0, for ever, or from %d to %d days", s.flag, leastKeep, mostKeep)
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
			{Name: "notes of what was filed", Keep: inbound.FilingLife, Prune: s.Inbound.Prune},
		},
	}
}
