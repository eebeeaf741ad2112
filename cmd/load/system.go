// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/cmd/load/smtp"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/search"
)

// system is a server under test: Mailstead on one engine, or a peer. What a
// system does not have is empty, and its rows are left out.
type system struct {
	name string // the column

	http       string // host:port of each door
	mx         string
	submission string
	imap       string

	senders          []sender  // one of each account, for the API
	mailboxes        []mailbox // mailboxes, for submission and MX
	privateMailboxes []mailbox // mailboxes for the IMAP work, one for each round
	externalDomains  []string  // domains whose mail goes to the sink
	sink             *smtp.Sink
	submitted        atomic.Int64 // accepted for the sink, over all runs

	process      *process
	restart      func(ctx context.Context) (*process, error) // starts again on the same data
	greetingAddr string                                      // which door tells that it is up
	queueLength  func() (int64, error)                       // what waits in a peer's queue
	binarySize   int64                                       // bytes of the binary; 0: many binaries
	dataDir      string                                      // Mailstead's data folder
	noAuth       bool                                        // submission without AUTH
}

// sender is an account that may send by API.
type sender struct{ token, from string }

// mailbox is a mailbox's address and password.
type mailbox struct{ address, password string }

// clientTLS trusts whatever certificate the server under test shows.
func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: serviceHost} //nolint:gosec // our own server, on loopback
}

// backlog is what was accepted but has not left yet.
func (s *system) backlog() (int64, error) {
	if s.queueLength != nil {
		return s.queueLength()
	}
	return max(0, s.submitted.Load()-s.sink.Counts().Messages), nil
}

// waitIndexed waits until the search index has come to rest, having taken in nothing
// for a while, and returns when it did so, from the call on. Peers have none that
// could be looked at: 0.
func (s *system) waitIndexed(ctx context.Context) (took time.Duration, err error) {
	if s.dataDir == "" {
		return 0, nil
	}
	began := time.Now()
	for last, still := db.ID(-1), 0; still < 5; still++ {
		upto, err := search.Progress(ctx, filepath.Join(s.dataDir, "search.db"))
		if err != nil {
			return 0, err
		}
		if upto != last {
			last, still, took = upto, 0, time.Since(began)
		}
		if err := waitSettled(ctx); err != nil {
			return 0, err
		}
	}
	return took, nil
}

// drain waits until nothing waits any more, so that the next run begins
// with idle couriers.
func (s *system) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if s.sink != nil {
		if err := s.sink.WaitMessages(ctx, s.submitted.Load()); err != nil {
			return err
		}
	}
	for {
		n, err := s.backlog()
		if err != nil || n == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d messages still wait in the queue", n)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
