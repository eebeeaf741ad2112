// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// promise is the required output of a command of a page.
type promise struct {
	command string // part of the command
	prints  []string
}

// The README's tour.
func TestTour(t *testing.T) {
	// Each of these is found in the tour once.
	paste(t, commandsOf(t, "README.md", "\n## A tour"), []promise{
		{"/outbound/send", []string{`"id":"`, `"message_id":"`, `"email":"bob@demo.test"`, `"metadata":{"order":42}`}},
		{`--user "bob@demo.test:$bob"`, []string{"a=rsa-sha256", "a=ed25519-sha256", "From: Alice <alice@demo.test>", "Subject: Hello from the API", "It works."}},
		{"--upload-file", nil},
		{`--user "alice@demo.test:$alice"`, []string{"Subject: Re: Hello", "It does."}},
		{"/outbound/messages", []string{`"status":"delivered"`, `"alice@demo.test"`, `"status":"delivered"`, `"bob@demo.test"`}},
		{"/events", []string{`"type":"delivery_status"`, `"status":"delivered"`}},
		{`"$api/domains"`, []string{`"name":"shop.test"`, `"kind":"OWNERSHIP"`, `"kind":"MX"`, `"kind":"DKIM"`}},
	})
}

// The commands in docs/sending.md.
func TestSendingPage(t *testing.T) {
	paste(t, commandsOf(t, "docs/sending.md", "\n"), []promise{
		{"-i -H 'Idempotency-Key", []string{"Idempotency-Replayed: true", "202 Accepted"}},
		{"/outbound/batch", []string{`"status":"queued"`, `"field":"to[0]"`}},
		{"/cancel", []string{`"status":"cancelled"`}},
		{"/render", []string{`<p style=\"color: #333\">Hi Bob &amp; Co!</p>`, `"text":"Hi Bob & Co!"`, `"unused":["coupon"]`}},
		{"/outbound/send-template", []string{`"status":"queued"`}},
		{`"thread_id": "ticket-7"`, []string{`"thread_id":"ticket-7"`}},
		{"/threads/ticket-7", []string{`"direction":"outbound"`, `"direction":"inbound"`}},
		{"/suppressions -d", []string{`"reason":"manual"`}},
		{"/suppressions?reason=manual", []string{`"left@example.org"`}},
		{"/outbound/messages/$bounced", []string{`"status":"bounced"`, `"smtp_code":550`, `"timeline":`}},
	})
}

// The commands in docs/mailboxes.md, with the available program.
func TestMailboxesPage(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../../cmd/mailstead").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	paste(t, commandsOf(t, "docs/mailboxes.md", "\n"), []promise{
		{"POST /mailboxes -d", []string{`"address":"ann@demo.test"`, `"password":"`, `"quota_mb":2048`}},
		{`"quota_mb": 4096`, []string{`"quota_mb":4096`}},
		{"GETQUOTAROOT", []string{`* QUOTA "" (STORAGE 0 4194304)`}},
		{"/client-setup", []string{`"username":"ann@demo.test"`, `"security":"tls"`}},
		{"/client-setup/check", []string{`{"ok":true,`}},
		{"info@demo.test", []string{`"desk@example.org"`}},
		{"*@demo.test", []string{`"address":"*@demo.test"`}},
		{"?subject=three", []string{`"subject":"Three ways to Ann"`}},
		{"forward_to", []string{`"forward_to":["ann@example.org"]`, `"keep_copy":true`}},
		{"/vacation", []string{`"enabled":true`, `"interval_days":7`}},
		{"/sandbox/inbound", []string{`"accepted":true`}},
		{"/sandbox/outbox", []string{`"mail_from":"SRS0=`, `"ann@example.org"`, `"subject":"Away"`, `"carol@example.org"`}},
		{"/app-passwords -d", []string{`"name":"phone"`, `"password":"`}},
		{"$phone", []string{"* STATUS INBOX (MESSAGES 4 UNSEEN 4)"}},
		{":wrong", []string{"refused"}},
		{"/sign-ins", []string{`"result":"wrong_password"`, `"result":"ok"`, `"app_password":"phone"`}},
		{`"suspended"`, []string{`"status":"suspended"`}},
		{"refused", []string{"refused"}},
		{`"active"`, []string{`"status":"active"`}},
		{"/migrations/test", []string{`"name":"INBOX","messages":1`}},
		{"/events", []string{"event: done", `"status":"completed"`}},
		{"GET /migrations/", []string{`"copied":1,`, `"target":"INBOX"`}},
		{"mailstead migrate", []string{"completed: 0 copied", "1 were there already"}},
		{"mailstead export", []string{"bob.mbox: exported"}},
		{"mailstead import", []string{"1 imported"}},
		{"mailstead import", []string{"0 imported", "1 were there already"}},
		{"/import?folder=Old", []string{`"imported":1`}},
		{"mailstead export", []string{"ann: exported"}},
		{"tar -tf", []string{".Old/cur/", ".From Bob/cur/", ".Archive/"}},
		{"CAPABILITY", []string{"IMAP4rev2", "QRESYNC", "APPENDLIMIT=52428800"}},
	})
}

