// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/signal"
)

// duties are goroutines that run until they are told to end.
type duties struct {
	server  *Server
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func (d *duties) init(s *Server) {
	d.server = s
	d.ctx, d.cancel = context.WithCancel(context.Background())
}

// run starts a duty. One that ends by itself with an error ends the service.
func (d *duties) run(f func(ctx context.Context) error) {
	d.running.Go(func() {
		if err := f(d.ctx); err != nil && d.ctx.Err() == nil {
			d.server.fail(err)
		}
	})
}

func (d *duties) end() {
	d.cancel()
	d.running.Wait()
}

// sweep deletes files that no message names. It must meet each twice.
func (s *Server) sweep(ctx context.Context) error {
	tick := time.NewTicker(blob.SweepRest)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := s.Blobs.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.report("sweeping files")(err)
		}
	}
}

// gather is how long what else is to be told other nodes gathers: each telling is
// a transaction, and to tell every message by itself costs a tenth of its filing.
const gather = 20 * time.Millisecond

// listenToNodes passes signals on to the other nodes, and theirs to here.
// What is remembered of a thing that changed elsewhere is forgotten.
func (s *Server) listenToNodes() {
	if s.DB.Engine() == db.SQLite {
		return
	}
	s.Hub.Forward = func(keys []signal.Key) {
		if err := s.DB.Notify(s.duties.ctx, signal.Encode(keys)...); err != nil && s.duties.ctx.Err() == nil {
			s.report("telling the other nodes")(err)
		}
		_ = signal.Sleep(s.duties.ctx, gather)
	}
	s.duties.run(func(ctx context.Context) error {
		return s.DB.Listen(ctx, func(payload string) {
			keys, err := signal.Decode(payload)
			if err != nil {
				s.report("reading what another node told")(err)
				return
			}
			for _, k := range keys {
				s.forget(k)
			}
			s.Hub.Receive(keys)
		}, func() {
			s.Mailboxes.ForgetAll()
			s.Hub.WakeAll()
		})
	})
}

func (s *Server) forget(k signal.Key) {
	switch id := db.ID(k.ID); k.Kind {
	case signal.Account:
		s.Accounts.Forget(id)
		s.Limits.Forget(id)
	case signal.Domain:
		s.Domains.Forget(id)
	case signal.Mailbox, signal.Credential:
		s.Mailboxes.Forget(id)
	}
}
