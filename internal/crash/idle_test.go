// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// idleMemory is the maximum memory per idle session with TLS, in bytes: as the system sees it, with
// the runtime's reserve. TestIdleMemory in imapd measures TLS's share.
const idleMemory = 36 << 10

// idler is a session in IDLE.
type idler struct {
	nc net.Conn
	br *bufio.Reader
}

// idler opens a session in IDLE on a folder. Connections come from several loopback addresses
// because there are more than one address has ports.
func (s *service) idler(i, box int, folder string) (*idler, error) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 3, byte(1+i/500))}}
	nc, err := tls.DialWithDialer(from, "tcp", s.Addr("imaps"), s.TLS())
	if err != nil {
		return nil, err
	}
	d := &idler{nc, bufio.NewReaderSize(nc, 512)}
	m := s.Dev.Mailboxes[box]
	_, err = fmt.Fprintf(nc, "a LOGIN %s %s\r\nb SELECT %s\r\nc IDLE\r\n", m.Address, m.Password, folder)
	if err == nil {
		err = d.until("+ ")
	}
	if err != nil {
		return nil, errors.Join(err, nc.Close())
	}
	return d, nil
}

// until reads up to a line with this prefix, or an untagged response with this suffix.
func (d *idler) until(line string) error {
	if err := d.nc.SetReadDeadline(time.Now().Add(servertest.Timeout)); err != nil {
		return err
	}
	for {
		text, err := d.br.ReadString('\n')
		if err != nil {
			return fmt.Errorf("waiting for %q: %w", line, err)
		}
		if strings.HasPrefix(text, line) || strings.HasPrefix(text, "* ") && strings.HasSuffix(text, line+"\r\n") {
			return nil
		}
	}
}

// idlers opens n sessions, of which the first watchers watch alice's INBOX.
func (s *service) idlers(n, watchers int) []*idler {
	s.t.Helper()
	all := make([]*idler, n)
	errs := make([]error, 8)
	var opening sync.WaitGroup
	for k := range errs {
		opening.Go(func() {
			for i := k; i < n && errs[k] == nil; i += len(errs) {
				box, folder := 0, "INBOX"
				if i >= watchers {
					box, folder = i%2, []string{"Sent", "Archive", "Drafts"}[i%3]
				}
				all[i], errs[k] = s.idler(i, box, folder)
			}
		})
	}
	opening.Wait()
	s.t.Cleanup(func() {
		for _, d := range all {
			if d != nil {
				_ = d.nc.Close()
			}
		}
	})
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// tell appends a message on a node and returns the delay between its OK and each session's
// notification.
func (s *service) tell(watchers ...*idler) []time.Duration {
	s.t.Helper()
	c := s.imap(0, nil)
	took := make([]time.Duration, len(watchers))
	errs := make([]error, len(watchers))
	told := make([]time.Time, len(watchers))
	var all sync.WaitGroup
	for i, w := range watchers {
		all.Go(func() {
			errs[i] = w.until("EXISTS")
			told[i] = time.Now()
		})
	}
	_, err := appendTo(c, "tell")
	done := time.Now()
	all.Wait()
	if err := errors.Join(append(errs, err, c.Logout().Wait())...); err != nil {
		s.t.Fatal(err)
	}
	for i := range took {
		took[i] = max(0, told[i].Sub(done))
	}
	slices.Sort(took)
	return took
}

// latency summarizes delays.
func latency(all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("p50 %v, p99 %v, at most %v", all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

// Many idle sessions cost little each, and those on a folder are notified of new messages.
func TestIdleSessions(t *testing.T) {
	n := servertest.SoakSize(200, 10_000)
	s := newService(t, t.TempDir(), dbtest.SQLite(t))
	s.Start()
	s.idlers(10, 0) // the cost of the first is not a session's
	before := s.Memory("VmRSS")
	all := s.idlers(n, n/100)
	if n == 10_000 {
		servertest.Eventually(t, func() string {
			if each := (s.Memory("VmRSS") - before) / int64(n); each > idleMemory {
				return fmt.Sprintf("a session that idles costs %.1f KiB", float64(each)/1024)
			}
			return ""
		})
	}
	t.Logf("%d sessions that idle over TLS: %.1f KiB each", n, float64(s.Memory("VmRSS")-before)/float64(n)/1024)
	var took []time.Duration
	for range servertest.SoakSize(3, 100) {
		took = append(took, s.tell(all[:n/100]...)...)
	}
	t.Logf("%d sessions are told of a new message: %s", n/100, latency(took))
	s.Stop()
}

// Sessions of both nodes are notified of messages that arrive at one of them. They come from one
// address, as from an office behind a router, and are accepted all the same.
func TestIdleAcrossNodes(t *testing.T) {
	h := newFixture(t)
	n := servertest.SoakSize(240, 1000)
	watchers := append(h.a.idlers(n/2, n/4), h.b.idlers(n/2, n/4)...)
	var here, there []time.Duration
	for range servertest.SoakSize(3, 100) {
		here = append(here, h.a.tell(watchers[:n/4]...)...)
		if err := drained(watchers[n/2 : n/2+n/4]); err != nil {
			t.Fatal(err)
		}
		there = append(there, h.a.tell(watchers[n/2:n/2+n/4]...)...)
		if err := drained(watchers[:n/4]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("of the same node: %s; of the other: %s", latency(here), latency(there))
	h.a.Stop()
	h.b.Stop()
}

// drained waits until sessions are notified of one message.
func drained(all []*idler) error {
	for _, d := range all {
		if err := d.until("EXISTS"); err != nil {
			return err
		}
	}
	return nil
}
