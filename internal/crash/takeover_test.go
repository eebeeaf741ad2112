// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// outgoing is a message to outside that a node accepted.
type outgoing struct {
	subject, id, messageID string
}

// hand submits messages to outside on a node, one to each of some domains. It waits until the sink
// holds all their sessions at the stage; "" means none.
func (h *fixture) hand(s *service, stage string, from, to int) (sent []outgoing) {
	h.Helper()
	if stage != "" {
		h.sink.hold(stage)
	}
	for i := from; i < to; i++ {
		subject := fmt.Sprintf("%s-%d-%d", stage, i, time.Now().UnixNano())
		m, err := s.Client().Send(h.Context(), &client.Send{
			FromEmail: "alice@demo.example", To: []string{"someone@" + outside(i%outsides)}, Subject: subject, Text: "x",
		})
		h.must(err)
		sent = append(sent, outgoing{subject, m.ID, m.MessageID})
	}
	for range sent {
		if stage == "" {
			break
		}
		if at := next(h, h.sink.onStay); at != stage {
			h.Fatalf("a session waits at %q, not %q", at, stage)
		}
	}
	return sent
}

// delivered waits until a node reports messages as delivered, each on its only known attempt.
func (h *fixture) delivered(s *service, sent []outgoing) {
	h.Helper()
	for _, o := range sent {
		servertest.Eventually(h.T, func() string {
			m, err := s.Client().GetMessage(h.Context(), o.id)
			h.must(err)
			if m.Status != client.Delivered {
				return fmt.Sprintf("%s is %s", o.subject, m.Status)
			}
			if n := len(m.Recipients[0].Timeline); n != 1 || m.Recipients[0].Attempts != 1 {
				h.Errorf("%s has %d attempts, of which %d are known", o.subject, m.Recipients[0].Attempts, n)
			}
			return ""
		})
	}
}

// left checks how many copies of each message have left, all of them identical.
func (h *fixture) left(sent []outgoing, want int) {
	h.Helper()
	for _, o := range sent {
		copies := h.sink.got(o.subject)
		if len(copies) != want {
			h.Errorf("%s (%s) left %d times, not %d: %v", o.subject, o.id, len(copies), want, copies)
		}
		for _, c := range copies {
			if c.id != o.messageID {
				h.Errorf("%s left as %s, not %s", o.subject, c.id, o.messageID)
			}
		}
	}
}

// told checks that each delivery has exactly one event, from either node.
func (h *fixture) told(s *service, sent []outgoing) {
	h.Helper()
	servertest.Eventually(h.T, func() string {
		var bad []string
		seen := map[string]int{}
		for what, n := range s.events() {
			id, _, _ := strings.Cut(what, " ")
			seen[id] += n
		}
		for _, o := range sent {
			if seen[o.id] != 1 {
				bad = append(bad, fmt.Sprintf("that %s was delivered is told %d times", o.subject, seen[o.id]))
			}
		}
		return strings.Join(bad, "\n")
	})
}

// A node is killed while it delivers mail; the other takes over. If the outside host has a message
// completely, but the node missed or could not record the response, the message is sent once more,
// unchanged. All others are sent once.
func TestNodeKilled(t *testing.T) {
	h := newFixture(t)
	done := h.hand(h.a, "", 0, outsides)
	h.delivered(h.a, done)
	whole := h.hand(h.a, atFinal, 0, outsides/2)
	begun := h.hand(h.a, atData, outsides/2, outsides)
	waiting := h.hand(h.a, "", 0, 3*outsides)
	h.a.Kill()
	h.sink.release(atFinal)
	h.sink.release(atData)

	all := [][]outgoing{done, whole, begun, waiting}
	for i, sent := range all {
		h.delivered(h.b, sent)
		h.left(sent, []int{1, 2, 1, 1}[i])
		h.told(h.b, sent)
	}

	// After a restart it is a node as before.
	h.a.Start()
	fresh := h.hand(h.a, "", 0, 1)
	h.delivered(h.b, fresh)
	h.left(fresh, 1)
	h.a.Stop()
	h.b.Stop()
}

// A node is suspended for longer than its lease, like a machine that is migrated or out of memory;
// the other takes over its deliveries. When it resumes, it finishes none of them, and starts new
// work.
func TestNodeFrozen(t *testing.T) {
	h := newFixture(t)
	h.delivered(h.a, h.hand(h.a, "", 0, outsides))
	whole := h.hand(h.a, atFinal, 0, outsides/2)
	begun := h.hand(h.a, atData, outsides/2, outsides)
	waiting := h.hand(h.a, "", 0, 3*outsides)
	h.a.Freeze()
	// The responses wait for it.
	h.sink.release(atFinal)
	h.sink.release(atData)
	all := [][]outgoing{whole, begun, waiting}
	for _, sent := range all {
		h.delivered(h.b, sent)
	}
	h.a.Thaw()
	h.says(h.a, "the node's lease could not be renewed")
	fresh := h.hand(h.a, "", 0, outsides)
	h.delivered(h.b, fresh)
	h.a.Stop() // it has finished everything
	for i, sent := range append(all, fresh) {
		h.delivered(h.b, sent)
		h.left(sent, []int{2, 1, 1, 1}[i])
		h.told(h.b, sent)
	}
	h.replaced()
	h.b.Stop()
}

// replaced starts a process with the name of a suspended one. The latter ends when it resumes: both
// would generate the same ids.
func (h *fixture) replaced() {
	h.Helper()
	h.a.Start()
	h.a.Freeze()
	h.over("a")
	other := h.node("a")
	other.Start()
	cmd, ended := h.a.Cmd, h.a.Done
	h.a.Thaw()
	next(h, ended)
	h.a.Cmd = nil
	if status := cmd.ProcessState.ExitCode(); status != 1 {
		h.Errorf("the process that was replaced ended with status %d", status)
	}
	h.says(h.a, `mailstead: the node's lease could not be renewed: `)
	other.Stop()
}

// over waits until a node's lease has expired in the database.
func (h *fixture) over(node string) {
	h.Helper()
	d, err := pgx.Connect(h.Context(), h.url)
	h.must(err)
	defer d.Close(h.Context()) //nolint:errcheck // only read
	servertest.Eventually(h.T, func() string {
		var lasts bool
		h.must(d.QueryRow(h.Context(), `SELECT EXISTS (SELECT 1 FROM lease JOIN node ON node.id = lease.node
			WHERE name = $1 AND expires_at > extract(epoch FROM clock_timestamp()) * 1000000)`, node).Scan(&lasts))
		if lasts {
			return "the lease of node " + node + " is not over"
		}
		return ""
	})
}

// says waits until a node's log contains some words.
func (h *fixture) says(s *service, words string) {
	h.Helper()
	servertest.Eventually(h.T, func() string {
		if said := s.Stderr(); !strings.Contains(said, words) {
			return fmt.Sprintf("%q is not in\n%s", words, said)
		}
		return ""
	})
}
