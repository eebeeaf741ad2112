// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

const receivers = "../../docs/receivers"

// receiverFiles are the programs of docs/webhooks.md, with the names of its code blocks.
var receiverFiles = map[string]string{
	"receiver.go": "go", "receiver.ts": "ts", "receiver.py": "python", "receiver.php": "php", "standard.py": "python",
}

// The page contains each file unchanged, except the license line.
func TestReceiversOnThePage(t *testing.T) {
	page, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	licence := regexp.MustCompile(`(?m)^(//|#) SPDX-License-Identifier: .*\n\n`)
	for name, language := range receiverFiles {
		text, err := os.ReadFile(filepath.Join(receivers, name))
		if err != nil {
			t.Fatal(err)
		}
		if block := "```" + language + "\n" + licence.ReplaceAllString(string(text), "") + "```\n"; !strings.Contains(string(page), block) {
			t.Errorf("docs/webhooks.md does not show docs/receivers/%s as it is:\n%s", name, block)
		}
	}
	files, err := os.ReadDir(receivers)
	if err != nil || len(files) != len(receiverFiles) {
		t.Errorf("docs/receivers has %v, %v", files, err)
	}
}

// The commands in docs/webhooks.md, with a listening receiver.
func TestWebhooksPage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	defer s.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(s.URL, "http://"), ":")
	paste(t, commandsOf(t, "docs/webhooks.md", "\n"), []promise{
		{"POST /webhooks -d", []string{`"status":"enabled"`, `"secret":"whsec_`}},
		{"/test -d", []string{`"type":"bounce"`, `"status":"delivered"`, `"response_status":204`, `X-Service-Signature`}},
		{"/deliveries?limit=1", []string{`"type":"bounce"`}},
		{"/deliveries/$delivery", []string{`"timeline":[{"number":1`}},
		{"/redeliver", []string{`"status":"pending"`}},
		{"/replay?created_after", []string{`"deliveries":`}},
		{"/rotate-secret", []string{`"secret":"whsec_`, `"old_secret_until":"20`}},
	}, "localhost:3000", "localhost:"+port)
}

// receiving is a running receiver and its output.
type receiving struct {
	port   int
	output string // file
}

// receive starts one of the programs; it listens when receive returns.
func (p *program) receive(name, secret string, port int) *receiving {
	p.t.Helper()
	path, err := filepath.Abs(filepath.Join(receivers, name))
	if err != nil {
		p.t.Fatal(err)
	}
	var args []string
	switch filepath.Ext(name) {
	case ".go":
		args = []string{filepath.Join(p.home, "receiver")}
		if out, err := exec.Command("go", "build", "-o", args[0], path).CombinedOutput(); err != nil {
			p.t.Fatalf("%v\n%s", err, out)
		}
	case ".ts":
		args = []string{needtest.Program(p.t, "node"), path}
		if !takesTypeScript(p) {
			args[1] = filepath.Join(p.home, "receiver.mjs")
			p.must("", "esbuild", path, "--format=esm", "--platform=node", "--outfile="+args[1])
		}
	case ".py":
		args = []string{needtest.Python(p.t), path}
	case ".php":
		args = []string{needtest.Program(p.t, "php"), "-S", fmt.Sprintf("127.0.0.1:%d", port), path}
	}
	r := &receiving{port: port, output: p.write("output-"+name, "")}
	out, err := os.OpenFile(r.output, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.CommandContext(p.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.home, out, out
	cmd.Env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8", "WEBHOOK_SECRET=" + secret, fmt.Sprintf("PORT=%d", port)}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = out.Close()
	})
	servertest.Eventually(p.t, func() string {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return name + " does not listen: " + r.said(p.t)
		}
		_ = c.Close()
		return ""
	})
	return r
}

