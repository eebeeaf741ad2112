// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"testing"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The sandbox queries no server on the network for mail between local names.
func TestSandboxAsksNobodyAboutLocalNames(t *testing.T) {
	addr, zone := dnstest.Start(t)
	o := &outsider{t: t, zone: zone, s: servertest.Start(t, func(c *server.Config) { c.Resolver = addr })}
	for _, sender := range []string{"eve@elsewhere.test", "eve@nowhere.invalid", "eve@printer.local", "eve@nas.home.arpa", "alice@demo.test"} {
		o.send(sender, testMail(sender, sender)) // some are rejected, which does not matter here
	}
	// DMARC also asks about the domain above home.arpa, which is public.
	if n := zone.TotalQueries() - zone.QueryCount("_dmarc.arpa"); n != 0 {
		t.Errorf("the server outside was asked %d times", n)
	}
}
