// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/smtp"
	"net/textproto"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// eicar is the standard test file for virus scanners.
const eicar = `X5O!P%@AP[4\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*`

// gtube is the standard test text for spam filters; rspamd has variants with a Y in front.
const gtube = "JS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"

// daemon runs a program until the test ends. It returns once ready succeeds.
func daemon(t *testing.T, ready func() error, name string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	c := exec.Command(needtest.Program(t, name), args...)
	c.Stdout, c.Stderr = &said, &said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	t.Cleanup(func() {
		_ = c.Process.Signal(os.Interrupt)
		<-ended //nolint:errcheck // it was interrupted
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ready() != nil {
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s ended: %v\n%s", name, err, said.String())
		case <-tick.C:
		}
	}
}

// startRspamd starts a real rspamd without any rules and returns its URL.
func startRspamd(t *testing.T) string {
	t.Helper()
	dir, addr := t.TempDir(), dnstest.ClosedAddr(t)
	write(t, dir+"/tld", "com\ntest\nexample\n")
	write(t, dir+"/rspamd.conf", strings.NewReplacer("DIR", dir, "ADDR", addr).Replace(`
options {
  pidfile = "DIR/pid"; tempdir = "DIR"; control_socket = "DIR/control mode=0600"; hs_cache_dir = "DIR"; cache_file = "DIR/symbols";
  url_tld = "DIR/tld"; filters = ""; disable_hyperscan = true; enable_test_patterns = true;
  dns { nameserver = ["127.0.0.1:1"]; timeout = 0.1s; retransmits = 1; }
}
logging { type = "file"; filename = "DIR/log"; level = "info"; }
worker "normal" { bind_socket = "ADDR"; count = 1; }
actions { reject = 15; add_header = 6; }
`))
	daemon(t, func() error {
		resp, err := http.Get("http://" + addr + "/ping")
		if err == nil {
			err = resp.Body.Close()
		}
		return err
	}, "rspamd", "-f", "-i", "-c", dir+"/rspamd.conf")
	return "http://" + addr
}

// startClamd starts a real clamd with one signature, and returns its address and its socket. It
// accepts messages of at most 1 MiB.
func startClamd(t *testing.T) (addr, socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "clamd") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := dnstest.FreePort(t, "127.0.0.1")
	if err := os.Mkdir(dir+"/db", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/db/test.ndb", "Test.Eicar:0:*:"+hex.EncodeToString([]byte(eicar))+"\n")
	write(t, dir+"/clamd.conf", fmt.Sprintf("Foreground yes\nDatabaseDirectory %[1]s/db\nTemporaryDirectory %[1]s\nTCPSocket %[2]d\nTCPAddr 127.0.0.1\nLocalSocket %[1]s/sock\nStreamMaxLength 1M\n", dir, port))
	addr, socket = fmt.Sprintf("127.0.0.1:%d", port), dir+"/sock"
	daemon(t, func() error {
		for network, addr := range map[string]string{"tcp": addr, "unix": socket} {
			nc, err := net.Dial(network, addr)
			if err != nil {
				return err
			}
			_ = nc.Close()
		}
		return nil
	}, "clamd", "-c", dir+"/clamd.conf")
	return addr, socket
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Clean(path), []byte(text), 0o644); err != nil { //nolint:gosec // daemons give up root
		t.Fatal(err)
	}
}

