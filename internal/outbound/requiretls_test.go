// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The TLS requirement of a submission is applied when it is sent.
func TestSubmitWishesOfTLS(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		p := programOf(t, s)
		for _, c := range []struct {
			required          bool
			field             string
			require, optional bool
		}{
			{false, "", false, false},
			{true, "", true, false},
			{false, "TLS-Required: No\r\n", false, true},
			{false, "tls-required:\r\n no \r\n", false, true},
			{true, "TLS-Required: No\r\n", true, false},
			{false, "TLS-Required: Yes\r\n", false, false},
		} {
			sub := p.submission("alice@demo.test", "a@far.example")
			sub.RequireTLS = c.required
			id, err := s.Outbox.Submit(t.Context(), p.alice, sub, strings.NewReader("From: alice@demo.test\r\n"+c.field+"Subject: hi\r\n\r\nHello\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			mail, err := s.Outbox.Prepare(t.Context(), id)
			if err != nil || mail.RequireTLS != c.require || mail.OptionalTLS != c.optional {
				t.Errorf("%+v: %v, %v, %v", c, mail.RequireTLS, mail.OptionalTLS, err)
			}
		}
	})
}
