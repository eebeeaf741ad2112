// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/mailstead/mailstead/internal/imapd/crowdtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// TestCrowd checks that clients that do everything at once are never told anything wrong.
func TestCrowd(t *testing.T) {
	each(t, func(h *fixture) {
		dial := func() (net.Conn, error) { return tls.Dial("tcp", h.secure, h.tlsConfig()) }
		crowdtest.Stress{
			Dial: []func() (net.Conn, error){dial}, User: alice, Password: password, ExclusiveRecent: true,
			Sessions: servertest.SoakSize(6, 20), Rounds: servertest.SoakSize(2, 400), Steps: servertest.SoakSize(40, 200), Seed: crowdtest.Seed(t),
		}.Run(h)
	})
}
