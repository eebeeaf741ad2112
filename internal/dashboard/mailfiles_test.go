// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/user"
)

// Mail can be imported from a file and exported to one, and both are in the activity.
func TestMailFiles(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	box := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String()
	b.open(box)
	b.reads("Import and export")
	b.open(box + "/files")
	b.reads("up to 4 GB")
	b.accessible()
	b.looks("mail-files")

	file := filepath.Join(t.TempDir(), "old.mbox")
	text := "From x Sat Nov 21 17:00:00 2026\nSubject: one\nMessage-ID: <1@x>\n\nHello.\n\nFrom x Sat Nov 21 17:00:00 2026\n\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	script[bool](b, `document.querySelector("[name=file]").required = false; true`)
	b.press(box + "/import")
	b.reads("Choose a file with mail.")
	send := func(folder string) {
		b.open(box + "/files")
		if folder != "" {
			b.fill("folder", folder)
		}
		b.do(chromedp.SetUploadFiles(`input[name="file"]`, []string{file}))
		b.press(box + "/import")
	}
	send("a//b")
	b.reads("Each level of a folder's name needs a name.")
	if got := script[string](b, `document.querySelector("[name=folder]").value`); got != "a//b" {
		t.Errorf("what was entered for the folder is %q now", got)
	}
	send("Old <b>")
	b.reads("Imported\n1")
	b.reads("message 2")
	b.accessible()
	b.looks("mail-imported")
	send("Old <b>")
	b.reads("There already\n1")
	if err := os.WriteFile(file, []byte("<html>no mail"), 0o600); err != nil {
		t.Fatal(err)
	}
	send("")
	b.reads("Imported in part")
	b.reads("This is no mail")
	b.open(box + "/files")
	b.reads("Old <b>")

	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	if status, h := owner.asks("HEAD", box+"/export"); status != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename") {
		t.Errorf("HEAD: %d %v", status, h)
	}
	if _, _, log := owner.gets("GET", "/activity"); !strings.Contains(log, "Imported 1 message") || strings.Contains(log, "Exported the mailbox") {
		t.Error("HEAD is noted as an export")
	}
	for _, path := range []string{"/export", "/export?format=maildir", "/export?folder=Old+%3Cb%3E"} {
		if status, h := owner.asks("GET", box+path); status != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=bob@demo.test.") && !strings.HasPrefix(h.Get("Content-Disposition"), `attachment; filename="bob@demo.test.`) {
			t.Errorf("%s: %d %v", path, status, h)
		}
	}
	owner.findsNothing("GET "+box+"/export?folder=Nowhere", "GET /mailboxes/x/files", "POST /mailboxes/x/import", "GET /mailboxes/x/export")
	newStranger(t, s).findsNothing("GET "+box+"/files", "GET "+box+"/export", "POST "+box+"/import")
	b.open("/activity")
	b.reads("Imported 1 message into the mailbox bob@demo.test.")
	b.reads("Exported the mailbox bob@demo.test.")
	b.reads("of the mailbox bob@demo.test.")
}

// An upload or download breaks off when the user is signed out or loses the permission, or when the
// account is suspended.
func TestMailFilesOfWhoLeft(t *testing.T) {
	s := servertest.Start(t)
	ctx, box := t.Context(), s.Dev.Mailboxes[1].ID
	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	its, err := s.Users.FindSession(ctx, owner.session)
	if err != nil {
		t.Fatal(err)
	}
	const email, password, many = "leaver@elsewhere.test", "A password of 1 leaver", 48 // megabytes: more than all buffers on the way
	if _, err := s.Users.Create(ctx, user.CreateParams{Email: email, Name: "Leaver", Password: password}, its.Account); err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("x", 98) + "\n"
	message := "From x Sat Nov 21 17:00:00 2026\nSubject: large\n\n" + strings.Repeat(line, 1<<20/len(line)) + "\n"
	in := mailio.ImportOptions{Account: its.Account, Mailbox: box, Folder: "Large", KeepDuplicates: true}
	if _, err := s.Transfers.Import(ctx, in, strings.NewReader(strings.Repeat(message, many))); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct{ end, undo func(user.Session) error }{
		"signed out": {
			func(in user.Session) error { return s.Users.SignOut(ctx, in.User.ID, in.ID) },
			func(user.Session) error { return nil },
		},
		"a reader now": {
			func(in user.Session) error { return s.Users.SetRole(ctx, in.Account, in.User.ID, user.RoleReader) },
			func(in user.Session) error { return s.Users.SetRole(ctx, in.Account, in.User.ID, user.RoleOwner) },
		},
		"suspended": {
			func(in user.Session) error { return s.Accounts.SetStatus(ctx, in.Account, account.StatusSuspended) },
			func(in user.Session) error { return s.Accounts.SetStatus(ctx, in.Account, account.StatusActive) },
		},
	} {
		who := signedIn(t, s, email, password)
		in, err := s.Users.FindSession(ctx, who.session)
		if err != nil {
			t.Fatal(err)
		}
		code, _, out := who.begins("GET", "/mailboxes/"+box.String()+"/export", "", nil)
		if _, err := io.ReadFull(out, make([]byte, 1<<20)); err != nil || code != 200 {
			t.Fatalf("%s: %d %v", what, code, err)
		}
		end := &onceRead{func() { _ = c.end(in) }}
		if n, err := io.Copy(io.Discard, io.MultiReader(end, out)); err == nil || n > many<<20/2 {
			t.Errorf("%s: %d bytes more of an export, %v", what, n, err)
		}
		if err := c.undo(in); err != nil {
			t.Fatal(err)
		}

		who = signedIn(t, s, email, password)
		if in, err = s.Users.FindSession(ctx, who.session); err != nil {
			t.Fatal(err)
		}
		form := "--x\r\nContent-Disposition: form-data; name=\"folder\"\r\n\r\n" + what + "\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.mbox\"\r\n\r\n"
		body := io.MultiReader(strings.NewReader(form+strings.Repeat(message, 2)), end, strings.NewReader(strings.Repeat(message, many)+"\r\n--x--\r\n"))
		end.do = func() {
			for begun := false; !begun; runtime.Gosched() {
				_, err := s.Folders.Status(ctx, box, what)
				begun = err == nil
			}
			_ = c.end(in)
		}
		code, _, taken := who.begins("POST", "/mailboxes/"+box.String()+"/import", "multipart/form-data; boundary=x", body)
		if text, _ := io.ReadAll(taken); code != 422 || !strings.Contains(string(text), "Imported in part") {
			t.Errorf("%s: an import's answer is %d %s", what, code, text)
		}
		if err := c.undo(in); err != nil {
			t.Fatal(err)
		}
	}
}

// onceRead is an empty reader that calls a function when it is read.
type onceRead struct{ do func() }

// Read implements io.Reader.
func (o *onceRead) Read([]byte) (int, error) {
	o.do()
	return 0, io.EOF
}
