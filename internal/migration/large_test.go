// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Messages of the maximum size pass through the service without being held in memory: memory use
// stays constant.
func TestLargeMessages(t *testing.T) {
	const size = 40 << 20
	messages := servertest.SoakSize(2, 100)
	path, err := servertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := startDovecot(t, "separator = /")
	there := d.login("ann")
	for i := range messages {
		head := fmt.Sprintf("From: ann@example.org\r\nSubject: large %d\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n", i)
		line := strings.Repeat("QUJD", 19) + "\r\n"
		text := head + strings.Repeat(line, (size-len(head))/len(line))
		a := there.Append("INBOX", int64(len(text)), nil)
		if _, err := a.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.NewProcess(t, path, t.TempDir(), url)
		s.Start()
		box := s.Dev.Mailboxes[0]
		quota := messages*size>>20 + 100
		if _, err := s.Client().UpdateMailbox(t.Context(), box.ID.String(), client.MailboxChange{QuotaMB: &quota}); err != nil {
			t.Fatal(err)
		}
		before, began := s.Memory("VmHWM"), time.Now()
		m, err := s.Client().CreateMigration(t.Context(), client.NewMigration{MailboxID: box.ID.String(), Source: dovecotSource(d.imap, "ann", "implicit")})
		if err != nil {
			t.Fatal(err)
		}
		e := finished(t, s.Client(), m.ID)
		if e.Status != "completed" || e.Progress.Copied != int64(messages) || e.Progress.Failed != 0 {
			t.Fatalf("it ended as %s %s %+v", e.Status, e.Detail, e.Progress)
		}
		took, moved := time.Since(began), s.Memory("VmHWM")
		here := signIn(t, s.Addr("imaps"), box.Address, box.Password)
		if texts := readFolder(t, here, "INBOX"); len(texts) != messages {
			t.Errorf("there are %d messages", len(texts))
		}
		peak := s.Memory("VmHWM")
		t.Logf("%d messages of %d MiB in %v, %.1f MB/s; at most %d MiB resident before, %d while they came, %d when they had been read",
			messages, size>>20, took.Round(time.Millisecond), float64(e.Progress.Bytes)/1e6/took.Seconds(), before>>20, moved>>20, peak>>20)
		if peak-before > size {
			t.Errorf("%d MiB were in memory at once", (peak-before)>>20)
		}
	})
}
