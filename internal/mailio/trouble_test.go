// SPDX-License-Identifier: Apache-2.0

package mailio_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// mails returns an mbox of n messages with about size bytes each.
func mails(n, size int) []byte {
	var b bytes.Buffer
	for i := range n {
		fmt.Fprintf(&b, "From x Sat Nov 21 17:00:00 2026\nSubject: %d\nMessage-ID: <%d@x>\n\n%s\n\n", i, i, strings.Repeat("x", size))
	}
	return b.Bytes()
}

// An import into a full mailbox reports how many messages were filed. With a larger quota, the same
// file adds the rest.
func TestFull(t *testing.T) {
	each(t, func(h *fixture) {
		quota := 1
		m, _, err := h.s.Mailboxes.Create(h.Context(), h.account, mailbox.CreateParams{Domain: h.s.Dev.Domain.ID, LocalPart: "small", QuotaMB: &quota})
		h.must(err)
		file := mails(300, 10_000)
		in := mailio.ImportOptions{Account: h.account, Mailbox: m.ID}
		r, err := h.s.Transfers.Import(h.Context(), in, bytes.NewReader(file))
		if !fault.Is(err, fault.OverQuota) || r.Imported < 90 || r.Imported > 104 || r.Bytes > 1<<20 {
			h.Fatalf("%+v, %v", r, err)
		}
		if got, err := h.s.Mailboxes.Get(h.Context(), h.account, m.ID); err != nil || got.Messages-r.Imported > 1 || got.Used < r.Bytes || got.Used > 1<<20 { // one is the warning about the quota
			h.Errorf("it holds %d messages and %d bytes, told were %+v; %v", got.Messages, got.Used, r, err)
		}
		quota = 10
		_, err = h.s.Mailboxes.Update(h.Context(), h.account, m.ID, mailbox.Change{QuotaMB: &quota})
		h.must(err)
		again, err := h.s.Transfers.Import(h.Context(), in, bytes.NewReader(file))
		if err != nil || again.Imported != 300-r.Imported || again.Skipped != r.Imported {
			h.Errorf("%+v, %v", again, err)
		}
	})
}

// Messages for a full folder are reported, and those for other folders are filed.
func TestFullFolder(t *testing.T) {
	each(t, func(h *fixture) {
		h.s.Folders.MaxMessages = 250
		box := h.box()
		file := string(mails(600, 100)) + "From x Sat Nov 21 17:00:00 2026\nX-Gmail-Labels: Sent\nSubject: fits\n\n\n"
		r := h.bring(box, []byte(file), mailio.ImportOptions{})
		if r.Imported != 251 || r.Failed != 350 || len(r.Failures) != mailio.MaxFailures || !strings.Contains(r.Failures[0].Reason, "as many messages") {
			h.Fatalf("%d, %d failed, %+v", r.Imported, r.Failed, r.Failures)
		}
		if f, err := h.s.Folders.Status(h.Context(), box, folder.Inbox); err != nil || f.Messages != 250 {
			h.Errorf("INBOX holds %d, %v", f.Messages, err)
		}
	})
}

