// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Both nodes work under load at every door, when one is killed or stands still
// beyond its lease. Every message that was acknowledged is then where it
// belongs: here exactly once, and outside once, or once more where it was on
// its way at that moment.
func TestUpheaval(t *testing.T) {
	rounds, seed := servertest.Soak(1, 100), seed(t)
	t.Logf("MAILSTEAD_CRASH_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	// What a check costs grows with what there is: long runs begin anew.
	const most = 20
	for left := rounds; left > 0 && !t.Failed(); left -= min(left, most) {
		h := newHouse(t)
		l := newLedger()
		var marks []int
		for round := range min(left, most) {
			marks = append(marks, h.upheaval(l, round, r))
			for _, s := range []*service{h.a, h.b} {
				s.settle(l)
			}
			h.outside(l, marks)
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

// upheaval takes one of the nodes away under load, and gives it back. It returns
// the sink's mark of that moment.
func (h *house) upheaval(l *ledger, round int, r *rand.Rand) (mark int) {
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
	name := out.Serve[1]
	if r.IntN(2) == 0 {
		out.Kill()
		mark = h.sink.mark()
		h.over(name)
		out.Start()
	} else {
		out.Freeze()
		mark = h.sink.mark()
		h.over(name)
		h.acknowledged(l, 20)
		out.Thaw()
	}
	h.acknowledged(l, 20)
	cancel()
	waitOut()
	waitOther()
	for _, refused := range l.refused {
		h.Errorf("refused at the %s door: %d %s", refused.door, refused.status, refused.text)
	}
	return mark
}

// acknowledged waits for so many more acknowledgements.
func (h *house) acknowledged(l *ledger, more int) {
	h.Helper()
	for until := l.count() + more; l.count() < until; {
		next(h, l.onAck)
	}
}

// outside waits until what was acknowledged has left. It checks that nothing
// left twice but around one of the marks, and always as the same message.
func (h *house) outside(l *ledger, marks []int) {
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
			before, after, lost := copies[i-1], copies[i], false
			for _, mark := range marks {
				lost = lost || before.session <= mark && after.session > mark
			}
			if !lost || before.id != after.id {
				h.Errorf("%s left twice, as %s in session %d and as %s in session %d; nodes were lost at %v",
					m.subject, before.id, before.session, after.id, after.session, marks)
			}
		}
	}
}
