// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// reads wants these tags, one after the other; "!" before one means that the
// command is refused, "-" is a refusal without a tag.
func reads(t *testing.T, r *Reader, tags ...string) {
	t.Helper()
	for _, want := range tags {
		tag, _, err := r.ReadCommand()
		got := tag
		var refused *Error
		if errors.As(err, &refused) {
			if got = "!" + tag; tag == "" {
				got = "-"
			}
		} else if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Fatalf("read %q (%v), want %q", got, err, want)
		}
	}
	if _, _, err := r.ReadCommand(); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
}

func TestStaysInStep(t *testing.T) {
	long := strings.Repeat("x", 70<<10)
	tests := []struct {
		name, input string
		tags        []string
	}{
		{"no tag", "\r\n+ NOOP\r\n(\r\na2 NOOP\r\n", []string{"-", "-", "-", "a2"}},
		{"tag alone", "a1\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"tag too long", strings.Repeat("t", 129) + " NOOP\r\na2 NOOP\r\n", []string{"-", "a2"}},
		{"sync literal of a refused command is not sent", "a1 FROB {3}\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"non-sync literal of a refused command is swallowed", "a1 FROB {9+}\r\na9 NOOP\r\n {1+}\r\nx\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"swallowed, then sync", "a1 FROB {3+}\r\nabc {4}\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"literal without a tag", "(x {3+}\r\nabc\r\na2 NOOP\r\n", []string{"-", "a2"}},
		{"error after a literal", "a1 LOGIN {1}\r\nx {1+}\r\ny z\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"literal too large", "a1 LOGIN {70000+}\r\n" + strings.Repeat("a9 NOOP\r\n", 7777) + "a9 NOOP pass\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"literals too large together", "a1 LOGIN {60000+}\r\n" + strings.Repeat("u", 60000) + " {60000+}\r\n" + strings.Repeat("p", 60000) + "\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"line too long", "a1 LOGIN " + long + " p\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"line too long, with a literal", "a1 LOGIN " + long + " {9+}\r\na9 NOOP\r\n\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"lines too long together", "a1 ID (" + long[:60<<10] + "{1+}\r\nx " + long[:60<<10] + "\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"bare LF", "a1 NOOP\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"bare CR", "a1 NOOP\rx\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"NUL", "a1 NO\x00OP\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
		{"append refused by the session", "a1 APPEND x {3+}\r\nabc\r\na2 NOOP\r\n", []string{"a1", "a2"}},
		{"appends refused by the session", "a1 APPEND x {3+}\r\nabc {3+}\r\ndef\r\na2 NOOP\r\n", []string{"a1", "a2"}},
		{"append refused before its bytes", "a1 APPEND x {3}\r\na2 NOOP\r\n", []string{"a1", "a2"}},
		{"append too large", "a1 APPEND x {1048577+}\r\n" + strings.Repeat("a", 1<<20+1) + "\r\na2 NOOP\r\n", []string{"!a1", "a2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := newTestReader(tt.input)
			reads(t, r, tt.tags...)
		})
	}
}

func TestSynchronisingLiterals(t *testing.T) {
	r, asked := newTestReader("a1 LOGIN {1}\r\nu {1}\r\np\r\na2 LOGIN {1} x\r\na3 LOGIN x {70000}\r\na4 NOOP\r\n")
	reads(t, r, "a1", "!a2", "!a3", "a4")
	if *asked != 2 {
		t.Errorf("asked %d times, want 2", *asked)
	}
}

func TestDiscardLimit(t *testing.T) {
	for _, input := range []string{
		"a1 FROB {9000000+}\r\n",
		"a1 FROB {999999999999999999999999999+}\r\n",
		strings.Repeat("x", 200<<10),
		"a1 FROB" + strings.Repeat(" {1000+}\r\n"+strings.Repeat("y", 1000), 100) + "\r\n",
		"a1 FROB {0+}\r\n" + strings.Repeat(" {0+}\r\n", 100_000),
	} {
		r, _ := newTestReader(input)
		r.Limits = LimitsBeforeLogin()
		_, _, err := r.ReadCommand()
		if isRecoverable(err) {
			_, _, err = r.ReadCommand()
		}
		var refused *Error
		if !errors.As(err, &refused) || refused.Status != Bye {
			t.Errorf("%.20q: refused with %v, want BYE", input, err)
		}
	}
}

func TestConnectionEnds(t *testing.T) {
	for _, input := range []string{"a1 NOO", "a1 LOGIN {3}\r\nab", "a1 LOGIN {3}\r\nabc", "a1 LOGIN {3}\r\n", strings.Repeat("x", 500)} {
		r, _ := newTestReader(input)
		if _, _, err := r.ReadCommand(); err != io.ErrUnexpectedEOF {
			t.Errorf("%.20q: %v", input, err)
		}
	}
	broken := errors.New("broken")
	r := NewReader(bufio.NewReader(strings.NewReader("a1 LOGIN {3}\r\n")), func(string) error { return broken })
	if _, _, err := r.ReadCommand(); err != broken {
		t.Errorf("a continuation that cannot be sent: %v", err)
	}
}

func TestAppend(t *testing.T) {
	r, asked := newTestReader("A003 APPEND saved-messages (\\Seen $Work) \" 7-Feb-1994 21:52:25 -0800\" {5}\r\nab\x00\r\n\r\nA004 NOOP\r\n")
	tag, cmd, err := r.ReadCommand()
	want := &Append{Mailbox: "saved-messages", Message: AppendMessage{Flags: Flags{Seen, []string{"$Work"}}, Size: 5}}
	a, ok := cmd.(*Append)
	if err != nil || tag != "A003" || !ok {
		t.Fatal(tag, cmd, err)
	}
	if date := a.Message.Date; !date.Equal(time.Date(1994, 2, 8, 5, 52, 25, 0, time.UTC)) {
		t.Errorf("date %v", date)
	}
	a.Message.Date = time.Time{}
	if !reflect.DeepEqual(a, want) || *asked != 0 {
		t.Errorf("got %+v, asked %d", a, *asked)
	}
	body, err := r.Message()
	if err != nil || *asked != 1 {
		t.Fatal(err, *asked)
	}
	if b, err := io.ReadAll(body); string(b) != "ab\x00\r\n" || err != nil {
		t.Errorf("message %q, %v", b, err)
	}
	if m, err := r.NextMessage(); m != nil || err != nil {
		t.Errorf("next message %v, %v", m, err)
	}
	reads(t, r, "A004")
}

func TestMultiAppend(t *testing.T) {
	r, asked := newTestReader("a1 APPEND x {3+}\r\nabc (\\Seen) {3}\r\ndef UTF8 (~{3+}\r\nghi)\r\na2 NOOP\r\n")
	if _, _, err := r.ReadCommand(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for {
		body, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(body)
		m, err := r.NextMessage()
		got = append(got, string(b))
		if m == nil {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		got = append(got, fmt.Sprintf("%d %d %v", m.Flags.System, m.Size, m.UTF8))
	}
	if want := []string{"abc", "1 3 false", "def", "0 3 true", "ghi"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if *asked != 1 {
		t.Errorf("asked %d times", *asked)
	}
	reads(t, r, "a2")
}

func TestAppendGivenUp(t *testing.T) {
	for _, rest := range []string{"", " junk", " {3+}\r\nxyz"} {
		r, _ := newTestReader("a1 UID REPLACE 4 x ~{9}\r\na9 NOOP\r\n" + rest + "\r\na2 NOOP\r\n")
		_, cmd, err := r.ReadCommand()
		if c, ok := cmd.(*Replace); err != nil || !ok || !c.UID || c.Number != 4 || !c.Message.Binary {
			t.Fatal(cmd, err)
		}
		body, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := body.Read(make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
		reads(t, r, "a2")
		if n, err := body.Read(make([]byte, 2)); n != 0 || err != io.EOF {
			t.Errorf("a message that was given up still reads %d, %v", n, err)
		}
	}
	r, _ := newTestReader("a1 APPEND x {3+}\r\nabc junk {2+}\r\nzz\r\na2 NOOP\r\n")
	if _, _, err := r.ReadCommand(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.NextMessage(); err == nil {
		t.Error("the next message before this one was read")
	}
	if _, err := r.Message(); err != nil {
		t.Fatal(err)
	}
	var refused *Error
	if _, err := r.NextMessage(); !errors.As(err, &refused) {
		t.Errorf("junk after a message: %v", err)
	}
	if _, err := r.Message(); err == nil {
		t.Error("a message after a refusal")
	}
	reads(t, r, "a2")
}

func TestIdleAndResponses(t *testing.T) {
	r, _ := newTestReader("a1 IDLE\r\ndone\r\na2 IDLE\r\na9 NOOP {3+}\r\nabc\r\na3 AUTHENTICATE PLAIN\r\nAGEAYg==\r\n*\r\n\r\n?\r\na4 NOOP\r\n")
	if _, _, err := r.ReadCommand(); err != nil {
		t.Fatal(err)
	}
	if err := r.ReadDone(); err != nil {
		t.Error(err)
	}
	if _, _, err := r.ReadCommand(); err != nil {
		t.Fatal(err)
	}
	var refused *Error
	if err := r.ReadDone(); !errors.As(err, &refused) {
		t.Errorf("DONE: %v", err)
	}
	if tag, _, err := r.ReadCommand(); tag != "a3" || err != nil {
		t.Fatal(tag, err)
	}
	if b, err := r.ReadSASLResponse(); string(b) != "\x00a\x00b" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := r.ReadSASLResponse(); err != ErrAuthCancelled {
		t.Error(err)
	}
	if b, err := r.ReadSASLResponse(); len(b) != 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := r.ReadSASLResponse(); !errors.As(err, &refused) {
		t.Error(err)
	}
	reads(t, r, "a4")
}

func TestSecretsStayOutOfLogs(t *testing.T) {
	for _, cmd := range []Command{&Login{"u", "hidden"}, &Authenticate{"PLAIN", []byte("hidden"), true}} {
		if s := fmt.Sprintf("%v %+v %s", cmd, cmd, cmd); strings.Contains(s, "hidden") {
			t.Error(s)
		}
	}
}

func TestUTF8Names(t *testing.T) {
	r, _ := newTestReader("a1 SELECT \"Entwürfe & mehr\"\r\na2 SELECT {1+}\r\n\xff\r\n")
	r.UTF8 = true
	if _, cmd, err := r.ReadCommand(); err != nil || cmd.(*Select).Mailbox != "Entwürfe & mehr" {
		t.Error(cmd, err)
	}
	reads(t, r, "!a2")
}

func TestReset(t *testing.T) {
	r, _ := newTestReader("a1 STARTTLS\r\na9 NOOP\r\n")
	if _, _, err := r.ReadCommand(); err != nil {
		t.Fatal(err)
	}
	if r.Buffered() != len("a9 NOOP\r\n") {
		t.Errorf("%d bytes were sent ahead", r.Buffered())
	}
	r.Reset(bufio.NewReader(strings.NewReader("a2 NOOP\r\n")))
	reads(t, r, "a2")
}

// TestHostileSizesCostLittle sends what would need much memory if it were
// believed, and counts all that is allocated on the way.
func TestHostileSizesCostLittle(t *testing.T) {
	const size, allowed = 2 << 20, 512 << 10
	for name, input := range map[string]io.Reader{
		"endless line":      &again{text: "a1 LOGIN xxxxxxxxxxxxxxxxxxxxxxxxxxxx"},
		"endless tag":       &again{text: "x"},
		"endless literals":  io.MultiReader(strings.NewReader("a1 LOGIN "), &again{text: "{0+}\r\n"}),
		"literal":           io.MultiReader(strings.NewReader("a1 LOGIN {2000000+}\r\n"), &again{text: "x"}),
		"nested search":     io.MultiReader(strings.NewReader("a1 SEARCH "), &again{text: "(OR NOT "}),
		"sequence set":      io.MultiReader(strings.NewReader("a1 FETCH "), &again{text: "1,"}),
		"lines without end": &again{text: "a1 FETCH 1 BODY[HEADER.FIELDS (a b c d e f g h i)] {3+}\r\nabc\r\n"},
	} {
		r := NewReader(bufio.NewReader(io.LimitReader(input, size)), func(string) error { return nil })
		r.Limits = LimitsAfterLogin(size)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		commands := 0
		for {
			_, _, err := r.ReadCommand()
			if err != nil && !isRecoverable(err) {
				break
			}
			commands++
		}
		runtime.ReadMemStats(&after)
		if got := int(after.TotalAlloc - before.TotalAlloc); got > allowed+commands*1024 {
			t.Errorf("%s: %d bytes allocated for %d commands", name, got, commands)
		}
		if cap(r.longLine) > 128<<10 {
			t.Errorf("%s: a line buffer of %d bytes", name, cap(r.longLine))
		}
	}
}
