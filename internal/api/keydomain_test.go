// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A forwarded message belongs to the domain that forwards it, not to the author that it names,
// which anybody could have written.
func TestForwardedOfOneDomain(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		verified(t, s, s.Dev.APIKey, "other.test")
		newAlias(t, s, "out@other.test", "far@away.example.net")
		_, here := newKey(t, s, object{"domain": "demo.test"})
		_, there := newKey(t, s, object{"domain": "other.test"})
		raw := "From: alice@demo.test\r\nTo: out@other.test\r\nSubject: secret\r\nMessage-ID: <8@elsewhere.example.net>\r\n\r\nHello.\r\n"
		if said := simulateArrival(t, s, "ann@elsewhere.example.net", "out@other.test", raw, object{"spf": "pass"}); said != "250 2.0.0" {
			t.Fatal(said)
		}
		sent := ids(t, s.APIWithKey(there, "GET", "/outbound/messages", nil))
		if len(sent) != 1 {
			t.Fatalf("%v are listed", sent)
		}
		path := "/outbound/messages/" + sent[0]
		for _, what := range []string{"", "/raw"} {
			refused(t, "another domain's"+what, s.APIWithKey(here, "GET", path+what, nil), 404, "not_found")
			status(t, "its own"+what, s.APIWithKey(there, "GET", path+what, nil), 200)
		}
		refused(t, "cancelling another domain's", s.APIWithKey(here, "POST", path+"/cancel", nil), 404, "not_found")
	})
}
