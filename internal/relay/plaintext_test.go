// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// A host that offers STARTTLS and fails it gets its mail in clear over a second connection. The
// next messages go in clear at once, until TLS is tried again.
func TestFailedSTARTTLS(t *testing.T) {
	for name, reply := range map[string]string{
		"refused":       "454 4.7.0 TLS not available",
		"unknown":       "502 5.5.1 what?",
		"closing":       "421 4.3.0 no",
		"hangs up":      drop,
		"not SMTP":      "sure",
		"more than 220": "220 go ahead\r\n250 AUTH PLAIN",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := listen(t, &sink{tls: certificate(t, "mx.d.test"), answer: refuse("STARTTLS", reply)})
			h := newFixture(t, s.addr.Port(), func(o *relay.Options) {
				o.Pool = smtpclient.NewPool(smtpclient.PoolLimits{MaxMessages: 1}) // a connection for each message
			}, "d.test. MX 10 mx.d.test.", "mx.d.test. A 127.0.0.1")
			h.run()
			for _, want := range []struct {
				after       time.Duration
				connections int
				story       string
			}{
				{0, 2, "C: STARTTLS"},
				{time.Minute, 3, "in clear, as STARTTLS failed"},
				{9 * time.Minute, 5, "C: STARTTLS"},
			} {
				h.later(want.after)
				id := h.send("bob@d.test")
				if got := h.states(id); got != "delivered 2.0.0" || s.connections() != want.connections {
					t.Fatalf("after %v: %s with %d connections, want %d", want.after, got, s.connections(), want.connections)
				}
				if a := h.attempt(id); a.TLS != "" || !strings.Contains(a.Transcript, want.story) {
					t.Errorf("after %v: TLS %q\n%s", want.after, a.TLS, a.Transcript)
				}
			}
		})
	}
}

// A remembered TLS failure does not apply to a destination that requires TLS.
func TestFailedSTARTTLSAndADemand(t *testing.T) {
	s := &sink{tls: certificate(t, "mx.d.test"), ext: []string{"REQUIRETLS"}, answer: refuse("STARTTLS", "454 4.7.0 TLS not available")}
	h := oneHost(t, s)
	if got := h.states(h.send("bob@d.test")); got != "delivered 2.0.0" {
		t.Fatal(got)
	}
	if a := h.attempt(h.accept(h.newMail(strict), "bob@d.test")); string(a.Outcome)+" "+a.Enhanced != "deferred 4.7.0" {
		t.Errorf("%s %s\n%s", a.Outcome, a.Enhanced, a.Transcript)
	}
	if n := len(s.mail()); n != 1 {
		t.Errorf("%d messages went in clear", n)
	}
}
