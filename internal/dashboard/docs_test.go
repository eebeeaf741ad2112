// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"html"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The manual is public and covers the whole OpenAPI document.
func TestDocs(t *testing.T) {
	s := servertest.Start(t)
	b := browse(t, s)
	b.open("/docs")
	b.reads("Quickstart")
	b.looks("docs")
	b.open("/docs/guides/webhooks")
	b.accessible()
	b.open("/docs/guides/smtp")
	b.looks("docs-guide")
	b.open("/docs/api/sending")
	b.reads("Send an email")
	b.accessible()
	b.open("/docs/api/payloads")
	b.reads("inbound_email")
	b.accessible()
	b.open("/docs/api/events")
	script[string](b, `document.querySelectorAll("main details").forEach(d => d.open = true); ""`)
	b.reads("data[].timestamp")
	b.reads("Its members depend on type.")
	b.reads("unsubscribe")
	b.open("/docs/api/threads")
	b.looks("docs-api")
	b.open("/docs/search?q=dkim+rotate")
	b.reads("dkim")
	b.looks("docs-search")
	b.open("/docs/search?q=%22%3E%3Cscript%3Etop.evil%3D1%3C%2Fscript%3E")
	b.reads("Nothing was found")
	if script[bool](b, `!!window.evil`) {
		t.Error("what is looked for runs")
	}
	b.accessible()
	b.open("/docs/search")
	b.reads("What are you looking for")

	var doc struct {
		Paths map[string]map[string]struct{ OperationID, Summary string }
	}
	s.APIWithKey("", "GET", "/openapi.json", nil).Decode(t, &doc)
	b.open("/docs")
	paths := map[string]bool{}
	for _, path := range strings.Fields(script[string](b, `[...document.querySelectorAll("main a")].map((a) => a.getAttribute("href")).join(" ")`)) {
		paths[path] = true
	}
	all, links := "", map[string]bool{}
	for path := range paths {
		status, text := fetched(t, s, path)
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		if strings.HasPrefix(path, "/docs/") {
			all += text
		}
		for _, m := range regexp.MustCompile(`href="(/[^"]*)"`).FindAllStringSubmatch(text, -1) {
			links[m[1]] = true
		}
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			if !strings.Contains(all, `id="`+op.OperationID+`"`) || !strings.Contains(html.UnescapeString(all), op.Summary) {
				t.Errorf("%s %s is not in the reference", method, path)
			}
		}
	}
	for link := range links {
		path, id, _ := strings.Cut(link, "#")
		status, text := fetched(t, s, path)
		if status != http.StatusOK || id != "" && !strings.Contains(text, `id="`+id+`"`) {
			t.Errorf("the link %s leads nowhere", link)
		}
	}
	if status, _ := fetched(t, s, "/docs/api/none"); status != http.StatusNotFound {
		t.Error(status)
	}
}

// fetched returns a page as a visitor without a session gets it.
func fetched(t *testing.T, s *servertest.Server, path string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(s.Dev.BaseURL, "/")+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // only read
	body, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(body)
}
