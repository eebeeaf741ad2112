// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"
)

// Run waits until ctx ends or the service fails, then shuts it down. It returns the error with
// which the service failed.
func (s *Server) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return s.Shutdown()
	case err := <-s.failed:
		s.Log.Error("the service cannot go on and shuts down", "err", err)
		return errors.Join(err, s.Shutdown())
	}
}

// Shutdown drains and stops the service. It accepts no new connections, lets running sessions and
// attempts finish within Config.Drain, then ends the background tasks, releases the node's lease
// and closes the database. Mail that sessions accept meanwhile stays queued in the database
// until the next start. Shutdown also cleans up after a failed start.
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
	for _, h := range s.httpServers {
		end(h.Shutdown)
	}
	for _, d := range s.smtpServers {
		end(d.Shutdown)
	}
	if s.imapServer != nil {
		end(s.imapServer.Shutdown)
	}
	end(func(context.Context) error { // it applies the same time limit itself
		s.drainTasks.stop()
		return nil
	})
	closing.Wait()
	for _, h := range s.httpServers {
		_ = h.Close() // close connections that did not finish in time
	}
	if s.listeners != nil {
		_ = s.listeners.close() // servers that were started have closed theirs
		s.listeners.serving.Wait()
	}
	s.tasks.stop()
	if s.smtpPool != nil {
		if err := s.smtpPool.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			errs = append(errs, err)
		}
	}
	s.leaseTasks.stop()
	if s.certs != nil {
		s.certs.Close()
	}
	if s.dnsServer != nil {
		errs = append(errs, s.dnsServer.Close())
	}
	if s.SearchIndex != nil {
		errs = append(errs, s.SearchIndex.Close())
	}
	if s.DB != nil {
		errs = append(errs, s.DB.Close())
	}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	return errors.Join(errs...)
}

// ShrinkMemory releases the memory of caches, which fill again with use.
func (s *Server) ShrinkMemory(ctx context.Context) error {
	return errors.Join(s.DB.ShrinkMemory(ctx), s.SearchIndex.ReleaseMemory(ctx))
}
