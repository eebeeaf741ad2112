// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
)

// flags changes the flags of all messages and of one.
func (r *imapRun) flags() error {
	var took []time.Duration
	for range 3 {
		for _, sign := range []string{"+", "-"} {
			d, err := r.measure("STORE 1:* "+sign+`FLAGS (\Flagged)`, r.messageCount)
			if err != nil {
				return err
			}
			took = append(took, d)
		}
	}
	r.add("storeall", durationMetric("", median(took)))
	order := newRand(9).Perm(r.messageCount)
	one, err := medianDuration(200, func() error {
		_, err := runCommand(r.c, fmt.Sprintf(`STORE %d +FLAGS (\Answered)`, 1+order[0]), 1)
		order = order[1:]
		return err
	})
	r.add("store", durationMetric("", one))
	return err
}

// copyMove copies, expunges and moves a thousand messages.
func (r *imapRun) copyMove() error {
	n := min(1000, r.messageCount/2)
	var copied, moved, expunged []time.Duration
	for range 3 {
		for _, step := range []struct {
			into    *[]time.Duration
			command string
			lines   int
		}{
			{&copied, fmt.Sprintf("COPY 1:%d Other", n), 0},
			{nil, "SELECT Other", 5},
			{nil, fmt.Sprintf(`STORE 1:%d +FLAGS.SILENT (\Deleted)`, n), 0},
			{&expunged, "EXPUNGE", n},
			{nil, "SELECT Bench", 5},
			{&moved, fmt.Sprintf("MOVE 1:%d Other", n), n},
			{nil, "SELECT Other", 5},
			{nil, "MOVE 1:* Bench", n},
			{nil, "SELECT Bench", 5},
		} {
			d, err := r.measure(step.command, step.lines)
			if err != nil {
				return err
			}
			if step.into != nil {
				*step.into = append(*step.into, d)
			}
		}
	}
	r.add("copy", durationMetric("", median(copied)))
	r.add("move", durationMetric("", median(moved)))
	r.add("expunge", durationMetric("", median(expunged)))
	return nil
}

// notify measures how long after the OK another session is notified of an APPEND.
func (r *imapRun) notify() error {
	listener, err := r.s.openIMAP(r.mailbox)
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	if _, err := listener.Command("SELECT INBOX"); err != nil {
		return err
	}
	if err := listener.Idle(); err != nil {
		return err
	}
	heard, failed := make(chan time.Time, 100), make(chan error, 1)
	go func() { failed <- recordExists(listener, heard) }()
	var took []time.Duration
	for i := range 20 {
		if _, err := r.c.Append("INBOX", r.b.messages[i]); err != nil {
			return err
		}
		answered := time.Now()
		select {
		case at := <-heard:
			// The notification may come before the OK.
			took = append(took, max(0, at.Sub(answered)))
		case err := <-failed:
			return err
		case <-time.After(35 * time.Second):
			return errors.New("IDLE: no EXISTS within 35 s of an APPEND")
		}
	}
	r.add("push", durationMetric("", median(took)))
	return nil
}

// recordExists sends the time of each EXISTS until the session ends.
func recordExists(c *imap.Client, heard chan<- time.Time) error {
	for {
		line, err := c.NextLine()
		if err != nil {
			return err
		}
		if bytes.HasSuffix(line, []byte(" EXISTS\r\n")) {
			select {
			case heard <- time.Now():
			default:
				return errors.New("IDLE: too many EXISTS")
			}
		}
	}
}
