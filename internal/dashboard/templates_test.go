// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/server/servertest"
	"github.com/mailstead/mailstead/internal/template"
)

// pane returns the content of the frame next to a form. The frame has an opaque origin, so pane
// requests the content again.
func (b *browser) pane() string {
	b.t.Helper()
	return script[string](b, `fetch("/templates/preview", { method: "POST", body: new FormData(document.querySelector("form[data-preview]")) }).then((a) => a.text())`)
}

// The page can save a template of the API's maximum size, and copy one with the longest name
// without giving a new name.
func TestLargeTemplate(t *testing.T) {
	s := servertest.Start(t)
	v := newVisitor(t, s)
	v.signIn(s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	form := url.Values{
		"name": {strings.Repeat("n", 200)}, "subject": {"S"}, "html": {strings.Repeat("я", template.MaxSource/2)}, "text": {"x" + strings.Repeat("\r\n", template.MaxSource-1)},
	}
	status, path, text := v.ask("POST", "/templates", form)
	if status != 303 {
		t.Fatalf("%d\n%.2000s", status, text)
	}
	if status, _, text := v.ask("POST", path, form); status != 303 {
		t.Errorf("changing it: %d\n%.2000s", status, text)
	}
	if status, _, text := v.ask("POST", path+"/duplicate", url.Values{"copy": {""}}); status != 303 {
		t.Errorf("copying it: %d\n%.2000s", status, text)
	}
}

// A template is created, previewed, changed, compared, published, sent, copied and deleted.
func TestTemplatePages(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.signIn(s)
	b.open("/templates")
	b.reads("No template yet")
	b.looks("templates-empty")

	b.open("/templates/new")
	b.fill("name", "Order paid")
	b.fill("alias", "Not an alias")
	b.fill("subject", "Your order {{order}")
	b.fill("html", "<h1>Hi {{user.name}}</h1>\n<p>Order {{order}} is paid.</p>\n<p>Bye</p>")
	b.press("/templates")
	b.reads("An alias has")
	b.reads("Some fields need correcting")
	b.accessible()
	b.fill("alias", "order-paid")
	b.fill("subject", "Your order {{order}}")
	script[bool](b, `{ const rows = document.querySelectorAll(".inputs tbody tr");
		const fill = (row, name, value) => { rows[row].querySelector("[name=" + name + "]").value = value };
		fill(0, "key", "order"); fill(0, "type", "number"); rows[0].querySelector("[name=required]").checked = true; fill(0, "trial", "42");
		fill(1, "key", "user.name"); fill(1, "fallback", "<script>top.evil=1</script>"); fill(1, "type", "string"); true }`)
	if got := b.pane(); !strings.Contains(got, "Your order 42") || !strings.Contains(got, "&amp;lt;script&amp;gt;") || strings.Contains(got, "<script>") {
		t.Error(got)
	}
	script[bool](b, `document.querySelectorAll("[name=fallback]")[1].value = "friend"; true`)
	b.press("/templates")
	b.reads("Made the template “Order paid”.")
	path := b.path()
	if !script[bool](b, `document.querySelectorAll(".inputs tbody tr").length === 5 && document.querySelector("[name=required]").checked`) {
		t.Error("the variables are not shown as they were saved")
	}
	b.looks("template")

	b.open(path)
	b.fill("html", "<h1>Hi {{user.name}}</h1>\n<p>We have your money for {{order}}.</p>\n<p>Bye</p>")
	b.do(chromedp.Click(`button[name="draft"]`), chromedp.WaitVisible(".told"))
	b.reads("Saved a draft")
	b.open(path + "/versions")
	b.reads("Version 2")
	b.looks("template-versions")
	b.open(path + "/compare?from=1&to=2")
	b.reads("We have your money")
	b.looks("template-compare")
	b.open(path + "/compare?from=1&to=1")
	b.reads("No difference")
	b.open(path + "/versions/2")
	b.looks("template-version")
	b.press(path + "/publish")
	b.reads("Published version 2")

	b.open(path + "/test")
	b.looks("template-test")
	b.fill("to", "nobody")
	script[bool](b, `document.querySelector("main form").noValidate = true`)
	b.press(path + "/test")
	b.reads("Some fields need correcting")
	b.accessible()
	b.fill("to", "delivered@simulator.test")
	script[bool](b, `document.querySelector("[name=trial]").value = "77"; true`)
	b.press(path + "/test")
	b.reads("Sent a test of the template")
	b.reads("[Test] Your order 77")

	x := newStranger(t, s)
	x.findsNothing("GET "+path, "GET "+path+"/versions", "GET "+path+"/versions/1", "GET "+path+"/versions/1/preview", "GET "+path+"/compare?from=1&to=2", "GET "+path+"/test",
		"POST "+path+"/duplicate", "POST "+path+"/delete")
	owner := signedIn(t, s, s.Dev.Dashboard.Email, s.Dev.Dashboard.Password)
	owner.findsNothing("GET "+path+"/versions/3", "GET "+path+"/versions/x", "GET "+path+"/compare?from=0&to=2")

	b.open(path)
	b.press(path + "/duplicate")
	b.reads("to “Copy of Order paid”")
	b.open("/templates")
	b.looks("templates")
	b.open(path)
	script[bool](b, `document.querySelector("details.danger").open = true`)
	b.press(path + "/delete")
	b.reads("Deleted the template")
	if script[bool](b, `!!window.evil`) {
		t.Error("what a template says runs")
	}
}
