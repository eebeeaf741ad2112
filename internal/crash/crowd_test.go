// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/mailstead/mailstead/internal/imapd/crowdtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Clients of two nodes that use one mailbox concurrently never get a wrong response.
func TestCrowdOfTwoNodes(t *testing.T) {
	h := newFixture(t)
	var dial []func() (net.Conn, error)
	for _, node := range []*service{h.a, h.b} {
		dial = append(dial, func() (net.Conn, error) { return tls.Dial("tcp", node.Addr("imaps"), node.TLS()) })
	}
	crowdtest.Stress{
		Dial: dial, User: h.a.Dev.Mailboxes[0].Address, Password: h.a.Dev.Mailboxes[0].Password,
		Sessions: servertest.SoakSize(6, 20), Rounds: servertest.SoakSize(2, 400), Steps: servertest.SoakSize(40, 200), Seed: crowdtest.Seed(t),
	}.Run(t)
	h.a.Stop()
	h.b.Stop()
}
