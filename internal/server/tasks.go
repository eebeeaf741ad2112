// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

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

// notifyInterval is how long signals for other nodes are collected: each notification is a
// transaction, and a separate one for each message costs a tenth of filing it.
const notifyInterval = 20 * time.Millisecond

// forwardToNodes returns the function that sends this node's signals to the other nodes; nil on
// SQLite, which has only one node.
func (s *Server) forwardToNodes() func([]notify.Key) {
	if s.DB.Engine() == db.SQLite {
		return nil
	}
	return func(keys []notify.Key) {
		if err := s.DB.Notify(s.tasks.ctx, notify.Encode(keys)...); err != nil && s.tasks.ctx.Err() == nil {
			s.logFailure("telling the other nodes")(err)
		}
		_ = notify.Sleep(s.tasks.ctx, notifyInterval)
	}
}

// listenToNodes receives the signals of other nodes. It invalidates cached data that changed
// elsewhere.
func (s *Server) listenToNodes() {
	if s.DB.Engine() == db.SQLite {
		return
	}
	s.tasks.run(func(ctx context.Context) error {
		return s.DB.Listen(ctx, func(payload string) {
			keys, err := notify.Decode(payload)
			if err != nil {
				s.logFailure("reading what another node told")(err)
				return
			}
			for _, k := range keys {
				s.invalidate(k)
			}
			s.Hub.Receive(keys)
		}, func() {
			s.Mailboxes.InvalidateAll()
			s.Hub.WakeAll()
		})
	})
}

func (s *Server) invalidate(k notify.Key) {
	switch id := db.ID(k.ID); k.Kind {
	case notify.Account:
		s.Accounts.Invalidate(id)
		s.Limits.Invalidate(id)
	case notify.Domain:
		s.Domains.Invalidate(id)
	case notify.Mailbox, notify.Credential:
		s.Mailboxes.Invalidate(id)
	}
}
