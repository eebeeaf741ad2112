// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Under concurrent sends, two nodes together accept exactly as many messages as the limit allows.
func TestLimitOfTwoNodes(t *testing.T) {
	h := newFixture(t)
	for {
		day := time.Now().UTC().YearDay()
		used, err := h.a.Client().GetLimits(t.Context())
		h.must(err)
		const more = 150
		most := used.SendsPerDay.Used + more
		h.allow(most)
		accepted := h.exhaust()
		if time.Now().UTC().YearDay() != day {
			continue // at midnight the limit starts again
		}
		if accepted != more {
			t.Errorf("%d messages were accepted of %d", accepted, more)
		}
		for _, s := range []*service{h.a, h.b} {
			left, err := s.Client().GetLimits(t.Context())
			h.must(err)
			if left.SendsPerDay.Used != most && time.Now().UTC().YearDay() == day {
				t.Errorf("%d of %d are used", left.SendsPerDay.Used, most)
			}
		}
		break
	}
	h.a.Stop()
	h.b.Stop()
}

// allow sets the customer's daily message limit with the command line, and waits until both nodes
// know it.
func (h *fixture) allow(most int64) {
	h.Helper()
	out, err := exec.CommandContext(h.Context(), binary, "account", "limits", "--email", "owner@example.org", "--sends-per-day", fmt.Sprint(most),
		"--data", h.a.Data, "--database", h.url).CombinedOutput()
	if err != nil {
		h.Fatalf("%v: %s", err, out)
	}
	for _, s := range []*service{h.a, h.b} {
		servertest.Eventually(h.T, func() string {
			l, err := s.Client().GetLimits(h.Context())
			h.must(err)
			if l.SendsPerDay.Limit == nil || *l.SendsPerDay.Limit != most {
				return "a node does not know the limit"
			}
			return ""
		})
	}
}

// exhaust sends on both nodes until each rejects, and returns the number of accepted messages.
func (h *fixture) exhaust() int {
	h.Helper()
	var accepted atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		c := []*service{h.a, h.b}[i%2].Client()
		all.Go(func() {
			for {
				_, err := c.Send(h.Context(), &client.Send{FromEmail: "alice@demo.example", To: []string{"bob@demo.example"}, Subject: "many", Text: "x"})
				var p *client.Problem
				switch {
				case err == nil:
					accepted.Add(1)
					continue
				case !errors.As(err, &p) || p.Status != 429 || p.Code != "sends_per_day_exceeded":
					h.Error(err)
				}
				return
			}
		})
	}
	all.Wait()
	return int(accepted.Load())
}
