// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var here = netip.MustParseAddr("127.0.0.1")

func TestMailboxPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)

	b.open("/mailboxes")
	b.reads("alice@demo.test")
	b.looks("mailboxes")
	b.open("/mailboxes?search=BOB")
	b.reads("bob@demo.test")
	if text := b.text(); strings.Contains(text, "alice@") {
		t.Error("alice is found by bob")
	}
	b.open("/mailboxes?search=nobody")
	b.reads("No mailbox like that")
	b.accessible()

	b.open("/mailboxes/new")
	b.looks("mailbox-new")
	b.fill("local_part", "no good")
	b.fill("password", "short")
	b.fill("quota_mb", "0")
	b.press("/mailboxes")
	b.reads("Some fields need correcting.")
	b.accessible()
	b.fill("local_part", "carol")
	b.fill("display_name", "Carol Jones")
	b.fill("quota_mb", "2048")
	b.press("/mailboxes")
	b.reads("carol@demo.test is ready")
	b.accessible()
	password := script[string](b, `document.querySelectorAll("main code")[1].textContent`)
	path := script[string](b, `document.querySelector("main .button.quiet").getAttribute("href")`)
	if _, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, "carol@demo.test", password, here); err != nil {
		t.Error("the password that was shown:", err)
	}

	b.open(path)
	b.reads("2.0 GB")
	b.fill("display_name", "Carol Smith")
	b.fill("quota_mb", "0")
	b.press(path)
	b.reads("megabytes.")
	b.accessible()
	b.fill("quota_mb", "3000")
	b.press(path)
	b.reads("Changed the mailbox carol@demo.test.")
	b.looks("mailbox")
	b.press(path + "/suspend")
	b.reads("Nobody can sign in to this mailbox")
	b.press(path + "/resume")
	b.reads("Resumed the mailbox")
	b.fill("password", "short")
	b.press(path + "/password")
	b.reads("at least 8 characters")
	b.fill("password", "Chosen-by-me-1")
	b.press(path + "/password")
	b.reads("the one that you chose")
	if _, err := s.Mailboxes.Authenticate(t.Context(), mailbox.IMAP, "carol@demo.test", "Chosen-by-me-1", here); err != nil {
		t.Error("the password that was chosen:", err)
	}
	b.open(path)
	script[bool](b, `document.querySelector("details.danger").open = true`)
	b.press(path + "/delete")
	b.reads("It can be restored for 30 days.")
	b.open(path)
	b.reads("Not found")
	b.open("/mailboxes?deleted=1")
	b.reads("carol@demo.test")
	b.looks("mailboxes-deleted")
	b.press(path + "/restore")
	b.reads("Restored the mailbox carol@demo.test.")
	b.open("/activity")
	b.reads("Made the mailbox carol@demo.test.")
}