// bring sends a message to the MX, and returns the rejection if there is one: "550 5.7.1 …".
func bring(t *testing.T, s *servertest.Server, text string, to ...string) string {
	t.Helper()
	c, err := smtp.Dial(s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // after Quit
	step := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	step(c.Mail("eve@elsewhere.example"))
	for _, one := range to {
		step(c.Rcpt(one))
	}
	w, err := c.Data()
	step(err)
	_, err = io.WriteString(w, text)
	step(err)
	err = w.Close()
	var refusal *textproto.Error
	if errors.As(err, &refusal) {
		return fmt.Sprint(refusal.Code, " ", refusal.Msg)
	}
	step(err)
	step(c.Quit())
	return ""
}

// kept is a message in the API.
type kept struct {
	ID      string
	Results struct {
		Spam    string
		Score   float64 `json:"spam_score"`
		Reasons string  `json:"spam_reasons"`
	} `json:"check_results"`
	Folders []struct{ Folder string }
}

// newest returns the newest message of a sandbox mailbox, and its text.
func newest(t *testing.T, s *servertest.Server, box int) (m kept, raw string) {
	t.Helper()
	path := "/mailboxes/" + s.Dev.Mailboxes[box].ID.String() + "/messages"
	var list struct{ Data []kept }
	s.API("GET", path+"?limit=1", nil).Decode(t, &list)
	if len(list.Data) == 0 {
		return m, ""
	}
	return list.Data[0], string(s.API("GET", path+"/"+list.Data[0].ID+"/raw", nil).Body)
}

func mail(subject, body string) string {
	return "From: eve@elsewhere.example\r\nX-Spam-Status: No\r\nx-spam-flag: NO\r\nSubject: " + subject + "\r\n\r\n" + body + "\r\n"
}

func TestRspamdAndClamav(t *testing.T) {
	rspamd := startRspamd(t)
	clamd, socket := startClamd(t)
	virus := mail("virus", "") + "Content\r\n" + eicar + "\r\n"
	hidden := "From: a@b.example\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n\r\n" +
		base64.StdEncoding.EncodeToString([]byte(eicar)) + "\r\n--b--\r\n"
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.Start(t, servertest.Database(url), func(c *server.Config) {
			if c.Rspamd, c.Clamav = rspamd, clamd; c.Database == "sqlite" {
				c.Clamav = "unix:" + socket
			}
		})
		for _, text := range []string{virus, hidden} {
			if got := bring(t, s, text, "alice@demo.test", "postmaster@demo.test"); !strings.HasPrefix(got, "550 5.7.1 The message carries a virus: Test.Eicar") {
				t.Errorf("a virus: %q", got)
			}
		}
		if m, _ := newest(t, s, 0); m.ID != "" {
			t.Error("a virus was filed")
		}
		if got := bring(t, s, mail("ham", "Hello"), "alice@demo.test"); got != "" {
			t.Errorf("ham: %s", got)
		}
		m, raw := newest(t, s, 0)
		if m.Results.Spam != "ham" || strings.Count(raw, "X-Spam") != 2 || !strings.Contains(raw, "\r\nX-Spam-Status: No, score=0 required=15\r\n") || strings.Contains(raw, "x-spam-flag") {
			t.Errorf("ham is %+v:\n%s", m.Results, raw)
		}
		if got := bring(t, s, mail("reject", "X"+gtube), "alice@demo.test"); got != "550 5.7.1 Gtube pattern" {
			t.Errorf("GTUBE: %q", got)
		}
		if got := bring(t, s, mail("junk", "Y"+gtube), "alice@demo.test"); got != "" {
			t.Errorf("what rspamd marks: %q", got)
		}
		m, raw = newest(t, s, 0)
		if m.Results.Spam != "spam" || m.Results.Reasons != "GTUBE" || len(m.Folders) != 1 || m.Folders[0].Folder != "Junk" || !strings.Contains(raw, "\r\nX-Spam-Status: Yes, score=6 required=15\r\n\tGTUBE\r\n") {
			t.Errorf("what rspamd marks is %+v:\n%s", m, raw)
		}
		forwards(t, s, virus)
		softened(t, s)
	})
}

// forwards tests that no unwanted mail leaves through an alias.
func forwards(t *testing.T, s *servertest.Server, virus string) {
	t.Helper()
	for name, targets := range map[string][]string{"out": {"far@away.example.net"}, "both": {"far@away.example.net", "alice@demo.test"}} {
		if a := s.API("POST", "/aliases", map[string]any{"address": name + "@demo.test", "targets": targets}); a.Status != 201 {
			t.Fatalf("%s", a.Body)
		}
	}
	for _, tt := range []struct{ name, text, out, both string }{
		{"a virus", virus, "550 5.7.1 The message carries a virus: Test.Eicar", "550 5.7.1 The message carries a virus: Test.Eicar"},
		{"what is refused", mail("refused", "X"+gtube), "550 5.7.1 Gtube pattern", "550 5.7.1 Gtube pattern"},
		{"what is marked", mail("marked", "Y"+gtube), "550 5.7.1 The message is not forwarded", ""},
		{"what is wanted", mail("wanted", "Hello"), "", ""},
	} {
		for to, want := range map[string]string{"out@demo.test": tt.out, "both@demo.test": tt.both} {
			if got := bring(t, s, tt.text, to); !strings.HasPrefix(got, want) || got == "" != (want == "") {
				t.Errorf("%s to %s: %q", tt.name, to, got)
			}
		}
		if m, _ := newest(t, s, 0); tt.name == "what is marked" && (m.Results.Spam != "spam" || len(m.Folders) != 1 || m.Folders[0].Folder != "Junk") {
			t.Errorf("what is marked is filed as %+v", m)
		}
	}
	var sent struct{ Data []struct{ Subject string } }
	servertest.Eventually(t, func() string {
		if s.API("GET", "/sandbox/outbox?limit=100", nil).Decode(t, &sent); len(sent.Data) < 2 {
			return "it is not sent on yet"
		}
		return ""
	})
	for _, m := range sent.Data {
		if m.Subject != "wanted" {
			t.Errorf("%q was sent on", m.Subject)
		}
	}
}

