// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
	"github.com/mailstead/mailstead/cmd/load/smtp"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fulltext"
	"github.com/mailstead/mailstead/internal/notify"
)

// system is a server under test: Mailstead on one engine, or a peer. Fields of missing features are
// empty, and their rows are omitted.
type system struct {
	name string // column of the table

	http       string // host:port of each listener
	mx         string
	submission string
	imap       string

	senders          []sender  // one per account, for the API
	mailboxes        []mailbox // mailboxes, for submission and MX
	privateMailboxes []mailbox // mailboxes for the IMAP work, one per round
	externalDomains  []string  // domains whose mail goes to the sink
	sink             *smtp.Sink
	submitted        atomic.Int64 // messages accepted for the sink, in all runs

	process      *process
	restart      func(ctx context.Context) (*process, error) // restarts with the same data
	greetingAddr string                                      // listener whose greeting means that it is ready
	queueLength  func() (int64, error)                       // messages in a peer's queue
	binarySize   int64                                       // bytes of the binary; 0: several binaries
	dataDir      string                                      // Mailstead's data directory
	noAuth       bool                                        // submission without AUTH
}

// sender is an account that may send by the API.
type sender struct{ token, from string }

// mailbox is a mailbox's address and password.
type mailbox struct{ address, password string }

// clientTLS returns a configuration that trusts any certificate.
func clientTLS() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: serviceHost} //nolint:gosec // our own server, on loopback
}

// openIMAP opens an IMAP session of a mailbox.
func (s *system) openIMAP(m mailbox) (*imap.Client, error) {
	c, err := imap.Dial(s.imap, "", clientTLS())
	if err != nil {
		return nil, err
	}
	if err := c.Login(m.address, m.password); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// backlog returns the number of accepted messages that are not delivered yet.
func (s *system) backlog() (int64, error) {
	if s.queueLength != nil {
		return s.queueLength()
	}
	return max(0, s.submitted.Load()-s.sink.Counts().Messages), nil
}

// waitIndexed waits until the search index has been idle for a while, and returns the time from the
// call to its last change. It returns 0 for peers, whose index can't be observed.
func (s *system) waitIndexed(ctx context.Context) (took time.Duration, err error) {
	if s.dataDir == "" {
		return 0, nil
	}
	began := time.Now()
	for last, still := db.ID(-1), 0; still < 5; still++ {
		upto, err := fulltext.Progress(ctx, filepath.Join(s.dataDir, "search.db"))
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

// drain waits until the backlog is empty, so that the next run begins idle.
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
		if notify.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("%d messages still wait in the queue", n)
		}
	}
}