func (r *receiving) said(t testing.TB) string {
	text, err := os.ReadFile(r.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// takesTypeScript reports whether node runs TypeScript directly: from 22.18 on.
func takesTypeScript(p *program) bool {
	version := strings.Split(strings.TrimPrefix(strings.TrimSpace(p.must("", "node", "--version")), "v"), ".")
	major, _ := strconv.Atoi(version[0])
	minor, _ := strconv.Atoi(version[min(1, len(version)-1)])
	return major > 22 || major == 22 && minor >= 18
}

// Each of the four accepts the service's request, and rejects it with one changed byte.
func TestReceivers(t *testing.T) {
	s := servertest.Start(t)
	c, err := client.New(s.Dev.BaseURL, s.Dev.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdleConnections)
	running, hooks := map[string]*receiving{}, map[string]*client.Webhook{}
	for name := range receiverFiles {
		if name == "standard.py" {
			continue // not a program
		}
		port := dnstest.FreePort(t, "127.0.0.1")
		w, err := c.CreateWebhook(t.Context(), client.NewWebhook{URL: fmt.Sprintf("http://127.0.0.1:%d/hook", port), Events: []string{"bounce"}})
		if err != nil {
			t.Fatal(err)
		}
		running[name], hooks[name] = newProgram(t).receive(name, w.Secret, port), w
	}
	if _, err := c.Send(t.Context(), &client.Send{FromEmail: "alice@demo.test", To: []string{"bounced@simulator.test"}, Subject: "Grüße", Text: "x", Metadata: map[string]string{"<ü>": "…"}}); err != nil {
		t.Fatal(err)
	}
	for name, r := range running {
		t.Run(name, func(t *testing.T) {
			d := taken(t, c, hooks[name].ID)
			again := func(change func(h http.Header, body []byte) []byte) int {
				h := http.Header{}
				for name, value := range d.Timeline[0].RequestHeaders {
					h.Set(name, value)
				}
				body := change(h, []byte(d.Body))
				return ask(t, r.port, h, body)
			}
			for what, k := range map[string]struct {
				change func(h http.Header, body []byte) []byte
				want   int
			}{
				"again":          {func(_ http.Header, b []byte) []byte { return b }, 204},
				"a byte changed": {func(_ http.Header, b []byte) []byte { b[len(b)/2] ^= 1; return b }, 401},
				"a byte more":    {func(_ http.Header, b []byte) []byte { return append(b, '\n') }, 401},
				"no signature":   {func(h http.Header, b []byte) []byte { h.Del("X-Service-Signature"); return b }, 401},
				"a strange one":  {func(h http.Header, b []byte) []byte { h.Set("X-Service-Signature", "sha256=ü"); return b }, 401},
				"in capital letters": {func(h http.Header, b []byte) []byte {
					h.Set("X-Service-Signature", strings.ToUpper(h.Get("X-Service-Signature")))
					return b
				}, 401},
			} {
				if got := again(k.change); got != k.want {
					t.Errorf("%s: it answered %d, not %d:\n%s", what, got, k.want, r.said(t))
				}
			}
			servertest.Eventually(t, func() string {
				if said := r.said(t); strings.Count(said, "bounce "+d.ID) != 2 {
					return "it handled other than the delivery and its repetition:\n" + said
				}
				return ""
			})
		})
	}
	t.Run("standard.py", func(t *testing.T) { standard(t, taken(t, c, hooks["receiver.go"].ID), hooks["receiver.go"].Secret) })
}

// taken waits until a webhook's delivery was accepted, at its first attempt.
func taken(t *testing.T, c *client.Client, hook string) (d *client.WebhookDeliveryDetail) {
	t.Helper()
	servertest.Eventually(t, func() string {
		page, err := c.ListWebhookDeliveries(t.Context(), hook, client.WebhookDeliveryFilter{}, client.Paging{})
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Data) != 1 || page.Data[0].Attempts == 0 {
			return fmt.Sprintf("the deliveries are %+v", page.Data)
		}
		if d, err = c.GetWebhookDelivery(t.Context(), hook, page.Data[0].ID); err != nil {
			t.Fatal(err)
		}
		return ""
	})
	if d.Status != "delivered" || d.Attempts != 1 || d.ResponseStatus != 204 {
		t.Fatalf("the delivery is %+v", d)
	}
	return d
}

func ask(t *testing.T, port int, h http.Header, body []byte) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST", fmt.Sprintf("http://127.0.0.1:%d/hook", port), strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = h
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// standard runs the page's Standard Webhooks example on a delivery.
func standard(t *testing.T, d *client.WebhookDeliveryDetail, secret string) {
	const script = `import json, sys
sys.path.insert(0, sys.argv[1])
import standard
c = json.load(sys.stdin)
h, body = c["headers"], c["body"].encode()
assert standard.authentic(h, body, c["secret"])
assert standard.authentic({**h, "webhook-signature": "v1,AAAA " + h["webhook-signature"]}, body, c["secret"])
assert not standard.authentic(h, body[:-1] + b"]", c["secret"])
for name, value in {"webhook-id": "x", "webhook-timestamp": str(int(h["webhook-timestamp"]) - 1), "webhook-signature": "v1,ü"}.items():
    assert not standard.authentic({**h, name: value}, body, c["secret"]), name
    assert not standard.authentic({k: v for k, v in h.items() if k != name}, body, c["secret"]), name
standard.time.time = lambda: int(h["webhook-timestamp"]) + 301
assert not standard.authentic(h, body, c["secret"])
print("good")
`
	given, err := json.Marshal(map[string]any{"headers": d.Timeline[0].RequestHeaders, "body": d.Body, "secret": secret})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(receivers)
	if err != nil {
		t.Fatal(err)
	}
	if out := newProgram(t, "PYTHONDONTWRITEBYTECODE=1").must(string(given), "/usr/bin/python3", "-c", script, dir); out != "good\n" {
		t.Error(out)
	}
}