// Messages before an error are filed and reported.
func TestBreaksOff(t *testing.T) {
	each(t, func(h *fixture) {
		lost := errors.New("the line is gone")
		file := mails(250, 100)
		for name, c := range map[string]struct {
			r    io.Reader
			fits func(error) bool
			n    int64
		}{
			"the line":     {io.MultiReader(bytes.NewReader(file), iotest.ErrReader(lost)), func(err error) bool { return errors.Is(err, lost) }, 249},
			"what follows": {strings.NewReader(tarWith(h, string(file)) + strings.Repeat("x", 2000)), func(err error) bool { return fault.Is(err, fault.Invalid) }, 250},
		} {
			r, err := h.s.Transfers.Import(h.Context(), mailio.ImportOptions{Account: h.account, Mailbox: h.box()}, c.r)
			if !c.fits(err) || r.Imported != c.n {
				h.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		ctx, cancel := context.WithCancelCause(h.Context())
		cut := &cutter{r: bytes.NewReader(file), after: 20_000, cut: func() { cancel(lost) }}
		r, err := h.s.Transfers.Import(ctx, mailio.ImportOptions{Account: h.account, Mailbox: h.box()}, cut)
		if err == nil || r.Imported > 250 {
			h.Errorf("interrupted: %+v, %v", r, err)
		}
	})
}

// cutter calls cut after a number of bytes.
type cutter struct {
	r     io.Reader
	after int
	cut   func()
}

func (c *cutter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p[:min(len(p), 1000)])
	if c.after -= n; c.after < 0 {
		c.cut()
	}
	return n, err
}

// tarWith returns a tar of one mbox, without its end.
func tarWith(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Name: "x.mbox", Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A message is not skipped because another has the same Message-ID and size.
func TestSameMessageID(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		report := func(day, disk string) string {
			return "Date: Sat, " + day + " Nov 2026 17:00:00 +0000\r\nMessage-ID: <report@x>\r\nSubject: disk " + disk + "\r\n\r\nfull\r\n"
		}
		h.put(box, "INBOX", report("20", "91 %"), time.Unix(1e9, 0), 0)
		others := "From x Sat Nov 21 17:00:00 2026\n" + report("20", "92 %") + "\nFrom x Sat Nov 21 17:00:00 2026\n" + report("21", "91 %") + "\n"
		for _, want := range []mailio.ImportResult{{Imported: 2}, {Skipped: 2}} {
			if r := h.bring(box, []byte(others), mailio.ImportOptions{}); r.Imported != want.Imported || r.Skipped != want.Skipped {
				h.Errorf("%+v", r)
			}
		}
	})
}

// A message is not skipped because another has the same envelope and size, but other bytes.
func TestSameEnvelope(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		alarm := func(degrees string) string {
			return "Date: Fri, 20 Nov 2026 17:00:00 +0000\r\nSubject: too warm\r\n\r\n" + degrees + " degrees\r\n"
		}
		mbox := ""
		for _, degrees := range []string{"91", "92", "93", "92"} {
			mbox += "From x Fri Nov 20 17:00:00 2026\n" + alarm(degrees) + "\n"
		}
		h.put(box, "INBOX", alarm("93"), time.Unix(1e9, 0), 0)
		h.put(box, "INBOX", alarm("94"), time.Unix(1e9, 0), 0)
		for _, want := range []mailio.ImportResult{{Imported: 3, Skipped: 1}, {Skipped: 4}} {
			if r := h.bring(box, []byte(mbox), mailio.ImportOptions{}); r.Imported != want.Imported || r.Skipped != want.Skipped {
				h.Errorf("%+v", r)
			}
		}
	})
}

// Destinations of folders that other programs name differently, and messages that can't be filed.
func TestPlaces(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		h.put(box, "INBOX", "Subject: x\r\n\r\nx\r\n", time.Unix(1e9, 0), 0)
		mbox := func(folder, subject string) string {
			return "From x Sat Nov 21 17:00:00 2026\nX-Gmail-Labels: " + folder + "\nSubject: " + subject + "\n\n\n\n"
		}
		text := mbox("Sent", "a") + mbox("Spam", "b") + mbox("Trips/2019/Rome", "c") + mbox("Papierkorb", "d") + mbox("Inbox", "x") + mbox("//", "e") +
			"From x Sat Nov 21 17:00:00 2026\nX-Mozilla-Status: 0008\nSubject: gone\n\n\n\nFrom x Sat Nov 21 17:00:00 2026\n\n"
		r := h.bring(box, []byte(text), mailio.ImportOptions{})
		if r.Imported != 6 || r.Skipped != 1 || r.Failed != 1 || r.Failures[0].Location != "message 8" || r.Failures[0].Reason != "It is empty." {
			h.Errorf("%+v", r)
		}
		got := strings.Join(h.all(box), "\n")
		for _, want := range []string{"\"Sent\" \\Sent true\n  1 [] 2026-11-21 17:00:00", "\"Junk\" \\Junk true\n  1", "\"Trash\" \\Trash true\n  1", "\"Trips\"  false\n\"Trips/2019\"  false\n\"Trips/2019/Rome\"  true\n  1", "\"_/_/_\"  true\n  1"} {
			if !strings.Contains(got, want) {
				h.Errorf("there is no %q in\n%s", want, got)
			}
		}
		large := "Subject: large\n\n" + strings.Repeat(strings.Repeat("x", 999)+"\n", 60_000)
		r = h.bring(box, []byte("From x Sat Nov 21 17:00:00 2026\n"+large+"\nFrom x Sat Nov 21 17:00:00 2026\nSubject: small\n\n"), mailio.ImportOptions{Folder: "Sizes"})
		if r.Imported != 1 || r.Failed != 1 || !strings.Contains(r.Failures[0].Reason, "larger than") {
			h.Errorf("%+v", r)
		}
		if _, err := h.s.Transfers.Import(h.Context(), mailio.ImportOptions{Account: h.account, Mailbox: box, Folder: "a//b"}, strings.NewReader("")); !fault.Is(err, fault.Invalid) {
			h.Errorf("a bad name: %v", err)
		}
	})
}

