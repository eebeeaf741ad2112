// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// Mail comes in from a file and goes out to one, and both are noted.
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
