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

// Both nodes work under load at every door, when one is killed or stands still
// beyond its lease. Every message that was acknowledged is then where it
// belongs: here exactly once, and outside once, or once more where it was on
// its way at that moment.
func TestUpheaval(t *testing.T) {
	rounds, seed := servertest.SoakSize(1, 100), seed(t)
	t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	// What a check costs grows with what there is: long runs begin anew.
	const most = 20
	for left := rounds; left > 0 && !t.Failed(); left -= min(left, most) {
		h := newHouse(t)
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
		t.Logf("%d messages acknowledged, %d not", l.acks, len(l.letters)-l.acks)
	}
}

// loss is the time from when a node is gone to when its lease is over, by the
// copies that the sink had got.
type loss struct{ from, to int }

// upheaval takes one of the nodes away under load, and gives it back.
func (h *house) upheaval(l *ledger, round int, r *rand.Rand) (lost loss) {
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
		h.Errorf("refused at the %s door: %d %s", refused.door, refused.status, refused.text)
	}
	return lost
}

// acknowledged waits for so many more acknowledgements.
func (h *house) acknowledged(l *ledger, more int) {
	h.Helper()
	for until := l.count() + more; l.count() < until; {
		next(h, l.onAck)
	}
}

// outside waits until what was acknowledged has left. It checks that nothing
// left twice but what was on its way when a node was lost, and that always as
// the same message.
func (h *house) outside(l *ledger, losses []loss) {
	h.Helper()
	for _, m := range l.letters {
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
	for _, m := range l.letters {
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
