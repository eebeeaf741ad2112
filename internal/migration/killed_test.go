// SPDX-License-Identifier: Apache-2.0

package migration_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// oddNames returns folder names of all kinds, with the resulting local names.
func oddNames(count int) map[string]string {
	all := map[string]string{
		"INBOX": "INBOX", "Sent Items": "Sent", "Deleted Items": "Trash", "Spam": "Junk", "Entwürfe": "Drafts", "Sent": "Sent (2)",
		"Grüße & Küsse": "Grüße & Küsse", "日本語": "日本語", "🙂 fun": "🙂 fun", "a.b.c": "a.b.c", "Work": "Work", "Work/2019": "Work/2019", "Work/2019/Müller": "Work/2019/Müller",
		`quote"d`: `quote"d`, `back\slash`: `back\slash`, "&ampersand": "&ampersand", " leading": " leading", "100%": "100%", "star*": "star*", "(brackets) {1}": "(brackets) {1}",
		"Sent Items/2020": "Sent/2020", "empty": "empty", strings.Repeat("long ", 30) + "x": strings.Repeat("long ", 30) + "x",
	}
	for i := len(all); i < count; i++ {
		name := fmt.Sprintf("Folder %d", i)
		all[name] = name
	}
	return all
}

// seed creates folders at a source and distributes messages among them. Some messages are deleted
// again.
func seed(t testing.TB, c *imapclient.Client, folders map[string]string, messages int) {
	t.Helper()
	each := messages / (len(folders) - 1)
	for name := range folders {
		if name != "INBOX" {
			if err := c.Create(name, nil).Wait(); err != nil && !strings.Contains(err.Error(), "exists") {
				t.Fatalf("%q: %v", name, err)
			}
		}
		switch name {
		case "empty":
		case "INBOX":
			fill(t, c, name, 0, messages-each*(len(folders)-2)+3)
			if _, err := c.Select(name, nil).Wait(); err != nil {
				t.Fatal(err)
			}
			if err := c.Store(imap.UIDSetNum(2, 3, 5), &imap.StoreFlags{Op: imap.StoreFlagsAdd, Flags: []imap.Flag{imap.FlagDeleted}, Silent: true}, nil).Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.UIDExpunge(imap.UIDSetNum(2, 3, 5)).Close(); err != nil {
				t.Fatal(err)
			}
		default:
			fill(t, c, name, 0, each)
		}
	}
}

// A migrated Dovecot mailbox with odd names, flags and dates is identical, although the server is
// killed three times meanwhile.
func TestKilledThreeTimes(t *testing.T) {
	const folders = 40
	messages := servertest.SoakSize(2000, 100_000)
	path, err := servertest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := startDovecot(t, "separator = /")
	there := d.login("ann")
	wanted := oddNames(folders)
	seed(t, there, wanted, messages)
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.NewProcess(t, path, t.TempDir(), url)
		s.Start()
		var bytes int64
		for name := range wanted {
			st, err := there.Status(name, &imap.StatusOptions{NumMessages: true, Size: true}).Wait()
			if err != nil {
				t.Fatal(err)
			}
			bytes += *st.Size
		}
		p := startProxy(t, d.imap, bytes/4, nil)
		began, peak := time.Now(), int64(0)
		box := s.Dev.Mailboxes[0]
		m, err := s.Client().CreateMigration(t.Context(), client.NewMigration{MailboxID: box.ID.String(), Source: dovecotSource(p.addr, "ann", "implicit")})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-p.held
			peak = max(peak, s.Memory("VmHWM"))
			s.Kill()
			p.allow(bytes / 4)
			s.Start()
		}
		p.allow(1 << 60)
		e := finished(t, s.Client(), m.ID)
		if e.Status != "completed" || e.Progress.Copied != int64(messages) || e.Progress.Skipped+e.Progress.Failed != 0 ||
			e.Progress.FoldersDone != folders || e.Progress.MessagesDone != int64(messages) {
			t.Errorf("it ended as %s %s %+v, %+v", e.Status, e.Detail, e.Progress, e.Failures)
		}
		took := time.Since(began)
		t.Logf("%d messages, %d MB in %v: %.0f messages/s; at most %d MiB resident", messages, bytes/1e6, took.Round(time.Millisecond),
			float64(messages)/took.Seconds(), max(peak, s.Memory("VmHWM"))>>20)
		targets := map[string]string{}
		for _, f := range e.Folders {
			targets[f.Name] = f.Target
			if wanted[f.Name] != f.Target {
				t.Errorf("%q became %q, not %q", f.Name, f.Target, wanted[f.Name])
			}
		}
		here := signIn(t, s.Addr("imaps"), box.Address, box.Password)
		if n := identical(t, d.login("ann"), here, targets); n != messages {
			t.Errorf("there are %d messages", n)
		}
		unasked := names(t, here)
		for _, target := range targets {
			if i := slices.Index(unasked, target); i < 0 {
				t.Errorf("there is no %q", target)
			} else {
				unasked = append(unasked[:i], unasked[i+1:]...)
			}
		}
		if strings.Join(unasked, " ") != "Archive" { // the source has no such folder
			t.Errorf("there are further folders: %q", unasked)
		}
	})
}
