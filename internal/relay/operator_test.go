// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"net"
	"testing"

	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
)

// A host that was down is dialled as soon as an operator requests it. The clock stands still, so it
// would otherwise not be tried.
func TestOperatorWantsIt(t *testing.T) {
	l := bind(t, "127.0.0.1")
	addr := l[0].Addr().(*net.TCPAddr)
	if err := l[0].Close(); err != nil {
		t.Fatal(err)
	}
	h := newFixture(t, uint16(addr.Port), nil, "back.test. MX 10 mx.back.test.", "mx.back.test. A 127.0.0.1")
	h.run()
	m := h.send("bob@back.test")
	if a := h.attempt(m); a.Outcome != queue.Deferred {
		t.Fatalf("attempt %+v", a)
	}
	back, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	start(t, back, &sink{})
	o := &admin.Queue{DB: h.db, Events: &event.Log{DB: h.db, Hub: h.hub, Now: h.clock}, Now: h.clock, Wake: h.hub.Wake}
	res, err := o.Retry(t.Context(), admin.Command{Filter: admin.Filter{Destination: "back.test"}})
	if err != nil || res.Changed != 1 {
		t.Fatal(res, err)
	}
	for h.states(m) != "delivered 2.0.0" {
		<-h.events.C
	}
}
