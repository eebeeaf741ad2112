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
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The data directory's disk fills up under load: every listener rejects mail temporarily,
// acknowledged messages stay, and everything works again once there is space.
func TestDiskFull(t *testing.T) {
	needtest.Root(t)
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		t.Fatalf("mounting a small tmpfs: %v", err)
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
	listeners := []string{"api", "smtp", "submission"}
	// First there is no space for the files of large messages, then none for the database.
	s.loadUntil(l, "large", 3, func() string { return l.open(listeners, 3) })
	s.loadUntil(l, "small", 0, func() string { return l.open(listeners, 10) })
	for _, r := range l.refused {
		if problem := r.temporary(); problem != "" {
			t.Errorf("while the disk was full, the %s listener said %d %s: %s", r.listener, r.status, r.text, problem)
		}
	}
	full := l.count()
	t.Logf("%d messages acknowledged and %d refused until the disk was full", full, len(l.refused))

	// The service still responds, and filed messages can be read.
	if what := l.misplaced(s.read(), false); what != "" {
		t.Errorf("with the disk full:\n%s", what)
	}
	c := s.imap(0, nil)
	if _, err := c.Select("INBOX", nil).Wait(); err != nil {
		t.Errorf("with the disk full: %v", err)
	}
	_ = c.Close() // opened only for reading
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

// loadUntil loads the service until complaint returns nothing.
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

// open returns the listeners with fewer rejections than this.
func (l *ledger) open(listeners []string, times int) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := map[string]int{}
	for _, r := range l.refused {
		count[r.listener]++
	}
	left := slices.DeleteFunc(slices.Clone(listeners), func(listener string) bool { return count[listener] >= times })
	if len(left) == 0 {
		return ""
	}
	return "nothing was refused by the listeners " + strings.Join(left, ", ")
}

// temporary describes what is wrong with a rejection for lack of space; "" if nothing.
func (r refusal) temporary() string {
	switch {
	case r.listener == "api":
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
