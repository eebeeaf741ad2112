// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// python runs the Python script that verifies the result.
func python(t *testing.T, args ...string) []string {
	t.Helper()
	c := exec.Command(needtest.Python(t), append([]string{"testdata/letters.py"}, args...)...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// held returns the messages of a mailbox.
func held(t *testing.T, s *servertest.Server, box int) (lines []string) {
	t.Helper()
	c, err := client.New(s.Dev.BaseURL, s.Dev.APIKey)
	if err != nil {
		t.Fatal(err)
	}
	for m, err := range c.MailboxMessages(t.Context(), s.Dev.Mailboxes[box].ID.String(), client.MailFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range m.Folders {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", f.Folder, m.Subject, strings.Join(f.Flags, ","), m.ReceivedAt.Unix()))
		}
	}
	slices.Sort(lines)
	return lines
}

// The commands, verified with Python's mailbox module.
func TestImportAndExport(t *testing.T) {
	s := servertest.Start(t)
	dir := t.TempDir()
	python(t, "write", dir)
	bob := s.Dev.Mailboxes[1].Address
	do := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := run(t, nil, append(args, "--url", s.Dev.BaseURL, "--key", s.Dev.APIKey)...)
		if status != want {
			t.Fatalf("%v: %d\n%s%s", args, status, out, errs)
		}
		if status != 0 && strings.Count(strings.TrimSpace(errs), "\n") > 0 {
			t.Errorf("%v: the error is %s", args, errs)
		}
		return out + errs
	}
	file, maildir := filepath.Join(dir, "letters.mbox"), filepath.Join(dir, "Maildir")
	if err := os.Symlink("/etc/passwd", filepath.Join(maildir, "cur", "link")); err != nil {
		t.Fatal(err)
	}
	out := do(0, "import", "--mailbox", bob, "--folder", "Letters", file)
	if !strings.Contains(out, "5 imported (500 B), 0 were there already, 0 could not be imported") {
		t.Error(out)
	}
	out = do(0, "import", "--mailbox", strings.ToUpper(bob), "--folder", "Dir", maildir, maildir)
	if !strings.Contains(out, "6 imported") || !strings.Contains(out, "0 imported (0 B), 6 were there already") || !strings.Contains(out, "link: it is a link") {
		t.Error(out)
	}
	got := slices.DeleteFunc(held(t, s, 1), func(line string) bool { return !strings.HasPrefix(line, "Letters") && !strings.HasPrefix(line, "Dir") })
	want := []string{
		`Dir 0  1000000000`, `Dir 1 \Seen 1000000001`, `Dir 2 \Flagged,\Seen 1000000002`, `Dir 3 \Answered,\Seen 1000000003`, `Dir 4 \Draft 1000000004`,
		`Dir/Work/2019 9 \Seen 1000000009`,
		`Letters 0  1000000000`, `Letters 1 \Seen 1000000001`, `Letters 2 \Flagged,\Seen 1000000002`, `Letters 3 \Answered 1000000003`, `Letters 4 \Deleted 1000000004`,
	}
	for i := range got { // flags have no order
		words := strings.SplitN(got[i], " ", 4)
		flags := strings.Split(words[2], ",")
		slices.Sort(flags)
		words[2] = strings.Join(flags, ",")
		got[i] = strings.Join(words, " ")
	}
	if !slices.Equal(got, want) {
		t.Errorf("imported\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	mbox, tree := filepath.Join(dir, "out.mbox"), filepath.Join(dir, "out")
	do(0, "export", "--mailbox", bob, mbox)
	do(0, "export", "--mailbox", bob, "--format", "maildir", tree+"/")
	do(0, "export", "--mailbox", bob, "--format", "maildir", "--folder", "Dir", filepath.Join(dir, "dir.tar.gz"))
	if out := do(1, "export", "--mailbox", bob, mbox); !strings.Contains(out, "is there already") {
		t.Error(out)
	}
	do(1, "export", "--mailbox", bob, "--format", "maildir", tree)
	do(1, "export", "--mailbox", bob, "--folder", "Nowhere", filepath.Join(dir, "none.mbox"))
	do(1, "import", "--mailbox", bob, filepath.Join(dir, "none.mbox"))
	do(1, "import", "--mailbox", "nobody@demo.test", file)
	do(1, "import", "--mailbox", bob, "testdata/letters.py")
	if left, err := filepath.Glob(filepath.Join(dir, ".*part*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	type seen struct{ Folder, Subject, Flags, Body, Keywords string }
	bodies := map[string]string{}
	for _, line := range python(t, "read", "mbox", mbox) {
		var m seen
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		bodies[m.Folder+" "+m.Subject+" "+m.Flags] = m.Body
	}
	for _, line := range python(t, "read", "maildir", tree) {
		var m seen
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		bodies["maildir "+m.Folder+" "+m.Subject+" "+m.Flags] = m.Body
	}
	for _, want := range []string{"Letters 0 O", "Letters 2 FOR", "Letters 3 AO", "Letters 4 DO", "Dir/Work/2019 9 OR", "maildir Letters 2 FS", "maildir Letters 3 R", "maildir Letters 4 T", "maildir Dir.Work.2019 9 S"} {
		if bodies[want] == "" {
			t.Errorf("Python does not find %q among %d: %v", want, len(bodies), bodies)
		}
	}

	// The export is imported unchanged into another mailbox.
	alice := s.Dev.Mailboxes[0].Address
	do(0, "import", "--mailbox", alice, "--folder", "Back", tree)
	do(0, "import", "--mailbox", alice, "--folder", "Packed", filepath.Join(dir, "dir.tar.gz"))
	back := strings.Join(held(t, s, 0), "\n")
	for _, line := range want {
		if flags := strings.Split(line, " ")[2]; !strings.Contains(flags, ",") && !strings.Contains(back, "Back/"+line) {
			t.Errorf("%q did not come back:\n%s", line, back)
		}
	}
	if !strings.Contains(back, `Packed 4 \Draft`) {
		t.Errorf("the packed tar was not read:\n%s", back)
	}

	// Through a pipe.
	status, text, errs := run(t, nil, "export", "--mailbox", bob, "--folder", "Letters", "-", "--url", s.Dev.BaseURL, "--key", s.Dev.APIKey)
	if status != 0 || strings.Count(text, "\nSubject: ") != 5 || !strings.Contains(errs, "exported") {
		t.Errorf("%d %s %s", status, text, errs)
	}
	c := command(t, nil, "import", "--mailbox", alice, "--folder", "Piped", "-", "--url", s.Dev.BaseURL, "--key", s.Dev.APIKey)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "5 imported") {
		t.Errorf("%v: %s", err, out)
	}
}

// An export omits and reports unreadable messages, and has all others.
func TestExportOfLost(t *testing.T) {
	s := servertest.Start(t)
	dir := t.TempDir()
	bob := s.Dev.Mailboxes[1].Address
	do := func(want int, args ...string) string {
		t.Helper()
		status, out, errs := run(t, nil, append(args, "--url", s.Dev.BaseURL, "--key", s.Dev.APIKey)...)
		if status != want {
			t.Fatalf("%v: %d\n%s%s", args, status, out, errs)
		}
		return out + errs
	}
	file := filepath.Join(dir, "letters.mbox")
	mail := "From x Sat Nov 21 17:00:00 2026\nSubject: "
	if err := os.WriteFile(file, []byte(mail+"lost\n\n"+strings.Repeat("x\n", 50_000)+"\n"+mail+"kept\n\nx\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(0, "import", "--mailbox", bob, "--folder", "Letters", file)
	files, err := filepath.Glob(filepath.Join(s.Config.Blobs, "??", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	out, tree := filepath.Join(dir, "out.mbox"), filepath.Join(dir, "out")
	for _, said := range []string{do(1, "export", "--mailbox", bob, "--folder", "Letters", out), do(1, "export", "--mailbox", bob, "--folder", "Letters", "--format", "maildir", tree)} {
		if !strings.Contains(said, "exported (") || !strings.Contains(said, "missing: 1 (") {
			t.Errorf("said %s", said)
		}
	}
	text, err := os.ReadFile(out)
	if err != nil || strings.Count(string(text), "Subject: ") != 1 || !strings.Contains(string(text), "Subject: kept") {
		t.Errorf("exported %s, %v", text, err)
	}
	if names, err := filepath.Glob(filepath.Join(tree, "cur", "*")); err != nil || len(names) != 1 {
		t.Errorf("exported %v, %v", names, err)
	}
}
