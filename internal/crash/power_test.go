// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// eachDisk runs a test on a disk of each model, with a random source for what survives.
func eachDisk(t *testing.T, run func(t *testing.T, d *disk, r *rand.Rand)) {
	seed := seed(t)
	for name, strict := range map[string]bool{"entries in order": false, "entries by folder": true} {
		t.Run(name, func(t *testing.T) {
			t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			run(t, mountDisk(t, strict, nil), r)
		})
	}
}

// The power fails at random moments under load. Then every acknowledged message exists exactly once
// in its place, and nothing else is damaged.
func TestPower(t *testing.T) {
	rounds := servertest.SoakSize(2, 50)
	eachDisk(t, func(t *testing.T, d *disk, r *rand.Rand) {
		for left := rounds; left > 0 && !t.Failed(); left -= min(left, 10) {
			data := filepath.Join(d.dir, fmt.Sprintf("data%d", left))
			d.campaign(t, newService(t, data, dbtest.NoSQLite(t)), min(left, 10), r)
		}
	})
}

func (d *disk) campaign(t *testing.T, s *service, rounds int, r *rand.Rand) {
	l := newLedger()
	s.Start()
	for round := range rounds {
		// Every other time, a random part of the unsynced data survives.
		if d.chaos = nil; round%2 == 1 {
			d.chaos = r
		}
		password := s.Dev.Mailboxes[0].Password
		s.keepAuthority()
		s.loadAndEnd(l, fmt.Sprint(round), r, func() { s.losePower(d) })
		s.Start()
		if s.Dev.Mailboxes[0].Password != password {
			t.Fatalf("round %d: the loss of power changed a password", round)
		}
		if what := l.misplaced(s.read(), false); what != "" {
			t.Fatalf("round %d, at once after the start:\n%s", round, what)
		}
		s.settle(l)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	s.told(l)
	s.Stop()
	s.examine()
	t.Logf("%d losses of power, %d messages acknowledged, %d not", rounds, l.acks, len(l.mails)-l.acks)
}

// keepAuthority copies the certificate that the load trusts to a safe place.
func (s *service) keepAuthority() {
	s.t.Helper()
	text, err := os.ReadFile(s.Dev.CACert)
	if err != nil {
		s.t.Fatal(err)
	}
	s.Dev.CACert = filepath.Join(s.t.TempDir(), "ca.pem")
	if err := os.WriteFile(s.Dev.CACert, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) losePower(d *disk) {
	s.t.Helper()
	d.cut()
	// From here on, its calls hang. It is dead before they return.
	if err := s.Cmd.Process.Signal(syscall.SIGKILL); err != nil {
		s.t.Fatalf("the service had ended by itself: %v", err)
	}
	d.restart(s.t.(*testing.T), func() { <-s.Done })
	s.Cmd = nil
}

// examine runs doctor on all data.
func (s *service) examine() {
	s.t.Helper()
	// It ends with an error: the sandbox has no name in the DNS.
	out, _ := exec.CommandContext(s.t.Context(), binary, "doctor", "--deep", "--json", "--data", s.Data,
		"--host", "mail.service.example", "--tls", "self-signed", "--postmaster", servertest.OperatorAddress).Output()
	var found struct {
		Checks []struct{ Status, Check, Says string }
	}
	if err := json.Unmarshal(out, &found); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	known := false
	for _, c := range found.Checks {
		known = known || c.Check == "database file" && c.Status == "ok"
		if c.Status == "error" && c.Check != "host name" && c.Check != "resolver" {
			s.t.Errorf("doctor: %s: %s", c.Check, c.Says)
		}
	}
	if !known {
		s.t.Errorf("doctor did not say that the database file is sound: %s", out)
	}
}

// run runs a command on the service's data, which must succeed.
func (s *service) run(args ...string) string {
	s.t.Helper()
	args = append(args, "--data", s.Data)
	out, err := exec.CommandContext(s.t.Context(), binary, args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("mailstead %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
