// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
)

// taskGroup is a group of goroutines that run until the group is stopped.
type taskGroup struct {
	server  *Server
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (d *taskGroup) init(s *Server) {
	d.server = s
	d.ctx, d.cancel = context.WithCancel(context.Background())
}

// run starts a task. A task that returns an error by itself ends the service.
func (d *taskGroup) run(f func(ctx context.Context) error) {
	d.running.Go(func() {
		if err := f(d.ctx); err != nil && d.ctx.Err() == nil {
			d.server.fail(err)
		}
	})
}

func (d *taskGroup) stop() {
	d.cancel()
	d.running.Wait()
}

// invalidate drops cached data that has changed on another node.
func (s *Server) invalidate(k notify.Key) {
	switch id := db.ID(k.ID); k.Kind {
	case notify.Account:
		s.Accounts.Invalidate(id)
		s.Limits.Invalidate(id)
	case notify.Domain:
		s.Domains.Invalidate(id)
	case notify.MailboxSettings, notify.Credential:
		s.Mailboxes.Invalidate(id)
	}
}
