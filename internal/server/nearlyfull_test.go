// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"errors"
	"fmt"
	"io"
	"net/smtp"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var (
	usageOf = db.SQL(`SELECT bytes, messages, nearly_full,
			(SELECT CAST(COALESCE(SUM(m.size), 0) AS BIGINT) FROM folder_message m JOIN folder f ON f.id = m.folder WHERE f.mailbox = $1),
			(SELECT COUNT(*) FROM folder_message m JOIN folder f ON f.id = m.folder WHERE f.mailbox = $1)
		FROM mailbox_usage WHERE mailbox = $1`)
	fullFor = db.SQL(`UPDATE mailbox_usage SET over_since = over_since - $2 WHERE mailbox = $1 AND over_since > 0`)
)

// small is a mailbox with a quota of one megabyte.
type small struct {
	*testing.T
	s    *servertest.Server
	box  *client.Mailbox
	id   db.ID
	imap *imapclient.Client
}

func newSmall(t *testing.T, s *servertest.Server) *small {
	t.Helper()
	box, err := clientOf(t, s).CreateMailbox(t.Context(), client.NewMailbox{DomainID: s.Dev.Domain.ID.String(), LocalPart: "small", QuotaMB: 1})
	if err != nil {
		t.Fatal(err)
	}
	id, err := db.ParseID(box.ID)
	if err != nil {
		t.Fatal(err)
	}
	c, err := imapclient.DialTLS(s.Addr("imaps"), &imapclient.Options{TLSConfig: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Login(box.Address, box.Password).Wait(); err != nil {
		t.Fatal(err)
	}
	return &small{t, s, box, id, c}
}

// sized returns a message of n bytes.
func sized(n int) string {
	head := "From: ann@good.com\r\nTo: small@demo.test\r\nSubject: sized\r\n\r\n"
	return head + strings.Repeat(strings.Repeat("x", 70)+"\r\n", n)[:n-len(head)-2] + "\r\n"
}

func (b *small) append(folder string, size int) error {
	cmd := b.imap.Append(folder, int64(size), nil)
	_, err := io.WriteString(cmd, sized(size))
	if err := errors.Join(err, cmd.Close()); err != nil {
		return err
	}
	_, err = cmd.Wait()
	return err
}

// fill appends messages to Archive until to bytes are used.
func (b *small) fill(to int64) {
	b.Helper()
	for {
		used, _, _ := b.usage()
		if left := to - used; left < 200 {
			return
		} else if err := b.append("Archive", int(min(left, 60_000))); err != nil {
			b.Fatal(err)
		}
	}
}

// usage reads the mailbox's usage, and compares it with its contents.
func (b *small) usage() (bytes, messages, nearlyFull int64) {
	b.Helper()
	var stored, n int64
	if err := b.s.DB.One(b.Context(), usageOf.With(b.id), &bytes, &messages, &nearlyFull, &stored, &n); err != nil {
		b.Fatal(err)
	}
	if stored != bytes || n != messages {
		b.Errorf("%d bytes in %d messages are counted, %d in %d are there", bytes, messages, stored, n)
	}
	return bytes, messages, nearlyFull
}

// warnings waits until the inbox has n warnings, and returns the last.
func (b *small) warnings(n int) string {
	b.Helper()
	f, err := b.s.Folders.Status(b.Context(), b.id, "INBOX")
	if err != nil {
		b.Fatal(err)
	}
	sub := b.s.Hub.Subscribe(notify.Key{Kind: notify.Folder, ID: int64(f.ID)})
	defer sub.Close()
	for {
		if _, err := b.imap.Select("INBOX", nil).Wait(); err != nil {
			b.Fatal(err)
		}
		found, err := b.imap.UIDSearch(&imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: "Auto-Submitted", Value: "auto-generated"}}}, nil).Wait()
		if err != nil {
			b.Fatal(err)
		}
		uids := found.AllUIDs()
		if len(uids) > n {
			b.Fatalf("%d warnings, want %d", len(uids), n)
		}
		if len(uids) == n && n > 0 {
			section := &imap.FetchItemBodySection{Peek: true}
			got, err := b.imap.Fetch(imap.UIDSetNum(uids[n-1]), &imap.FetchOptions{BodySection: []*imap.FetchItemBodySection{section}}).Collect()
			if err != nil || len(got) != 1 {
				b.Fatalf("%d messages, %v", len(got), err)
			}
			return string(got[0].FindBodySection(section))
		}
		if len(uids) == n {
			return ""
		}
		<-sub.C
	}
}

// none fails if a warning is due, or there are more than n.
func (b *small) none(n int) {
	b.Helper()
	if _, err := b.s.Inbound.SendQuotaWarnings(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.warnings(n)
}

// empty expunges everything in Archive.
func (b *small) empty() {
	b.Helper()
	if _, err := b.imap.Select("Archive", nil).Wait(); err != nil {
		b.Fatal(err)
	}
	all := imap.SeqSet{imap.SeqRange{Start: 1}}
	if err := b.imap.Store(all, &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}, Silent: true}, nil).Close(); err != nil {
		b.Fatal(err)
	}
	if _, err := b.imap.Expunge().Collect(); err != nil {
		b.Fatal(err)
	}
}

