// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// client speaks IMAP line by line, as transcripts do:
//
//	c.ok("SELECT INBOX")
//	c.got("* 3 EXISTS", "* OK [UNSEEN 1] …")
//	c.no("COPY 1 Nowhere", "TRYCREATE")
//
// In what is expected, … stands for anything. It fails the test at the first
// surprise, and when an answer does not come within a minute.
type client struct {
	*fixture
	nc  net.Conn
	br  *bufio.Reader
	tag int
	// untagged are the responses since the last command was sent, each with its literals and
	// without the line end. tagged is the last tagged response, without the tag.
	untagged []string
	tagged   string
}

// dial connects to the STARTTLS port and reads the greeting.
func (h *fixture) dial() *client {
	h.Helper()
	nc, err := net.Dial("tcp", h.plain)
	h.must(err)
	return h.greeted(nc)
}

// dialTLS connects to the TLS port and reads the greeting.
func (h *fixture) dialTLS() *client {
	h.Helper()
	nc, err := tls.Dial("tcp", h.secure, h.tlsConfig())
	h.must(err)
	return h.greeted(nc)
}

func (h *fixture) greeted(nc net.Conn) *client {
	h.Helper()
	c := &client{fixture: h, nc: nc, br: bufio.NewReaderSize(nc, 64<<10)}
	h.Cleanup(func() { _ = nc.Close() })
	c.untagged = []string{c.answer()}
	return c
}

// login returns a session of alice.
func (h *fixture) login() *client { h.Helper(); return h.loginAs(alice) }

func (h *fixture) loginAs(user string) *client {
	h.Helper()
	c := h.dialTLS()
	c.ok("LOGIN " + user + " " + password)
	return c
}

// selected returns a session of alice with a folder open.
func (h *fixture) selected(folder string) *client {
	h.Helper()
	c := h.login()
	c.ok("SELECT " + folder)
	return c
}

// send sends bytes as they are.
func (c *client) send(text string) {
	c.Helper()
	c.must(c.nc.SetDeadline(time.Now().Add(time.Minute)))
	_, err := io.WriteString(c.nc, text)
	c.must(err)
}

// answer reads one response: a line, and for each literal in it the next.
func (c *client) answer() string {
	c.Helper()
	text, err := c.tryAnswer()
	if err != nil {
		c.Fatalf("reading an answer: %v (before it: %q)", err, c.untagged)
	}
	return text
}

var literal = regexp.MustCompile(`\{(\d+)\}$`)

func (c *client) tryAnswer() (string, error) {
	if err := c.nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		line, err := c.br.ReadString('\n')
		if err != nil {
			return line, err
		}
		line, ended := strings.CutSuffix(line, "\r\n")
		if !ended {
			return line, fmt.Errorf("a line ends without CR LF: %q", line)
		}
		b.WriteString(line)
		m := literal.FindStringSubmatch(line)
		if m == nil {
			return b.String(), nil
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return "", err
		}
		b.WriteString("\r\n")
		if _, err := io.CopyN(&b, c.br, int64(n)); err != nil {
			return "", err
		}
	}
}

// begin sends a command and returns its tag.
func (c *client) begin(command string) string {
	c.Helper()
	c.tag++
	tag := "t" + strconv.Itoa(c.tag)
	c.untagged = nil
	c.send(tag + " " + command + "\r\n")
	return tag
}

// finish reads the responses up to the tagged one.
func (c *client) finish(tag string) {
	c.Helper()
	for {
		a := c.answer()
		if rest, ok := strings.CutPrefix(a, tag+" "); ok {
			c.tagged = rest
			return
		}
		if !strings.HasPrefix(a, "* ") {
			c.Fatalf("an answer that is neither untagged nor for %s: %q", tag, a)
		}
		c.untagged = append(c.untagged, a)
	}
}

func (c *client) do(command, want string) {
	c.Helper()
	c.finish(c.begin(command))
	if !strings.HasPrefix(c.tagged, want) {
		c.Fatalf("%.200s: %q, want %s; before it: %q", command, c.tagged, want, c.untagged)
	}
}

// ok runs a command that must succeed, with the given codes if any.
func (c *client) ok(command string, code ...string) { c.Helper(); c.do(command, "OK "+bracket(code)) }

// no runs a command that must be rejected.
func (c *client) no(command string, code ...string) { c.Helper(); c.do(command, "NO "+bracket(code)) }

// bad runs an invalid command.
func (c *client) bad(command string) { c.Helper(); c.do(command, "BAD ") }

func bracket(code []string) string {
	if len(code) == 0 {
		return ""
	}
	return "[" + code[0]
}

func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "…")
	if len(parts) == 1 {
		return text == pattern
	}
	text, ok := strings.CutPrefix(text, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		text, ok = rest, ok && found
	}
	return ok && strings.HasSuffix(text, parts[len(parts)-1])
}

// got expects exactly these untagged answers, in order.
func (c *client) got(want ...string) {
	c.Helper()
	bad := len(want) != len(c.untagged)
	for i := 0; !bad && i < len(want); i++ {
		bad = !matches(want[i], c.untagged[i])
	}
	if bad {
		c.Fatalf("got\n%s\nwant\n%s", list(c.untagged), list(want))
	}
}

// has expects these untagged answers among others.
func (c *client) has(want ...string) {
	c.Helper()
	for _, w := range want {
		found := false
		for _, a := range c.untagged {
			found = found || matches(w, a)
		}
		if !found {
			c.Fatalf("got\n%s\nwithout %q", list(c.untagged), w)
		}
	}
}

func list(lines []string) string { return fmt.Sprintf("  %q", lines) }

// closed expects that the server closes the connection.
func (c *client) closed() {
	c.Helper()
	if a, err := c.tryAnswer(); err == nil {
		c.Fatalf("the connection is still there: %q", a)
	}
}

// append appends a message, with options between the name and the literal.
func (c *client) append(folder, options, message string) {
	c.Helper()
	c.ok(fmt.Sprintf("APPEND %s %s{%d+}\r\n%s", folder, options, len(message), message), "APPENDUID ")
}

func itoa(n int) string { return strconv.Itoa(n) }

func tlsClient(nc net.Conn, h *fixture) net.Conn { return tls.Client(nc, h.tlsConfig()) }
