// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
	"github.com/mailstead/mailstead/internal/notify"
)

// settleTime is the idle time before a server's memory is measured.
const settleTime = 3 * time.Second

func waitSettled(ctx context.Context) error { return notify.Sleep(ctx, settleTime) }

func memoryMetric(label string, bytes float64) metric { return metric{label, bytes / 1e6, megabytes} }

// idleMemory measures the memory of a system that was just started.
func (b *bench) idleMemory(ctx context.Context, s *system) error {
	if err := waitSettled(ctx); err != nil {
		return err
	}
	bytes, err := s.process.memory()
	b.report.add("idle", s.name, memoryMetric("", bytes))
	return err
}

// footprint runs last: memory after the work, idle connections, and a restart with all the data.
func (b *bench) footprint(ctx context.Context, s *system, _ int) error {
	if s.binarySize > 0 {
		b.report.add("binary", s.name, memoryMetric("", float64(s.binarySize)))
	}
	if err := waitSettled(ctx); err != nil {
		return err
	}
	after, err := s.process.memory()
	if err != nil {
		return err
	}
	b.report.add("after", s.name, memoryMetric("", after))
	for range max(1, b.options.rounds) {
		if err := s.process.stop(); err != nil {
			return err
		}
		took, err := measure(func() (err error) {
			s.process, err = s.restart(ctx)
			return err
		})
		if err != nil {
			return err
		}
		b.report.add("start", s.name, durationMetric("", took))
	}
	if s.imap == "" {
		return nil
	}
	return b.idleSessions(ctx, s)
}

// idleSessions opens many sessions in IDLE, on a server just started.
func (b *bench) idleSessions(ctx context.Context, s *system) (err error) {
	// The first session's extra cost doesn't count.
	warm, err := openIdle(s, 0)
	if err != nil {
		return err
	}
	open := []*imap.Client{warm}
	defer func() {
		for _, c := range open {
			err = errors.Join(err, c.Close())
		}
	}()
	if err := waitSettled(ctx); err != nil {
		return err
	}
	before, err := s.process.memory()
	if err != nil {
		return err
	}
	for i := range b.options.conns {
		c, err := openIdle(s, i+1)
		if err != nil {
			return fmt.Errorf("idle connection %d: %w", i+1, err)
		}
		open = append(open, c)
	}
	if err := waitSettled(ctx); err != nil {
		return err
	}
	after, err := s.process.memory()
	b.report.add("conns", s.name, memoryMetric("", after), metric{"each", (after - before) / 1024 / float64(b.options.conns), kibibytes})
	return err
}

// openIdle connects from an address that few sessions share: servers limit connections per address.
func openIdle(s *system, i int) (*imap.Client, error) {
	c, err := imap.Dial(s.imap, fmt.Sprintf("127.0.2.%d", 1+i/40), clientTLS())
	if err != nil {
		return nil, err
	}
	me := s.mailboxes[i%len(s.mailboxes)]
	if err = c.Login(me.address, me.password); err == nil {
		if _, err = c.Command("SELECT INBOX"); err == nil {
			err = c.Idle()
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}
