// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"strconv"
	"testing"
)

// client plays a client that sends one line and keeps to the rules for
// literals: what it has announced as {n+} it sends, {n} only if asked. Then it
// sends NOOP, once the Reader wants more.
type client struct {
	out     bytes.Buffer
	pending []int // sizes of the synchronising literals announced
	probed  bool
}

var announcement = regexp.MustCompile(`\{([0-9]+)(\+?)\}$`)

func newClient(line []byte) *client {
	c := &client{}
	c.send(line)
	return c
}

func (c *client) send(line []byte) {
	c.out.Write(line)
	c.out.WriteString("\r\n")
	m := announcement.FindSubmatch(line)
	if m == nil {
		return
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil || n > 2<<20 {
		n = 2 << 20 // refused anyway if asked; past every limit if not
	}
	if len(m[2]) == 0 {
		c.pending = append(c.pending, n)
		return
	}
	c.literal(n)
}

func (c *client) literal(n int) {
	c.out.Write(bytes.Repeat([]byte("a9 LOGOUT\r\n"), n/11+1)[:n])
	c.send(nil)
}

func (c *client) goOn(string) error {
	n := c.pending[0]
	c.pending = c.pending[1:]
	c.literal(n)
	return nil
}

func (c *client) Read(p []byte) (int, error) {
	if c.out.Len() == 0 {
		if c.probed {
			return 0, io.EOF
		}
		c.probed = true
		c.out.WriteString("zz NOOP\r\n")
	}
	return c.out.Read(p)
}

// FuzzReadCommand sends one line of any shape and then NOOP: whatever the line
// was, it makes one command or one refusal, and NOOP is read as such.
func FuzzReadCommand(f *testing.F) {
	for _, line := range []string{
		"a1 NOOP", "a1 LOGIN smith sesame", `a1 LOGIN "s\"m" {3}`, "a1 LOGIN {3+}", "a1 FROB {20+}", "a1 FROB {20}",
		"a1 UID FETCH 1:* (FLAGS BODY.PEEK[1.HEADER.FIELDS (From To)]<0.9>) (CHANGEDSINCE 4 VANISHED)",
		"a1 SEARCH RETURN (MIN PARTIAL -1:-5) OR NOT SINCE 1-Feb-1994 (1:* UID 5 HEADER a b)",
		`a1 STORE 1:2,* (UNCHANGEDSINCE 4) -FLAGS.SILENT (\Seen $x)`, `a1 APPEND x (\Seen) " 7-Feb-1994 21:52:25 -0800" {9}`,
		"a1 APPEND x UTF8 (~{9+}", `a1 LIST (SUBSCRIBED) "" ("a%" *) RETURN (STATUS (MESSAGES))`,
		"a1 SELECT &U,BTFw- (QRESYNC (1 2 3:4 (1 3)))", `a1 ID ("a" NIL)`, "a1 SORT (REVERSE DATE) UTF-8 ALL",
		"a1 UID SEARCH RETURN (SAVE MIN PARTIAL -1:-5) CHARSET x UID $ OR YOUNGER 3 (SAVEDON 1-Feb-2020 SAVEDATESUPPORTED)",
		"a1 UID SORT RETURN (ALL SAVE) (REVERSE DISPLAYFROM DATE) US-ASCII $", "a1 THREAD REFERENCES UTF-8 MODSEQ 1 OLDER 5",
		"a1 UID FETCH $ (BINARY.PEEK[1.2]<0.9> BINARY.SIZE[] PREVIEW (LAZY) SAVEDATE) (PARTIAL 1:5 CHANGEDSINCE 4)",
		"a1 APPEND x ~{9+}",
		"a1 NOOP\nb NOOP {3+}", "\x00", "a1 AUTHENTICATE PLAIN AGE=", "a1 CREATE x (USE (\\Sent))",
		"a1 SELECT x (QRESYNC (1 2 3:4,7 (1:2,4 1,5:6)))", "a1 UID REPLACE * x (\\Seen) UTF8 (~{4+}", "a1 APPEND x {3+}", "a1 COMPRESS DEFLATE",
		"a1 LIST (SUBSCRIBED RECURSIVEMATCH) \"\" (a %) RETURN (STATUS (DELETED DELETED-STORAGE MAILBOXID))", "a1 SETQUOTA \"\" (STORAGE 5)",
		"a1 SEARCH OR EMAILID M1 THREADID T-_", "a1 CREATE \"\xc3\xbc\"", "{1+}", "a1 LOGIN {1+}{2+}",
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.Count(line, []byte("\n")) > 0 {
			streams(t, line)
			return
		}
		c := newClient(line)
		r := NewReader(bufio.NewReaderSize(c, 64), c.goOn)
		r.Limits = LimitsAfterLogin(1 << 16)
		_, cmd, err := r.ReadCommand()
		if err != nil && !isRecoverable(err) {
			if e, ok := err.(*Error); ok && e.Status == Bye {
				return
			}
			t.Fatalf("%q: %v", line, err)
		}
		if (cmd == nil) != (err != nil) {
			t.Fatalf("%q: command %v with error %v", line, cmd, err)
		}
		switch cmd.(type) {
		case *Append, *Replace:
			if len(line)%2 == 0 {
				appendAll(t, r)
			}
		}
		tag, cmd, err := r.ReadCommand()
		if e, ok := err.(*Error); ok && e.Status == Bye {
			return
		}
		if _, ok := cmd.(*Noop); tag != "zz" || !ok {
			t.Fatalf("after %q: %q %v, %v", line, tag, cmd, err)
		}
	})
}

// appendAll takes the messages of an APPEND.
func appendAll(t *testing.T, r *Reader) {
	for {
		body, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			t.Fatal(err)
		}
		if m, err := r.NextMessage(); m == nil || err != nil {
			return
		}
	}
}

// streams reads any bytes as a stream of commands to its end.
func streams(t *testing.T, b []byte) {
	r := NewReader(bufio.NewReaderSize(bytes.NewReader(b), 64), func(string) error { return nil })
	for n := 0; ; n++ {
		_, _, err := r.ReadCommand()
		if err != nil && !isRecoverable(err) {
			return
		}
		if n > len(b) {
			t.Fatal("a command was read out of nothing")
		}
	}
}
