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
	away(b, path)
	b.fill("spam_filter", "lenient")
	b.press(path + "/spam")
	b.reads("Saved how strict the spam filter of carol@demo.test is.")
	if got := script[string](b, `document.querySelector("main [name=spam_filter]").value`); got != "lenient" {
		t.Errorf("the filter is %q", got)
	}
	b.accessible()
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
	b.reads("Set the vacation reply of carol@demo.test.")
	b.reads("Mail of carol@demo.test is forwarded.")
}

// away submits the forms for the vacation reply and for forwarding, on the page at path.
func away(b *browser, path string) {
	b.t.Helper()
	b.fill("enabled", "yes")
	b.fill("interval_days", "100")
	b.fill("starts_at", "2040-01-02T10:00")
	b.fill("ends_at", "2040-01-01T10:00")
	b.press(path + "/vacation")
	for _, said := range []string{"Say what is to be answered.", "Give 1 to 90 days.", "The end must be after the start."} {
		b.reads(said)
	}
	b.accessible()
	b.fill("interval_days", "3")
	b.fill("ends_at", "2040-01-05T18:30")
	b.fill("text", "I am away.\nBack soon.")
	b.press(path + "/vacation")
	b.reads("Set the vacation reply of")
	b.reads("scheduled")
	if got := script[string](b, `[...document.querySelectorAll("#vacation ~ form [name]:not([type=hidden])")].map(f => f.value).join("|")`); got != "yes|3|2040-01-02T10:00|2040-01-05T18:30||I am away.\nBack soon." {
		b.t.Errorf("%s has the reply %q", path, got)
	}
	b.fill("forward_to", "out@example.net\nnonsense")
	b.press(path + "/forwarding")
	b.reads("Give an address such as bob@example.org.")
	b.accessible()
	b.fill("forward_to", "out@example.net\nbob@demo.test")
	b.fill("keep_copy", "no")
	b.press(path + "/forwarding")
	b.reads("is forwarded.")
	if got := script[string](b, `[...document.querySelectorAll("#forwarding ~ form [name]:not([type=hidden])")].map(f => f.value).join("|")`); got != "out@example.net\nbob@demo.test|no" {
		b.t.Errorf("%s forwards to %q", path, got)
	}
	b.fill("enabled", "no")
	b.press(path + "/vacation")
	b.reads("Turned the vacation reply of")
}