// Each folder of an export is as it was when its turn came, despite later changes.
func TestChangesWhileItIsRead(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		h.bring(box, mails(3000, 200), mailio.ImportOptions{})
		r, w := io.Pipe()
		told := make(chan error, 1)
		go func() {
			err := h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: mailio.Mbox}, w)
			w.CloseWithError(err)
			told <- err
		}()
		first := make([]byte, 1000)
		_, err := io.ReadFull(r, first)
		h.must(err)
		v, err := h.s.Folders.Open(h.Context(), box, folder.Inbox, false)
		h.must(err)
		uids := v.Resolve([]folder.Range{{Lo: 2000, Hi: folder.Star}}, false)
		if _, _, err = v.UpdateFlags(h.Context(), uids, folder.FlagUpdate{Op: folder.AddFlags, Flags: folder.Deleted}); err != nil {
			h.Fatal(err)
		}
		_, err = v.Expunge(h.Context(), nil)
		h.must(err)
		v.Close()
		h.put(box, folder.Inbox, "Subject: late\r\n\r\nx\r\n", time.Unix(1e9, 0), 0)
		text, err := io.ReadAll(r)
		h.must(err)
		h.must(<-told)
		n := strings.Count(string(first)+string(text), "\nSubject: ")
		if n < 1999 || n > 3000 || strings.Contains(string(text), "Subject: late") || strings.Contains(string(text), "X-Status: D") {
			h.Errorf("%d messages were written", n)
		}
	})
}

// An account has a limit of concurrent transfers, and a reader that goes away releases its slot.
func TestTooManyAtOnce(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		h.bring(box, mails(500, 1000), mailio.ImportOptions{})
		var readers []*io.PipeReader
		ended := make(chan error, 10)
		for range 4 {
			r, w := io.Pipe()
			readers = append(readers, r)
			go func() {
				ended <- h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: mailio.Maildir}, w)
			}()
			_, err := io.ReadFull(r, make([]byte, 1))
			h.must(err)
		}
		if err := h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: mailio.Mbox}, io.Discard); !fault.Is(err, fault.RateLimited) {
			h.Errorf("one more: %v", err)
		}
		for _, r := range readers {
			h.must(r.Close())
		}
		for range readers {
			if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
				h.Errorf("it ended with %v", err)
			}
		}
		h.must(h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: mailio.Mbox}, io.Discard))
	})
}

// A file with too many folders adds what fits.
func TestTooManyFolders(t *testing.T) {
	s := servertest.Start(t)
	s.Folders.MaxFolders = 1000
	h := newFixture(t, s)
	box := h.box()
	var b strings.Builder
	const n = 1010
	for i := range n {
		fmt.Fprintf(&b, "From x Sat Nov 21 17:00:00 2026\nX-Gmail-Labels: f%d\nSubject: %d\n\n\n\n", i, i)
	}
	b.WriteString("From x Sat Nov 21 17:00:00 2026\nX-Gmail-Labels: Sent\nSubject: fits\n\n\n")
	r := h.bring(box, []byte(b.String()), mailio.ImportOptions{})
	if r.Imported != 1000-6+1 || r.Failed != n-(1000-6) || !strings.Contains(r.Failures[0].Reason, "as many folders") {
		t.Errorf("%+v", r)
	}
}

