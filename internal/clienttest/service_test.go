// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Every operation, using only the client, on both engines.
func TestService(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		h := newFixture(t, s)
		h.domains()
		h.mailboxes()
		h.aliases()
		h.logins()
		h.vacations()
		h.keys()
		h.sending()
		h.batches()
		h.scheduling()
		h.suppressions()
		h.templates()
		h.threads()
		h.mail()
		h.sandbox()
		h.events()
		h.stats()
		h.limits()
		h.operator()
		h.webhooks()
		h.migrations()
		h.transfers()
		h.activity()
		covered(t, s, h.path)
	})
}
