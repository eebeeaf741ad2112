// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite" // to check the file

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// seed returns a new seed, or that of a run to be repeated: MAILSTEAD_CRASH_SEED.
func seed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("MAILSTEAD_CRASH_SEED")
	if text == "" {
		return rand.Uint64()
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("MAILSTEAD_CRASH_SEED: %v", err)
	}
	return n
}

// The process is killed at random moments under load, and restarted. Then every acknowledged
// message exists exactly once in its place; an unacknowledged one exists at most once.
func TestKill(t *testing.T) {
	rounds, seed := servertest.SoakSize(5, 200), seed(t)
	dbtest.EachURL(t, func(t *testing.T, url string) {
		t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		// The cost of a check grows with the data: long runs start again with none.
		const most = 20
		for left := rounds; left > 0 && !t.Failed(); left -= min(left, most) {
			if left != rounds && strings.HasPrefix(url, "postgres") {
				url = dbtest.Postgres(t)
			}
			campaign(t, newService(t, t.TempDir(), url), min(left, most), r)
		}
	})
}

func campaign(t *testing.T, s *service, rounds int, r *rand.Rand) {
	l := newLedger()
	s.Start()
	for round := range rounds {
		s.loadAndKill(l, fmt.Sprint(round), r)
		s.Start()
		if what := l.misplaced(s.read(), false); what != "" {
			t.Fatalf("round %d, at once after the start:\n%s", round, what)
		}
		// Every other time, the next kill comes during the recovery from the previous one.
		if round%2 == 1 || round == rounds-1 {
			s.settle(l)
		}
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	s.told(l)
	s.Stop()
	s.sound()
	t.Logf("%d rounds, %d messages acknowledged, %d not", rounds, l.acks, len(l.mails)-l.acks)
}

// loadAndKill kills the service after a number of acknowledgements and a moment.
func (s *service) loadAndKill(l *ledger, round string, r *rand.Rand) {
	s.t.Helper()
	s.loadAndEnd(l, round, r, s.Kill)
}

// loadAndEnd loads the service, and calls end after a number of acknowledgements and a moment.
func (s *service) loadAndEnd(l *ledger, round string, r *rand.Rand, end func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	until := l.count() + 1 + r.IntN(150)
	moment := time.Duration(r.IntN(20_000)) * time.Microsecond
	wait := s.load(ctx, l, "r"+round, r.Uint64(), 12)
	late := time.After(servertest.Timeout)
	for l.count() < until {
		select {
		case <-l.onAck:
		case <-s.Done:
			s.t.Fatalf("the service ended under load: %v", s.Cmd.ProcessState)
		case <-late:
			s.t.Fatalf("of %d messages only %d were acknowledged within %v", until, l.count(), servertest.Timeout)
		}
	}
	<-time.After(moment)
	end()
	cancel()
	wait()
	for _, refused := range l.refused {
		s.t.Errorf("refused at the %s listener: %d %s", refused.listener, refused.status, refused.text)
	}
}

// told checks the events: exactly one reports the delivery of each acknowledged message.
func (s *service) told(l *ledger) {
	s.t.Helper()
	// Events are numbered in the background; wait for those of the last round.
	servertest.Eventually(s.t, func() string {
		seen := s.events()
		var bad []string
		for _, m := range l.mails {
			if m.id == "" {
				continue
			}
			for _, to := range m.recipients() {
				if n := seen[m.id+" "+to]; n != 1 {
					bad = append(bad, fmt.Sprintf("that %s to %s was delivered is told %d times", m.subject, to, n))
				}
			}
		}
		return strings.Join(bad[:min(len(bad), 10)], "\n")
	})
}

// events counts the events about deliveries, by message and recipient.
func (s *service) events() map[string]int {
	s.t.Helper()
	seen := map[string]int{}
	for e, err := range s.Client().Events(s.t.Context(), client.EventFilter{Types: []string{"delivery_status"}}) {
		var d client.DeliveryStatusData
		if err == nil {
			err = e.Decode(&d)
		}
		if err != nil {
			s.t.Fatal(err)
		}
		if d.Status == client.Delivered {
			seen[d.ID+" "+d.Recipient]++
		}
	}
	return seen
}

// sound checks the database file itself.
func (s *service) sound() {
	s.t.Helper()
	if s.Database != "sqlite" {
		return
	}
	d, err := sql.Open("sqlite", filepath.Join(s.Data, "mailstead.db"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck // only read
	var result string
	if err := d.QueryRowContext(s.t.Context(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		s.t.Errorf("the database file: %s, %v", result, err)
	}
	rows, err := d.QueryContext(s.t.Context(), "PRAGMA foreign_key_check")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		s.t.Error("the database file has a row that refers to nothing")
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
}
