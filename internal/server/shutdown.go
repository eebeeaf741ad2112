// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"
)

// Run waits until ctx ends, or until the service can't go on, then shuts it down.
// It returns what the service could not go on with.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return s.Shutdown()
	case err := <-s.failed:
		s.Log.Error("the service cannot go on and shuts down", "err", err)
		return errors.Join(err, s.Shutdown())
	}
}

// Shutdown drains and ends the service: no new connections, sessions and
// attempts in hand finish within Config.Drain, then the background work, then
// the node's tenure, then the database. What sessions still hand in waits in
// its rows for the next start. It also cleans up after a start that failed.
func (s *Server) Shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.Config.Drain)
	defer cancel()
	var errs []error
	var closing sync.WaitGroup
	var mu sync.Mutex
	end := func(f func(context.Context) error) {
		closing.Go(func() {
			err := f(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				errs = append(errs, err)
			}
		})
	}
	for _, h := range s.http {
		end(h.Shutdown)
	}
	for _, d := range s.smtp {
		end(d.Shutdown)
	}
	if s.imap != nil {
		end(s.imap.Shutdown)
	}
	end(func(context.Context) error { // it keeps the same time by itself
		s.carrying.end()
		return nil
	})
	closing.Wait()
	for _, h := range s.http {
		_ = h.Close() // what did not finish in time
	}
	if s.doors != nil {
		_ = s.doors.close() // those that serve closed theirs already
		s.doors.serving.Wait()
	}
	s.duties.end()
	if s.pool != nil {
		if err := s.pool.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	s.lease.end()
	if s.certs != nil {
		s.certs.Close()
	}
	if s.zone != nil {
		errs = append(errs, s.zone.Close())
	}
	if s.Search != nil {
		errs = append(errs, s.Search.Close())
	}
	if s.DB != nil {
		errs = append(errs, s.DB.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.close())
	}
	return errors.Join(errs...)
}

// Shrink gives back the memory of caches that fill again with use.
func (s *Server) Shrink(ctx context.Context) error {
	return errors.Join(s.DB.Shrink(ctx), s.Search.Shrink(ctx))
}
