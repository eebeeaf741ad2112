// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Both nodes work under load on every listener, and one is killed or suspended beyond its lease.
// Then every acknowledged message is in its place: in mailboxes exactly once, and outside once, or
// once more if it was being delivered at that moment.
func TestUpheaval(t *testing.T) {
	rounds, seed := servertest.SoakSize(1, 100), seed(t)
	t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	// The cost of a check grows with the data: long runs start again with none.
	const most = 20
	for left := rounds; left > 0 && !t.Failed(); left -= min(left, most) {
		h := newFixture(t)
		l := newLedger()
		var losses []loss
		for round := range min(left, most) {
			losses = append(losses, h.upheaval(l, round, r))
			for _, s := range []*service{h.a, h.b} {
				s.settle(l)
			}
			h.outside(l, losses)
			if t.Failed() {
				t.Fatalf("in round %d", round)
			}
		}
		h.a.told(l)
		h.a.Stop()
		h.b.Stop()
		t.Logf("%d messages acknowledged, %d not", l.acks, len(l.mails)-l.acks)
	}
}

// loss is the time from the loss of a node to the end of its lease, in numbers of the sink's
// copies.
type loss struct{ from, to int }

// upheaval removes one of the nodes under load, and restores it.
func (h *fixture) upheaval(l *ledger, round int, r *rand.Rand) (lost loss) {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	defer cancel()
	out, other := h.a, h.b
	if r.IntN(2) == 0 {
		out, other = h.b, h.a
	}
	waitOut := out.load(ctx, l, fmt.Sprintf("r%d-out", round), r.Uint64(), 12)
	waitOther := other.load(ctx, l, fmt.Sprintf("r%d-other", round), r.Uint64(), 12)
	h.acknowledged(l, 50+r.IntN(150))
	<-time.After(time.Duration(r.IntN(20_000)) * time.Microsecond)
	name := out.ServeFlags[1]
	kill := r.IntN(2) == 0
	if kill {
		out.Kill()
	} else {
		out.Freeze()
	}
	lost.from = h.sink.mark()
	h.over(name)
	lost.to = h.sink.mark()
	h.acknowledged(l, 20)
	if kill {
		out.Start()
	} else {
		out.Thaw()
	}
	h.acknowledged(l, 20)
	cancel()
	waitOut()
	waitOther()
	for _, refused := range l.refused {
		h.Errorf("refused at the %s listener: %d %s", refused.listener, refused.status, refused.text)
	}
	return lost
}

// acknowledged waits for more acknowledgements.
func (h *fixture) acknowledged(l *ledger, more int) {
	h.Helper()
	for until := l.count() + more; l.count() < until; {
		next(h, l.onAck)
	}
}

// outside waits until all acknowledged messages have left. It checks that only messages in delivery
// when a node was lost left twice, and always as the same message.
func (h *fixture) outside(l *ledger, losses []loss) {
	h.Helper()
	for _, m := range l.mails {
		if !m.outside || !m.acked {
			continue
		}
		servertest.Eventually(h.T, func() string {
			if len(h.sink.got(m.subject)) == 0 {
				return m.subject + " has not left"
			}
			return ""
		})
	}
	for _, m := range l.mails {
		copies := h.sink.got(m.subject)
		for i := 1; i < len(copies); i++ {
			a, b := copies[i-1], copies[i]
			excused := slices.ContainsFunc(losses, func(lost loss) bool { return a.n <= lost.to && b.n > lost.from })
			if !excused || a.id != b.id {
				h.Errorf("%s left twice: %+v, %+v; nodes were lost at %v", m.subject, a, b, losses)
			}
		}
	}
}
