// SPDX-License-Identifier: Apache-2.0

// Package crowdtest runs a crowd of IMAP clients against one mailbox. They append, flag, move,
// expunge and fetch in the same folders at once, only over the network. Each client checks
// everything it is told: sequence numbers, UIDs, flags and mod-sequences. The responses to one
// client must also agree with those to all the others.
package crowdtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Stress configures the test. Its folders are INBOX and Archive, which nobody else may use
// meanwhile.
type Stress struct {
	Dial           []func() (net.Conn, error) // to each node, with login allowed; the sessions take turns
	User, Password string
	Sessions       int
	Rounds, Steps  int // after each round of Steps steps of each session, all must agree
	Seed           uint64
	// ExclusiveRecent states that a message is recent to at most one session, which holds within a
	// node.
	ExclusiveRecent bool
}

var folders = []string{"INBOX", "Archive"}

// timeout is how long a response may take, and how long sessions may disagree when nothing changes,
// on a slow shared machine.
const timeout = 90 * time.Second

// Run runs the test and fails it at the first contradiction.
func (c Stress) Run(t testing.TB) {
	t.Helper()
	l := newHistory(c.ExclusiveRecent)
	crowd := make([]*session, c.Sessions)
	for i := range crowd {
		crowd[i] = &session{config: &c, history: l, id: i, extension: extension(i % 3), rnd: rand.New(rand.NewPCG(c.Seed, uint64(i)))}
		if err := crowd[i].start(); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
		defer crowd[i].close()
	}
	for round := range c.Rounds {
		errs := make([]error, len(crowd))
		var all sync.WaitGroup
		for i, s := range crowd {
			all.Go(func() {
				for step := 0; step < c.Steps && errs[i] == nil; step++ {
					errs[i] = s.step()
				}
			})
		}
		all.Wait()
		for i, s := range crowd {
			if errs[i] != nil {
				t.Errorf("seed %d, round %d, session %d (%s): %v\nits last words:\n%s", c.Seed, round, i, s.extension, errs[i], s.transcript())
			}
		}
		if t.Failed() {
			return
		}
		if err := c.checkConsistency(l, crowd); err != nil {
			t.Fatalf("seed %d, after round %d: %v", c.Seed, round, err)
		}
	}
	t.Logf("seed %d: %d answers by %d sessions, %d states of %d messages", c.Seed, l.responses.Load(), c.Sessions, l.stateCount(), l.messageCount())
}

// checkConsistency waits until every session knows what a new session finds, and checks the
// history. Nobody changes anything meanwhile, but one node may learn of another's changes a little
// later.
func (c Stress) checkConsistency(l *history, crowd []*session) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(timeout)
	for _, name := range folders {
		fresh := &session{config: &c, history: l, id: -1, extension: qresync, rnd: crowd[0].rnd}
		if err := fresh.open(name); err != nil {
			return fmt.Errorf("a new session: %w", err)
		}
		fresh.close()
		for _, s := range crowd {
			for s.folder == name {
				err := s.mustRun("NOOP")
				if err == nil {
					err = s.fetchUnknown()
				}
				if err != nil {
					return fmt.Errorf("session %d: %w", s.id, err)
				}
				differs := s.compare(fresh)
				if differs == nil {
					break
				}
				select {
				case <-tick.C:
				case <-late:
					return fmt.Errorf("session %d (%s) and a new one disagree on %s: %w\n%s", s.id, s.extension, name, differs, s.transcript())
				}
			}
			if err := s.checkSavedStates(name, fresh); err != nil {
				return fmt.Errorf("session %d: %w", s.id, err)
			}
		}
	}
	return l.check()
}

// compare compares what two sessions know about a folder.
func (s *session) compare(fresh *session) error {
	if len(s.messages) != len(fresh.messages) {
		return fmt.Errorf("%d messages or %d", len(s.messages), len(fresh.messages))
	}
	for i, m := range s.messages {
		if !m.equal(fresh.messages[i]) {
			return fmt.Errorf("message %d is %v or %v", i+1, m, fresh.messages[i])
		}
	}
	return nil
}

// checkSavedStates reconnects with a state that the session remembers of a folder. By QRESYNC it
// must learn what a new session finds.
func (s *session) checkSavedStates(name string, fresh *session) error {
	for i := range s.savedStates {
		if s.savedStates[i].folder != name {
			continue
		}
		back := &session{config: s.config, history: s.history, id: s.id, extension: qresync, rnd: s.rnd}
		err := back.resume(s.savedStates[i])
		if err == nil {
			err = back.compare(fresh)
		}
		back.close()
		if err != nil {
			return fmt.Errorf("after QRESYNC from mod-sequence %d: %w\n%s", s.savedStates[i].modseq, err, back.transcript())
		}
	}
	return nil
}

var errContradiction = errors.New("contradiction")

func contradictionError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errContradiction, fmt.Sprintf(format, args...))
}

// Seed returns a new seed for each run, unless MAILSTEAD_CROWD_SEED is set.
func Seed(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("MAILSTEAD_CROWD_SEED")
	if text == "" {
		return rand.Uint64()
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seed
}