// softened tests how a domain's settings, and mail to postmaster, change a rejection.
func softened(t *testing.T, s *servertest.Server) {
	t.Helper()
	spam := mail("reject", "X"+gtube)
	if got := bring(t, s, spam, "alice@demo.test", "postmaster@demo.test"); got != "" {
		t.Errorf("to postmaster: %s", got)
	}
	if m, _ := newest(t, s, 0); m.Results.Spam != "spam" || len(m.Folders) != 1 || m.Folders[0].Folder != "Junk" {
		t.Errorf("to postmaster: %+v", m)
	}
	for level, folder := range map[string]string{"off": "INBOX", "lenient": "INBOX", "normal": "Junk", "strict": "Junk"} {
		if a := s.API("PATCH", "/mailboxes/"+s.Dev.Mailboxes[1].ID.String(), map[string]any{"spam_filter": level}); a.Status != 200 {
			t.Fatalf("%s", a.Body)
		}
		if got := bring(t, s, mail(level, "Y"+gtube), "bob@demo.test"); got != "" {
			t.Errorf("%s: %s", level, got)
		}
		if m, _ := newest(t, s, 1); len(m.Folders) != 1 || m.Folders[0].Folder != folder || m.Results.Score != 6 {
			t.Errorf("%s: %+v", level, m)
		}
	}
	s.API("PATCH", "/mailboxes/"+s.Dev.Mailboxes[1].ID.String(), map[string]any{"spam_filter": "normal"})
	for setting, folder := range map[string]string{"junk": "Junk", "off": "INBOX"} {
		s.API("PATCH", "/domains/"+s.Dev.Domain.ID.String(), map[string]any{"spam_filtering": setting})
		if got := bring(t, s, spam, "bob@demo.test"); got != "" {
			t.Errorf("%s: %s", setting, got)
		}
		if m, _ := newest(t, s, 1); len(m.Folders) != 1 || m.Folders[0].Folder != folder || m.Results.Score < 15 {
			t.Errorf("%s: %+v", setting, m)
		}
	}
}

// A backend that is down, or that hangs.
func TestFiltersAway(t *testing.T) {
	hang, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts connections
	if err != nil {
		t.Fatal(err)
	}
	defer hang.Close() //nolint:errcheck // only listened
	clamd, _ := startClamd(t)
	away := dnstest.ClosedAddr(t)
	large := mail("large", strings.Repeat("0123456789abcdef\r\n", 64<<10))
	for _, tt := range []struct {
		name, rspamd, clamd, fail, text, want string
	}{
		{"both away, open", "http://" + away, away, "open", mail("x", "x"), ""},
		{"rspamd away, closed", "http://" + away, "", "closed", mail("x", "x"), "451 4.7.1 "},
		{"clamd away, closed", "", away, "closed", mail("x", "x"), "451 4.7.1 "},
		{"both hang, open", "http://" + hang.Addr().String(), hang.Addr().String(), "open", mail("x", "x"), ""},
		{"rspamd hangs, closed", "http://" + hang.Addr().String(), "", "closed", mail("x", "x"), "451 4.7.1 "},
		{"clamd hangs, closed", "", hang.Addr().String(), "closed", mail("x", "x"), "451 4.7.1 "},
		{"too large, open", "", clamd, "open", large, ""},
		{"too large, closed", "", clamd, "closed", large, "552 5.3.4 "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := servertest.Start(t, func(c *server.Config) {
				c.Rspamd, c.Clamav, c.SpamFail = tt.rspamd, tt.clamd, tt.fail
				if strings.Contains(tt.name, "hang") {
					c.SpamTimeout = 100 * time.Millisecond
				}
			})
			for range 5 { // until they pause, and then
				if got := bring(t, s, tt.text, "alice@demo.test"); !strings.HasPrefix(got, tt.want) || got == "" != (tt.want == "") {
					t.Errorf("%q, want %q", got, tt.want)
				}
			}
			if m, raw := newest(t, s, 0); m.ID == "" != (tt.want != "") || m.ID != "" && !strings.Contains(raw, "\r\nX-Spam-Status: No, score=") {
				t.Errorf("it is filed as\n%.500s", raw)
			}
		})
	}
}
