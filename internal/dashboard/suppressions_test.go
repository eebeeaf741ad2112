// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/audit"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/suppression"
)

// Addresses can be added by hand and by file, searched, and removed.
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

// Importing a file of addresses works like importing mail: as long as the upload makes progress and
// the user is signed in. The page reports that it stopped.
func TestSuppressionsThatStop(t *testing.T) {
	s := servertest.Start(t)
	const media, form = "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\n"
	who := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	in, err := s.Users.FindSession(t.Context(), who.session)
	if err != nil {
		t.Fatal(err)
	}
	code, _, page := who.begins("POST", "/suppressions/import", media, strings.NewReader(form+"ann@outside.test\n"))
	if text, err := io.ReadAll(page); err != nil || code != 422 || !strings.Contains(string(text), "The file stopped coming.") {
		t.Errorf("%d %v\n%s", code, err, text)
	}
	activity, _, err := s.Audit.List(t.Context(), in.Account, db.Page{Limit: 1})
	if err != nil || len(activity) != 1 || activity[0].Action != "POST /suppressions/import" || activity[0].State != audit.StateFailed {
		t.Errorf("the activity of an import that broke off: %+v, %v", activity, err)
	}

	listed := func(text string) bool {
		parsed, err := address.Parse(text)
		if err != nil {
			t.Error(err)
		}
		list, _, err := s.Suppressions.List(t.Context(), in.Account, suppression.Filter{Address: parsed}, db.Page{})
		if err != nil {
			t.Error(err)
		}
		return len(list) > 0
	}
	var many strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&many, "%d@outside.test\n", i)
	}
	end := &onceRead{func() {
		for !listed("1@outside.test") {
			runtime.Gosched()
		}
		_ = s.Users.SignOut(t.Context(), in.User.ID, in.ID)
	}}
	rows := strings.Repeat(strings.Repeat("x", 60_000)+"\n", 250)
	code, _, _ = who.begins("POST", "/suppressions/import", media,
		io.MultiReader(strings.NewReader(form+many.String()), end, strings.NewReader(rows+"late@outside.test\n\r\n--x--\r\n")))
	if code != 401 || !listed("ann@outside.test") || listed("late@outside.test") {
		t.Errorf("signed out meanwhile: %d, listed %t, then %t", code, listed("ann@outside.test"), listed("late@outside.test"))
	}
}
