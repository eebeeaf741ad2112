// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// mailed waits until the sandbox has captured the given number of service messages to an external
// address, and returns the newest.
func mailed(t *testing.T, s *servertest.Server, to string, want int) (text string) {
	t.Helper()
	servertest.Eventually(t, func() string {
		list, _, err := s.Dashboard.SandboxOutbox.List(t.Context(), account.OperatorAccount, "", db.Page{Limit: db.MaxPageSize})
		if err != nil {
			t.Fatal(err)
		}
		var of []string
		for _, m := range list {
			if !slices.Contains(m.Recipients, to) {
				continue
			}
			_, r, err := s.Dashboard.SandboxOutbox.Open(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(r.All())
			_ = r.Close()
			if err != nil {
				t.Fatal(err)
			}
			of = append(of, string(all))
		}
		if len(of) < want {
			return "no mail to " + to + " was sent"
		}
		text = of[0]
		return ""
	})
	return text
}

// link returns the path of the link in a message.
func link(t *testing.T, text string) string {
	t.Helper()
	plain := strings.ReplaceAll(strings.ReplaceAll(text, "=\r\n", ""), "=3D", "=")
	path := regexp.MustCompile(`/(join|reset|confirm)/mst_[a-z0-9]+`).FindString(plain)
	if path == "" {
		t.Fatal("there is no link in", text)
	}
	return path
}

// served lists the service mail to an address, newest first.
func served(t *testing.T, s *servertest.Server, to string) []outbound.Message {
	t.Helper()
	found, err := s.Outbox.Index.Find(t.Context(), account.OperatorAccount, index.Filter{Recipients: []string{to}}, db.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return found.Messages
}
