// SPDX-License-Identifier: Apache-2.0

package mailio_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// fixture is the service with its own mailboxes.
type fixture struct {
	*testing.T
	s       *servertest.Server
	account db.ID
	boxes   int
}

func each(t *testing.T, f func(h *fixture)) {
	t.Helper()
	servertest.Each(t, func(t *testing.T, s *servertest.Server) { f(newFixture(t, s)) })
}

func newFixture(t *testing.T, s *servertest.Server) *fixture {
	acc, err := s.Accounts.ByEmail(t.Context(), "you@demo.test")
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{T: t, s: s, account: acc.ID}
}

func (h *fixture) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// box creates a mailbox.
func (h *fixture) box() db.ID {
	h.Helper()
	h.boxes++
	quota := 100
	m, _, err := h.s.Mailboxes.Create(h.Context(), h.account, mailbox.CreateParams{Domain: h.s.Dev.Domain.ID, LocalPart: fmt.Sprintf("box%d", h.boxes), QuotaMB: &quota})
	h.must(err)
	return m.ID
}

// put adds a message to a folder.
func (h *fixture) put(box db.ID, name, text string, date time.Time, flags folder.Flags, keywords ...string) {
	h.Helper()
	b, err := h.s.Blobs.FromBytes(h.Context(), []byte(text))
	h.must(err)
	ix, header, err := message.ScanReader(strings.NewReader(text))
	h.must(err)
	d, err := folder.NewMetadata(header, ix)
	h.must(err)
	_, _, err = h.s.Folders.Append(h.Context(), box, name, folder.Upload{Blob: b, Metadata: d, Flags: flags, Keywords: keywords, Date: date})
	h.must(err)
}

// all returns the contents of a mailbox, a line per folder and message.
func (h *fixture) all(box db.ID) (lines []string) {
	h.Helper()
	folders, err := h.s.Folders.List(h.Context(), box)
	h.must(err)
	subscribed, err := h.s.Folders.Subscriptions(h.Context(), box)
	h.must(err)
	for _, f := range folders {
		lines = append(lines, fmt.Sprintf("%q %s %v", f.Name, f.SpecialUse, slices.Contains(subscribed, f.Name)))
		v, err := h.s.Folders.Open(h.Context(), box, f.Name, true)
		h.must(err)
		err = v.Fetch(h.Context(), v.Resolve([]folder.Range{{Lo: 1, Hi: folder.Star}}, false), folder.FetchDates|folder.FetchContent, func(r *folder.MessageRow) error {
			in, err := r.Content.Open(h.Context())
			h.must(err)
			defer in.Close()
			text, err := io.ReadAll(in.All())
			lines = append(lines, fmt.Sprintf("  %v %v %s %q", r.Flags&folder.AllFlags, r.Keywords, r.Date.UTC().Format(time.DateTime), text))
			return err
		})
		h.must(err)
		v.Close()
	}
	return lines
}

func (h *fixture) same(what string, want, got []string) {
	h.Helper()
	for i := range max(len(want), len(got)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			h.Fatalf("%s: line %d of %d is\n%.400s\nand not\n%.400s", what, i, len(got), g, w)
		}
	}
}

func (h *fixture) export(box db.ID, format, name string) []byte {
	h.Helper()
	var out bytes.Buffer
	h.must(h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: format, Folder: name}, &out))
	return out.Bytes()
}

func (h *fixture) bring(box db.ID, archive []byte, in mailio.ImportOptions) mailio.ImportResult {
	h.Helper()
	in.Account, in.Mailbox = h.account, box
	r, err := h.s.Transfers.Import(h.Context(), in, bytes.NewReader(archive))
	h.must(err)
	return r
}

