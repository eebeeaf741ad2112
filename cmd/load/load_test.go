// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/cmd/load/names"
	"github.com/mailstead/mailstead/cmd/load/smtp"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// TestAgainstTheService runs a little of each benchmark against the real service, to check that the
// load program matches it.
func TestAgainstTheService(t *testing.T) {
	sink, err := smtp.Listen([]string{"127.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	dns, err := names.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dns.Close(); err != nil {
			t.Error(err)
		}
	})
	live := servertest.Start(t, func(c *server.Config) {
		c.Relay, c.Resolver = fmt.Sprintf("smtp://127.0.0.1:%d", sink.Port), dns.Addr
	})
	var boxes []mailbox
	for _, m := range live.Dev.Mailboxes {
		boxes = append(boxes, mailbox{m.Address, m.Password})
	}
	s := &system{
		name: "service", http: live.Addr("http"), mx: live.Addr("smtp"), submission: live.Addr("submission"), imap: live.Addr("imaps"),
		senders: []sender{{live.Dev.APIKey, boxes[0].address}}, mailboxes: boxes, privateMailboxes: append(boxes[1:2:2], boxes...), sink: sink,
		externalDomains: []string{"one.bench-sink.net", "two.bench-sink.net"},
	}
	signer, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		options: &options{rounds: 1, count: 100, limit: time.Minute, relay: 50, big: 1, largeFolder: 3000, large: 1 << 20},
		report:  newReport(), names: dns, messages: folderMessages(400, 8<<10), signer: signer,
	}
	for _, w := range append(benchmarks(b.options), finalBenchmarks()[1]) { // not the footprint, which needs a process
		if w.name == "growth" || w.name == "mx-silent" { // the former starts its own services, the latter waits for DNS timeouts
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			if err := w.run(b, t.Context(), s, 0); err != nil {
				t.Fatal(err)
			}
		})
	}
	missing := map[string]bool{}
	for _, r := range rows() {
		_, measured := b.report.cells[[2]string{r.id, s.name}]
		missing[r.id] = !measured
	}
	for _, needsProcess := range []string{"size/cold", "size/session", "size/rss", "size/index"} {
		delete(missing, needsProcess)
	}
	for id, m := range missing {
		if m && strings.Contains(id, "/") && !strings.HasPrefix(id, "growth/") {
			t.Errorf("no figures for %s", id)
		}
	}
}
