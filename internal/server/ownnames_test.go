// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Local mail to the service's own names arrives as it does from outside: a reply to its postmaster,
// a report to a return path.
func TestToOwnNames(t *testing.T) {
	const host = "mail.story.example"
	dbtest.EachURL(t, func(t *testing.T, url string) {
		resolver, zone := dnstest.Start(t, host+". A 127.0.0.1", "bounces."+host+". MX 10 "+host+".")
		s := servertest.Start(t, servertest.Database(url), func(c *server.Config) {
			servertest.ServeMode(host, resolver, c.TLS, "")(c)
			c.Postmaster = "ann@story.example"
		})
		ctx := t.Context()
		acc, err := s.Accounts.Create(ctx, "ann@story.example", "")
		if err != nil {
			t.Fatal(err)
		}
		domain, err := s.Domains.Create(ctx, acc.ID, "story.example")
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range domain.Records {
			zone.Publish(r.Type, r.Name, r.Value, r.Priority)
		}
		if domain, err = s.Domains.CheckDNS(ctx, acc.ID, domain.ID); err != nil || !domain.Receives {
			t.Fatalf("%+v, %v", domain, err)
		}
		ann, _, err := s.Mailboxes.Create(ctx, acc.ID, mailbox.CreateParams{Domain: domain.ID, LocalPart: "ann"})
		if err != nil {
			t.Fatal(err)
		}
		from, err := address.Parse(ann.Address)
		if err != nil {
			t.Fatal(err)
		}
		sub := s.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(acc.ID)})
		defer sub.Close()
		send := func(to, want string) (id db.ID) {
			t.Helper()
			a, err := address.Parse(to)
			if err == nil {
				id, err = s.Outbox.Submit(ctx, ann, outbound.Submission{From: &from, To: []outbound.SubmissionRecipient{{Address: a}}}, strings.NewReader("From: ann@story.example\r\nSubject: Hi\r\n\r\nHi\r\n"))
			}
			if err != nil {
				t.Fatal(err)
			}
			for {
				all, err := s.Queue.Deliveries(ctx, id)
				if err != nil {
					t.Fatal(err)
				}
				if d := all[0]; d.State.Final() || d.State == queue.Deferred {
					if got := string(d.State) + " " + d.Enhanced; got != want {
						t.Errorf("to %s: %s %s, want %s", to, got, d.Reply, want)
					}
					return id
				}
				<-sub.C
			}
		}
		send("postmaster@"+host, "delivered 2.0.0")
		send("nobody@"+host, "bounced 5.1.1")
		send("fbl@"+host, "delivered 2.0.0")
		sent := send("abuse@"+host, "delivered 2.0.0")
		send(s.Inbound.Key.ReturnPath(int64(sent), 0)+"@bounces."+host, "delivered 2.0.0")
		send("nobody@bounces."+host, "bounced 5.1.1")
		send("postmaster@bounces."+host, "delivered 2.0.0")
	})
}
