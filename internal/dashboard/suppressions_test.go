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

// Addresses come on the list by hand and by file, are found, and leave it.
func TestSuppressionPages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/suppressions")
	b.reads("Nobody is on the list")
	b.looks("suppressions-empty")

	b.fill("addresses", "ann@outside.test\nno address\n<script>@x")
	b.press("/suppressions")
	b.reads("is no address such as")
	b.accessible()
	b.fill("addresses", "ann@outside.test, bob@outside.test")
	b.press("/suppressions")
	b.reads("Suppressed 2 addresses.")

	file := filepath.Join(t.TempDir(), "list.csv")
	if err := os.WriteFile(file, []byte("email,reason,error\ncarol@outside.test,bounce,550 5.1.1 no such user\nnobody\nann@outside.test,complaint,\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	script[bool](b, `document.querySelector("[name=file]").required = false; true`)
	b.fill("fallback", "complaint")
	b.press("/suppressions/import")
	b.reads("Choose a CSV file.")
	if got := script[string](b, `document.querySelector("[name=fallback]").value`); got != "complaint" {
		t.Errorf("the reason that was chosen is %s now", got)
	}
	b.do(chromedp.SetUploadFiles(`input[name="file"]`, []string{file}))
	b.press("/suppressions/import")
	b.reads("New on the list\n1")
	b.reads("What was rejected")
	b.looks("imported")
	b.open("/suppressions")
	b.reads("carol@outside.test")
	b.looks("suppressions")
	if err := os.WriteFile(file, []byte("email,reason,error\nevil@outside.test,bounce,<script id=evil>top.evil=1</script>\n\"<script id=evil>top.evil=1</script>\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.SetUploadFiles(`input[name="file"]`, []string{file}))
	b.press("/suppressions/import")
	b.open("/suppressions")
	b.reads("top.evil=1")
	if script[bool](b, `!!(window.evil || document.querySelector("#evil"))`) {
		t.Error("what a file says runs")
	}

	b.open("/suppressions?find=Carol%40Outside.test")
	if text := b.text(); !strings.Contains(text, "carol@outside.test") || strings.Contains(text, "ann@outside.test") {
		t.Error(text)
	}
	b.open("/suppressions?find=carol")
	b.reads("Give a whole address")
	b.open("/suppressions?why=complaint")
	b.reads("Nothing was found")
	b.open("/suppressions?find=carol%40outside.test")
	remove := script[string](b, `document.querySelector("td form").getAttribute("action")`)
	x := newStranger(t, s)
	x.findsNothing("POST " + remove)
	b.press(remove)
	b.reads("Allowed carol@outside.test again.")

	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	if status, h := owner.asks("GET", "/suppressions/export"); status != 200 || !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
		t.Errorf("%d %v", status, h)
	}
	owner.findsNothing("POST "+remove, "POST /suppressions/x/remove")
}