// paste runs the commands of a page one by one in one shell, like a reader who waits for each to
// finish. It replaces ports and paths; more are other replacements, in pairs.
func paste(t *testing.T, commands []string, promised []promise, more ...string) {
	t.Helper()
	s := servertest.Start(t)
	p := newProgram(t)
	replace := strings.NewReplacer(append(more,
		"~/.cache/mailstead-dev/dev.json", filepath.Join(s.Config.Data, "dev.json"),
		"localhost:10993", fmt.Sprintf("localhost:%d", s.Dev.Ports["imaps"]),
		"localhost:10587", fmt.Sprintf("localhost:%d", s.Dev.Ports["submission"]),
		"/tmp/", p.home+"/",
	)...)
	sh := newShell(t, p)
	done := 0
	for _, command := range commands {
		command = replace.Replace(command)
		out := sh.run(command)
		t.Logf("$ %s\n%s", command, out)
		if done < len(promised) && strings.Contains(command, promised[done].command) {
			for _, words := range promised[done].prints {
				if !strings.Contains(out, words) {
					t.Errorf("this does not print %s:\n%s\n%s", words, command, out)
				}
			}
			done++
		}
		quiet(t, s)
	}
	if done < len(promised) {
		t.Errorf("the page has no command with %q, or not in this order", promised[done].command)
	}
}

// quiet waits until no delivery is pending.
func quiet(t *testing.T, s *servertest.Server) {
	t.Helper()
	servertest.Eventually(t, func() string {
		var l struct{ Data []struct{ Status string } }
		s.API("GET", "/outbound/messages", nil).Decode(t, &l)
		for _, m := range l.Data {
			if !slices.Contains([]string{"scheduled", "delivered", "bounced", "cancelled"}, m.Status) {
				return fmt.Sprint("the messages are ", l.Data)
			}
		}
		return ""
	})
}

// commandsOf returns the shell commands of a page, from a second-level heading to the next one, or
// all if there is none.
func commandsOf(t *testing.T, page, heading string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), heading)
	if !found {
		t.Fatalf("%s has no part %q", page, heading)
	}
	if heading != "\n" {
		section, _, _ = strings.Cut(section, "\n## ")
	}
	for n, block := range strings.Split(section, "```") {
		code, shell := strings.CutPrefix(block, "sh\n")
		if n%2 == 0 || !shell {
			continue
		}
		command := ""
		for line := range strings.Lines(code) {
			command += line
			if !strings.HasSuffix(line, "\\\n") && exec.Command("bash", "-n", "-c", command).Run() == nil {
				commands = append(commands, strings.TrimSuffix(command, "\n"))
				command = ""
			}
		}
		if command != "" {
			t.Fatalf("this is no shell command:\n%s", command)
		}
	}
	return commands
}

// shell is a bash that receives commands one by one.
type shell struct {
	t   testing.TB
	in  io.Writer
	out *bufio.Scanner
}

func newShell(t testing.TB, p *program) *shell {
	t.Helper()
	needtest.Program(t, "curl")
	cmd := exec.Command(needtest.Program(t, "bash"))
	cmd.Dir = p.home
	cmd.Env = []string{"HOME=" + p.home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the shell: %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &shell{t, in, lines}
}

// run runs a command, which must succeed, and returns its output.
func (s *shell) run(command string) string {
	s.t.Helper()
	const mark = "-- the command ended with "
	if _, err := fmt.Fprintf(s.in, "%s\nprintf '\\n%s%%d\\n' $?\n", command, mark); err != nil {
		s.t.Fatal(err)
	}
	var out strings.Builder
	for s.out.Scan() {
		if status, end := strings.CutPrefix(s.out.Text(), mark); end {
			if status != "0" {
				s.t.Errorf("ended with %s: %s\n%s", status, command, out.String())
			}
			return out.String()
		}
		out.WriteString(s.out.Text() + "\n")
	}
	s.t.Fatalf("the shell ended with: %s\n%s", command, out.String())
	return ""
}