// An owner is warned once when the mailbox gets nearly full, for any cause, and again after there
// was space.
func TestNearlyFull(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		const quota = 1 << 20
		b := newSmall(t, s)
		b.fill(quota*9/10 - 1000)
		b.none(0)
		if err := b.append("Archive", 2000); err != nil {
			t.Fatal(err)
		}
		text := b.warnings(1)
		for _, want := range []string{
			"Return-Path: <>\r\n", "From: Postmaster <postmaster@mail.mailstead.test>\r\n", "To: small@demo.test\r\n", "Subject: Your mailbox is 90 % full\r\n",
			"Auto-Submitted: auto-generated\r\n", "Your mailbox small@demo.test is nearly full: 923 KB of 1.0 MB are used (90 %).\r\n", "What you can do:\r\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("the warning lacks %q:\n%s", want, text)
			}
		}
		if err := b.append("Archive", 2000); err != nil {
			t.Fatal(err)
		}
		b.none(1)
		if _, _, state := b.usage(); state != 2 {
			t.Errorf("told, it is %d", state)
		}

		// By COPY, to the brim.
		b.empty()
		if _, _, state := b.usage(); state != 0 {
			t.Errorf("emptied, it is %d", state)
		}
		b.fill(quota * 6 / 10)
		if _, err := b.imap.Copy(imap.SeqSet{imap.SeqRange{Start: 1, Stop: 6}}, "Trash").Wait(); err != nil {
			t.Fatal(err)
		}
		b.warnings(2)
		b.empty()
		b.none(2)

		// By concurrent mail above the quota, while several goroutines send warnings.
		b.fill(quota * 7 / 10)
		const many = 8
		var all sync.WaitGroup
		for range many {
			all.Go(func() {
				if err := mx(t, s, "ann@good.com", sized(50_000), b.box.Address); err != nil && !strings.HasPrefix(err.Error(), "452 ") {
					t.Error(err)
				}
			})
			all.Go(func() {
				if _, err := s.Inbound.SendQuotaWarnings(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		b.warnings(3)
		if used, _, _ := b.usage(); used < quota {
			t.Errorf("%d bytes are used", used)
		}
		b.none(3)

		// With another quota.
		for n, mb := range []int{4, 1, 4} {
			if _, err := clientOf(t, s).UpdateMailbox(t.Context(), b.box.ID, client.MailboxChange{QuotaMB: &mb}); err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				if text := b.warnings(4); strings.Contains(text, "Subject: Your mailbox is 90 % full\r\n") {
					t.Errorf("it is full:\n%s", text)
				}
			}
		}
		if _, _, state := b.usage(); state != 0 {
			t.Errorf("with more room it is %d", state)
		}
		b.none(4)
	})
}

// Mail to a full mailbox is rejected temporarily, and permanently after a week. Accepted mail is
// complete, and counted in the usage.
func TestFullMailbox(t *testing.T) {
	eachOutsider(t, func(t *testing.T, s *servertest.Server) {
		b := newSmall(t, s)
		refused := func(to ...string) string {
			t.Helper()
			var why *textproto.Error
			err := mx(t, s, "ann@good.com", question, to...)
			if err == nil {
				return ""
			}
			if !errors.As(err, &why) {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d %.5s", why.Code, why.Msg)
		}
		b.fill(1<<20 - 30_000)
		big := sized(200_000)
		if err := mx(t, s, "ann@good.com", big, b.box.Address); err != nil {
			t.Fatalf("there was room when it began: %v", err)
		}
		b.warnings(1)
		used, messages, _ := b.usage()
		if used <= 1<<20 {
			t.Errorf("%d bytes are used", used)
		}
		if err := b.append("Archive", 1000); err == nil || !strings.Contains(err.Error(), "OVERQUOTA") {
			t.Errorf("APPEND over the quota: %v", err)
		}
		if got := refused(b.box.Address); got != "452 4.2.2" {
			t.Errorf("at first: %s", got)
		}
		// A recipient with space gets it all the same.
		c, err := smtp.Dial(s.Addr("smtp"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // only a client
		if err := errors.Join(c.Mail("ann@good.com"), c.Rcpt("alice@demo.test")); err != nil {
			t.Fatal(err)
		}
		if err := c.Rcpt(b.box.Address); err == nil || !strings.Contains(err.Error(), "4.2.2") {
			t.Errorf("beside another: %v", err)
		}
		w, err := c.Data()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, question) // an error shows at the end
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if text := arrived(t, s, 0, 1); !strings.HasSuffix(text, question) {
			t.Errorf("alice got\n%s", text)
		}
		// Local mail is queued, and bounces in the end.
		submitted(t, s, 1, "From: bob@demo.test\r\nTo: small@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", b.box.Address)
		dbtest.Exec(t, s.DB, fullFor.With(b.id, (mailbox.FullGracePeriod-time.Hour).Microseconds()))
		if got := refused(b.box.Address); got != "452 4.2.2" {
			t.Errorf("within the week: %s", got)
		}
		dbtest.Exec(t, s.DB, fullFor.With(b.id, time.Hour.Microseconds()))
		if got := refused(b.box.Address); got != "552 5.2.2" {
			t.Errorf("after a week: %s", got)
		}
		submitted(t, s, 1, "From: bob@demo.test\r\nTo: small@demo.test\r\nSubject: Hi\r\n\r\nHi\r\n", b.box.Address)
		if text := arrived(t, s, 1, 1); !strings.Contains(text, "5.2.2") {
			t.Errorf("bob was told\n%s", text)
		}
		if now, n, _ := b.usage(); now != used || n != messages {
			t.Errorf("refused, and yet %d bytes in %d messages are used, not %d in %d", now, n, used, messages)
		}
		b.empty()
		if got := refused(b.box.Address); got != "" {
			t.Errorf("with room again: %s", got)
		}
		b.usage()
	})
}
