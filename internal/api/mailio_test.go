// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A failed export is recognizable: the response breaks off.
func TestExportBreaksOff(t *testing.T) {
	s := servertest.Start(t)
	box := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String()
	call := func(method, path, media, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.Dev.BaseURL+"/api/v1"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.Dev.APIKey)
		r.Header.Set("Content-Type", media)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	kept := func() map[string]bool {
		files := map[string]bool{}
		if err := filepath.WalkDir(s.Config.Blobs, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files[path] = true
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	bring := func(n int) {
		t.Helper()
		resp := call("POST", box+"/import?folder=Large", "message/rfc822", fmt.Sprintf("Subject: %d\n\n%s\n", n, strings.Repeat("A line of text.\n", 20_000)))
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 || !strings.Contains(string(text), `"imported":1`) {
			t.Fatalf("%d %s %v", resp.StatusCode, text, err)
		}
		_ = resp.Body.Close()
	}
	bring(1)
	before := kept()
	bring(2)
	resp := call("GET", box+"/export?folder=Large", "", "")
	text, err := io.ReadAll(resp.Body)
	if err != nil || len(text) < 640_000 || resp.Header.Get("Content-Type") != "application/mbox" || !strings.Contains(resp.Header.Get("Content-Disposition"), "bob@demo.test.mbox") {
		t.Errorf("%d bytes, %v, %v", len(text), resp.Header, err)
	}
	_ = resp.Body.Close()
	for file := range kept() {
		if !before[file] {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, format := range []string{"mbox", "maildir"} {
		resp := call("GET", box+"/export?folder=Large&format="+format, "", "")
		text, err := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 || err == nil {
			t.Errorf("%s: %d, and %d bytes look whole", format, resp.StatusCode, len(text))
		}
		_ = resp.Body.Close()
	}

	// For HEAD, the server reads only as much of the mail as it needs for the header.
	c, err := net.Dial("tcp", strings.TrimPrefix(s.Dev.BaseURL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // at the latest
	answers := bufio.NewReader(c)
	for _, format := range []string{"mbox", "maildir", "mbox"} {
		fmt.Fprintf(c, "HEAD /api/v1%s/export?folder=Large&format=%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", box, format, s.Dev.APIKey)
		resp, err := http.ReadResponse(answers, &http.Request{Method: http.MethodHead})
		if err != nil {
			t.Fatalf("HEAD: %v", err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Disposition"), "attachment; filename=") {
			t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
		}
	}
}

// A key can access only its own mail, and the server reads no body for a key without access.
func TestTransfersAreRestricted(t *testing.T) {
	s := servertest.Start(t)
	box := "/mailboxes/" + s.Dev.Mailboxes[1].ID.String()
	_, reader := newKey(t, s, object{"scopes": []string{"mailboxes.read", "mailboxes.write"}})
	_, elsewhere := newKey(t, s, object{"domain": "elsewhere.example", "scopes": []string{"mail.read", "mailboxes.write"}})
	refused(t, "without mail.read", s.APIWithKey(reader, "GET", box+"/export", nil), 403, "missing_scope")
	refused(t, "another domain's", s.APIWithKey(elsewhere, "GET", box+"/export", nil), 404, "not_found")
	refused(t, "another domain's", s.APIWithKey(elsewhere, "POST", box+"/import", nil), 404, "not_found")
	refused(t, "JSON", s.APIWithKey(reader, "POST", box+"/import", object{}), 415, "unsupported_media_type")
	refused(t, "an unknown parameter", s.APIWithKey(reader, "POST", box+"/import?to=x", nil), 422, "validation_failed", "to unknown_parameter")
	refused(t, "a wrong one", s.APIWithKey(reader, "POST", box+"/import?dedup=maybe", nil), 422, "validation_failed", "dedup wrong_type")
}
