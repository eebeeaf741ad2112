// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The disk with the data folder fills under load: every door refuses for now,
// what was acknowledged stays, and all goes on when there is room again.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatalf("mounting a small tmpfs, which needs root (or: unshare -rm): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", dir, err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, bytes.Repeat([]byte("x"), 128<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	s := newService(t, filepath.Join(dir, "data"), dbtest.SQLite(t))
	s.Start()
	l := newLedger()
	doors := []string{"api", "smtp", "submission"}
	// First there is no room for the files of large messages, then none in the
	// database.
	s.loadUntil(l, "large", 3, func() string { return l.open(doors, 3) })
	s.loadUntil(l, "small", 0, func() string { return l.open(doors, 10) })
	for _, r := range l.refused {
		if problem := r.temporary(); problem != "" {
			t.Errorf("while the disk was full, the %s door said %d %s: %s", r.door, r.status, r.text, problem)
		}
	}
	full := l.count()
	t.Logf("%d messages acknowledged and %d refused until the disk was full", full, len(l.refused))

	// It still answers, and what was filed can be read.
	if what := l.misplaced(s.read(), false); what != "" {
		t.Errorf("with the disk full:\n%s", what)
	}
	c := s.imap(0, nil)
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Errorf("with the disk full: %v", err)
	}
	_ = c.Close() // only read
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	s.loadUntil(l, "room", 5, func() string {
		if n := l.count() - full; n < 100 {
			return fmt.Sprintf("only %d messages were acknowledged since", n)
		}
		return ""
	})
	s.settle(l)
	s.Stop()
	s.Start()
	s.settle(l)
	s.Stop()
	s.sound()
}

// loadUntil loads the service until there is nothing left to complain of.
func (s *service) loadUntil(l *ledger, name string, large int, complaint func() string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	wait := s.load(ctx, l, name, uint64(time.Now().UnixNano()), large)
	defer func() {
		cancel()
		wait()
	}()
	servertest.Eventually(s.t, complaint)
}

// open names the doors that have not refused so many messages yet.
func (l *ledger) open(doors []string, times int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, r := range l.refused {
		count[r.door]++
	}
	left := slices.DeleteFunc(slices.Clone(doors), func(door string) bool { return count[door] >= times })
	if len(left) == 0 {
		return ""
	}
	return "nothing was refused by the doors " + strings.Join(left, ", ")
}

// temporary says what is wrong with a refusal for lack of room; "" if nothing.
func (r refusal) temporary() string {
	switch {
	case r.door == "api":
		if r.status < 500 {
			return "not 5xx"
		}
		if !strings.HasPrefix(r.text, "application/problem+json") {
			return "not a problem document"
		}
	case r.status != 451 && r.status != 452:
		return "not 451 or 452"
	}
	return ""
}
