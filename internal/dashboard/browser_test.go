// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var screenshots = flag.Bool("screenshots", false, "write docs/screenshots anew")

//go:embed testdata/axe.min.js
var axe string

// browser is a real browser.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string
}

// patience is how long a page may take on an overloaded machine.
const patience = 2 * time.Minute

// browse starts Chromium.
func browse(t *testing.T, s *servertest.Server) *browser {
	t.Helper()
	return browseAt(t, s.Dev.BaseURL, "")
}

// browseAt is browse for a service whose name resolves by the given rules and whose certificate is
// not verified.
func browseAt(t *testing.T, base, rules string) *browser {
	t.Helper()
	path := needtest.Program(t, "chromium")
	tmp, err := os.MkdirTemp("", "chromium") // t.TempDir would fail if a process still writes at the end
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	alloc, cancel := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.Env("TMPDIR="+tmp), chromedp.NoSandbox, chromedp.WindowSize(1280, 860), chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("hide-scrollbars", true), chromedp.Flag("font-render-hinting", "none"),
		chromedp.Flag("host-resolver-rules", rules), chromedp.Flag("ignore-certificate-errors", rules != ""))...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(alloc)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx, base: strings.TrimSuffix(base, "/")}
	b.do(colours("light"))
	return b
}

// run runs an action in the browser and returns its result.
func run[T any](b *browser, a chromedp.Action[T]) T {
	b.t.Helper()
	var value T
	var err error
	done := make(chan struct{})
	go func() { // a time limit on the context of the browser would end the browser
		defer close(done)
		value, err = chromedp.Run(b.ctx, a)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		b.t.Fatal("the browser does not answer")
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return value
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	run(b, chromedp.Steps(steps...))
}

// script evaluates JavaScript.
func script[T any](b *browser, text string) T {
	b.t.Helper()
	return run(b, chromedp.Evaluate[T](text, chromedp.EvalAwaitPromise))
}

// path returns the path of the current page.
func (b *browser) path() string {
	b.t.Helper()
	return strings.TrimPrefix(run(b, chromedp.Location()), b.base)
}

// colours makes the browser prefer light or dark colours.
func colours(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}

// open opens a page of the service.
func (b *browser) open(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base+path), ready("main"))
}

// fill enters a value into the field with a name.
func (b *browser) fill(name, value string) {
	b.t.Helper()
	b.do(chromedp.SetValue(`main [name="`+name+`"]`, value))
}

// press submits the form with the given action and waits for the next page.
func (b *browser) press(action string) {
	b.t.Helper()
	script[string](b, `document.documentElement.dataset.before = "yes"`)
	b.do(chromedp.Click(`form[method="post"][action="`+action+`"] button`), ready(`html:not([data-before]) main`))
}

// ready waits for an element. If the document is replaced meanwhile, it begins again.
func ready(selector string) chromedp.Action[chromedp.Void] {
	wait := chromedp.WaitReady(selector)
	return func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		for {
			v, err := wait(ctx, t)
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "No node with given id found") {
				return v, err
			}
		}
	}
}

// text returns the visible text of the page.
func (b *browser) text() string {
	b.t.Helper()
	return script[string](b, `document.body.innerText`)
}

func (b *browser) reads(want string) {
	b.t.Helper()
	if got := b.text(); !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
		b.t.Fatalf("%s does not say %q:\n%s", b.path(), want, got)
	}
}

// accessible fails the test if axe finds a violation on the page.
func (b *browser) accessible() {
	b.t.Helper()
	script[string](b, axe+";''")
	found := script[string](b, `axe.run().then(r => JSON.stringify(r.violations.map(v => (
		{id: v.id, help: v.help, nodes: v.nodes.map(n => n.html + " — " + n.failureSummary)}))))`)
	var violations []struct {
		ID, Help string
		Nodes    []string
	}
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	for _, v := range violations {
		b.t.Errorf("%s: %s (%s)\n%s", b.path(), v.Help, v.ID, strings.Join(v.Nodes, "\n"))
	}
}

// looks checks a page in light and dark colours and at phone width, and takes screenshots if
// requested.
func (b *browser) looks(name string) {
	b.t.Helper()
	for _, view := range []struct {
		name, scheme string
		width        int64
	}{{"", "light", 1280}, {"-dark", "dark", 1280}, {"-phone", "light", 390}} {
		b.do(colours(view.scheme), chromedp.EmulateViewport(view.width, 860))
		b.accessible()
		if script[bool](b, `document.documentElement.scrollWidth > document.documentElement.clientWidth`) {
			b.t.Errorf("%s is wider than a screen of %d pixels", b.path(), view.width)
		}
		if *screenshots {
			if script[bool](b, `!!document.querySelector("iframe")`) { // frames are painted only when visible
				b.do(chromedp.EmulateViewport(view.width, script[int64](b, `Math.max(860, document.documentElement.scrollHeight)`)))
			}
			png := run(b, chromedp.FullScreenshot(100))
			dir := filepath.Join("..", "..", "docs", "screenshots")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				b.t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, name+view.name+".png"), png, 0o644); err != nil {
				b.t.Fatal(err)
			}
		}
	}
	b.do(chromedp.EmulateViewport(1280, 860))
}
