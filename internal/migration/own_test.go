// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// fill puts messages into a folder over IMAP, with flags and dates of all kinds.
func fill(t testing.TB, c *imapclient.Client, name string, from, count int) {
	t.Helper()
	for i := from; i < from+count; i++ {
		text := mailText(name, i)
		options := &imap.AppendOptions{Time: time.Date(2001+i%25, time.Month(1+i%12), 1+i%28, i%24, i%60, 0, 0, time.FixedZone("", 3600*(i%5-2)))}
		for bit, flag := range []imap.Flag{imap.FlagSeen, imap.FlagAnswered, imap.FlagFlagged, imap.FlagDraft, "$Forwarded", "Work", imap.FlagDeleted} {
			if i>>bit&1 == 1 {
				options.Flags = append(options.Flags, flag)
			}
		}
		cmd := c.Append(name, int64(len(text)), options)
		if _, err := cmd.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := cmd.Wait(); err != nil {
			t.Fatalf("%s %d: %v", name, i, err)
		}
	}
}

func mailText(name string, i int) string {
	body := "Hello.\r\n"
	switch i % 10 {
	case 3:
		body = fmt.Sprintf("%0*d\r\n", 70_000, i)
	case 4:
		body = "\x80\xff no charset\r\n"
	case 5:
		body = ""
	}
	return fmt.Sprintf("From: ann@example.org\r\nTo: bob@example.org\r\nSubject: %d\r\nMessage-ID: <%x.%d@example.org>\r\nDate: Mon, 2 Mar 2026 23:30:00 -0500\r\n\r\n%s", i, name, i, body)
}

func login(t testing.TB, s *servertest.Server, box int) *imapclient.Client {
	t.Helper()
	m := s.Dev.Mailboxes[box]
	return signIn(t, s.Addr("imaps"), m.Address, m.Password)
}

// Migration between two mailboxes of this server; the second run copies only new messages.
func TestOwnServer(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		from, api := login(t, s, 0), clientOf(t, s)
		for _, name := range []string{"Work", "Work/2019", "Grüße & Küsse", "Sent Items"} {
			if err := from.Create(name, nil).Wait(); err != nil {
				t.Fatal(err)
			}
		}
		for name, n := range map[string]int{"INBOX": 30, "Work/2019": 45, "Grüße & Küsse": 5, "Sent": 3, "Sent Items": 2} {
			fill(t, from, name, 0, n)
		}
		host, port, _ := net.SplitHostPort(s.Addr("imaps"))
		n, _ := strconv.Atoi(port)
		source := client.NewMigrationSource{Host: host, Port: n, Username: s.Dev.Mailboxes[0].Address, Password: s.Dev.Mailboxes[0].Password, InsecureSkipVerify: true}
		run := func(copied, skipped int64) *client.MigrationDetail {
			t.Helper()
			m, err := api.CreateMigration(t.Context(), client.NewMigration{MailboxID: s.Dev.Mailboxes[1].ID.String(), Source: source})
			if err != nil {
				t.Fatal(err)
			}
			d := finished(t, api, m.ID)
			if d.Status != "completed" || d.Progress.Copied != copied || d.Progress.Skipped != skipped || d.Progress.Failed != 0 ||
				d.Progress.MessagesDone != copied+skipped || d.Progress.Messages != copied+skipped {
				t.Fatalf("%+v", d)
			}
			return d
		}
		run(85, 0)
		fill(t, from, "INBOX", 30, 7)
		run(7, 85)
		run(0, 92)
		targets := map[string]string{"Sent Items": "Sent Items"}
		for _, name := range names(t, from) {
			targets[name] = name
		}
		if n := identical(t, from, login(t, s, 1), targets); n != 92 {
			t.Errorf("there are %d messages", n)
		}
	})
}

// In a recreated folder, messages without a Message-ID are copied unless they are here, even if
// size and date match those of another.
func TestRenumberedWithoutIDs(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		from, api := login(t, s, 0), clientOf(t, s)
		create := func(subjects ...string) {
			t.Helper()
			if err := from.Create("Old", nil).Wait(); err != nil {
				t.Fatal(err)
			}
			for _, subject := range subjects {
				text := "From: cron@example.org\r\nSubject: " + subject + "\r\n\r\nHello.\r\n"
				cmd := from.Append("Old", int64(len(text)), &imap.AppendOptions{Time: time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)})
				if _, err := cmd.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Close(); err != nil {
					t.Fatal(err)
				}
				if _, err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
			}
		}
		host, port, _ := net.SplitHostPort(s.Addr("imaps"))
		n, _ := strconv.Atoi(port)
		source := client.NewMigrationSource{Host: host, Port: n, Username: s.Dev.Mailboxes[0].Address, Password: s.Dev.Mailboxes[0].Password, InsecureSkipVerify: true}
		run := func(copied, skipped int64) {
			t.Helper()
			m, err := api.CreateMigration(t.Context(), client.NewMigration{MailboxID: s.Dev.Mailboxes[1].ID.String(), Source: source})
			if err != nil {
				t.Fatal(err)
			}
			if d := finished(t, api, m.ID); d.Status != "completed" || d.Progress.Copied != copied || d.Progress.Skipped != skipped {
				t.Fatalf("%+v", d)
			}
		}
		create("disk 1 is full")
		run(1, 0)
		if err := from.Delete("Old").Wait(); err != nil {
			t.Fatal(err)
		}
		create("disk 1 is full", "disk 2 is full")
		run(1, 1)
		run(0, 2)
	})
}