// odd fills a mailbox with unusual messages.
func (h *fixture) odd(box db.ID) (messages int64) {
	h.Helper()
	ctx := h.Context()
	for _, f := range []struct{ name, special string }{
		{"a/b", ""}, {"Entwürfe & mehr", ""}, {"dots.in.it", ""}, {" spaces ", ""}, {"..", ""}, {"INBOX/below", ""}, {"a.b/~c", ""}, {"Spam", ""},
		{strings.Repeat("long ü ", 30), ""}, {"=?utf-8?q?x?=", ""}, {"empty", ""}, {"UPPER", ""}, {"upper", ""},
	} {
		_, err := h.s.Folders.CreateSpecial(ctx, box, f.name, f.special)
		h.must(err)
		if f.name != "dots.in.it" {
			h.must(h.s.Folders.Subscribe(ctx, box, f.name))
		}
	}
	h.must(h.s.Folders.Rename(ctx, box, "Sent", "Gesendet"))
	h.must(h.s.Folders.Rename(ctx, box, "Archive", "Keep"))
	h.must(h.s.Folders.Subscribe(ctx, box, "Gesendet"))
	h.must(h.s.Folders.Subscribe(ctx, box, "Keep"))
	date := time.Date(1999, 12, 31, 23, 59, 58, 0, time.UTC)
	texts := []string{
		"Subject: plain\r\nMessage-ID: <1@x>\r\n\r\nHello.\r\n", "Subject: no end\r\n\r\nHello.", "Subject: lf only\n\nHello.\nFrom me\n", "no header at all",
		"Subject: from\r\n\r\nFrom a@b Sat Nov 21 17:00:00 2026\r\n>From b\r\n>>From c\r\n\r\nFrom d\r\n\r\n", "Status: RO\r\nX-Status: A\r\nX-Folder: x\r\nX-Mozilla-Status: 0008\r\n\r\nOwn fields.\r\n",
		"Content-Length: 3\r\n\r\nabcdef\r\n\r\nFrom x Sat Nov 21 17:00:00 2026\r\n\r\n", "\r\n\r\n\r\n", " begins with a blank\r\n", "From first line\r\n\r\nx\r\n", "Subject: cr\r\r\n\r\nbare \r cr\r",
		"Subject: 8 bit \xe4\xff\r\n\r\n\xc3\xbc\r\n", "Subject: long\r\n\r\n" + strings.Repeat("x", 100_000) + "\r\n", "Subject: large\r\n\r\n" + strings.Repeat("line\r\n", 50_000),
	}
	folders, err := h.s.Folders.List(ctx, box)
	h.must(err)
	for i, f := range folders {
		if f.Name == "empty" {
			continue
		}
		for n, text := range texts {
			words := []string{"$Forwarded", fmt.Sprintf("word%d", (n*7+i)%40), "Häs"[:1] + "as"}
			h.put(box, f.Name, text, date.Add(time.Duration(messages)*time.Hour), folder.Flags(n*3+i)&folder.AllFlags, words[:n%4%3+n%2]...)
			messages++
		}
		if i < 3 { // two identical ones
			h.put(box, f.Name, texts[0], date, 0)
			messages++
		}
		if f.Name == "a/b" { // more keywords than there are letters
			for n := range 40 {
				h.put(box, f.Name, texts[1], date, 0, fmt.Sprintf("word%d", n), "$Junk")
				messages++
			}
		}
	}
	return messages
}

// A mailbox that is exported and imported into another is identical: bytes, flags, dates, folders,
// special uses. A second import adds no duplicates.
func TestThereAndBack(t *testing.T) {
	each(t, func(h *fixture) {
		from := h.box()
		n := h.odd(from)
		want := h.all(from)
		for _, format := range []string{mailio.Maildir, mailio.Mbox} {
			archive := h.export(from, format, "")
			to := h.box()
			if format == mailio.Mbox { // the format can't hold these
				h.must(h.s.Folders.Rename(h.Context(), to, "Sent", "Gesendet"))
				h.must(h.s.Folders.Rename(h.Context(), to, "Archive", "Keep"))
				h.must(h.s.Folders.Subscribe(h.Context(), to, "Gesendet"))
				h.must(h.s.Folders.Subscribe(h.Context(), to, "Keep"))
				_, err := h.s.Folders.Create(h.Context(), to, "empty")
				h.must(err)
				h.must(h.s.Folders.Subscribe(h.Context(), to, "empty"))
			}
			if r := h.bring(to, archive, mailio.ImportOptions{}); r.Imported != n || r.Failed != 0 || r.Skipped != 0 {
				h.Fatalf("%s: imported %+v of %d", format, r, n)
			}
			got := h.all(to)
			fixed := slices.Clone(want)
			for i := range fixed {
				if format == mailio.Maildir { // folders with special uses map to existing ones
					fixed[i] = strings.Replace(strings.Replace(fixed[i], `"Gesendet" \Sent`, `"Sent" \Sent`, 1), `"Keep" \Archive`, `"Archive" \Archive`, 1)
				} else if name, ok := strings.CutSuffix(fixed[i], "  false"); ok && strings.HasPrefix(name, `"`) {
					fixed[i] = name + "  true" // an mbox doesn't say
				}
			}
			h.same(format, byFolder(fixed), byFolder(got))
			if r := h.bring(to, archive, mailio.ImportOptions{}); r.Imported != 0 || r.Skipped != n {
				h.Errorf("%s: once more: %+v", format, r)
			}
			h.same(format+" once more", got, h.all(to))
		}
	})
}

// byFolder sorts folders with their messages by name.
func byFolder(lines []string) []string {
	var groups []string
	for _, line := range lines {
		if strings.HasPrefix(line, "  ") {
			groups[len(groups)-1] += "\n" + line
		} else {
			groups = append(groups, line)
		}
	}
	slices.Sort(groups)
	return strings.Split(strings.Join(groups, "\n"), "\n")
}

// A single folder is exported as if there were no other, and imported into any folder.
func TestSingleFolder(t *testing.T) {
	each(t, func(h *fixture) {
		from := h.box()
		h.put(from, "Sent", "Subject: x\r\n\r\nx\r\n", time.Unix(1e9, 0), folder.Seen, "word")
		for _, format := range []string{mailio.Maildir, mailio.Mbox} {
			to := h.box()
			if r := h.bring(to, h.export(from, format, "Sent"), mailio.ImportOptions{Folder: "Old/Letters"}); r.Imported != 1 {
				h.Errorf("%s: imported %+v", format, r)
			}
			found := slices.DeleteFunc(h.all(to), func(line string) bool { return strings.HasPrefix(line, `"`) && !strings.HasPrefix(line, `"Old`) })
			h.same(format, []string{`"Old"  false`, `"Old/Letters"  true`, `  1 [word] 2001-09-09 01:46:40 "Subject: x\r\n\r\nx\r\n"`}, found)
		}
	})
}