// A file with a date beyond all calendars does not hide the mail beside it.
func TestFileOfNoTime(t *testing.T) {
	each(t, func(h *fixture) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i, at := range []time.Time{time.Unix(1e9, 0), time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<62, 0), time.Unix(-1<<40, 0)} {
			text := fmt.Sprintf("Subject: %d\n\nx\n", i)
			h.must(w.WriteHeader(&tar.Header{Name: fmt.Sprintf("%d.eml", i), Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: 0o600, ModTime: at, Format: tar.FormatPAX}))
			_, err := io.WriteString(w, text)
			h.must(err)
		}
		h.must(w.Close())
		box := h.box()
		if r := h.bring(box, b.Bytes(), mailio.ImportOptions{}); r.Imported != 4 {
			h.Errorf("%+v", r)
		}
		if a := h.s.API("GET", "/mailboxes/"+box.String()+"/messages", nil); a.Status != 200 || strings.Count(string(a.Body), `"subject"`) != 4 {
			h.Errorf("%d %s", a.Status, a.Body)
		}
	})
}

// A stream may take days. Its unfiled messages are not swept meanwhile.
func TestSlowStream(t *testing.T) {
	each(t, func(h *fixture) {
		began := time.Now()
		now := began
		slow := &mailio.Service{Folders: h.s.Folders, Blobs: h.s.Blobs, Now: func() time.Time { return now }, Log: h.s.Log}
		sweeper := &blob.Store{DB: h.s.DB, Files: h.s.Blobs.Files, Now: func() time.Time { return now }}
		// The first message has a file, and those after it have none.
		file, box := append(mails(1, 70_000), mails(2, 10_000)...), h.box()
		r := &pieces{file: file, ends: []int{75_000, 85_000, 87_000}, between: func(n int) {
			now = now.Add(2 * time.Hour)
			if n < 2 {
				return
			}
			for range 2 { // it is filed, since the second was passed on
				now = now.Add(blob.SweepAge)
				_, err := sweeper.Sweep(h.Context())
				h.must(err)
			}
		}}
		res, err := slow.Import(h.Context(), mailio.ImportOptions{Account: h.account, Mailbox: box}, r)
		if err != nil || res.Imported != 3 {
			h.Fatalf("%+v, %v", res, err)
		}
		h.all(box) // with their bytes
	})
}

// pieces is a stream that comes in pieces.
type pieces struct {
	file    []byte
	at      int
	ends    []int
	between func(n int) // called after the n-th
	n       int
}

func (p *pieces) Read(b []byte) (int, error) {
	end := len(p.file)
	if p.n < len(p.ends) {
		if end = p.ends[p.n]; p.at == end {
			p.between(p.n)
			p.n++
			return p.Read(b)
		}
	}
	if p.at == len(p.file) {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1000)], p.file[p.at:end])
	p.at += n
	return n, nil
}

// Nothing is imported into a mailbox of a suspended domain, and a running import stops.
func TestImportIntoSuspendedDomain(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			_, err := h.s.Transfers.Import(h.Context(), mailio.ImportOptions{Account: h.account, Mailbox: box}, r)
			_ = r.CloseWithError(errors.New("enough"))
			ended <- err
		}()
		archive := mails(2000, 1000)
		_, err := w.Write(archive[:len(archive)/2])
		h.must(err)
		err = h.s.Domains.SetSuspended(h.Context(), "demo.test", true)
		h.must(err)
		_, _ = w.Write(archive[len(archive)/2:]) // it may have ended
		_ = w.Close()
		if err := <-ended; !fault.Is(err, fault.Denied) {
			h.Errorf("suspended meanwhile: %v", err)
		}
		if _, err := h.s.Transfers.Import(h.Context(), mailio.ImportOptions{Account: h.account, Mailbox: box}, bytes.NewReader(archive)); !fault.Is(err, fault.Denied) {
			h.Errorf("suspended before: %v", err)
		}
		err = h.s.Domains.SetSuspended(h.Context(), "demo.test", false)
		h.must(err)
		h.bring(box, archive, mailio.ImportOptions{})
	})
}
