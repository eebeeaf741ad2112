// SPDX-License-Identifier: Apache-2.0

package crowdtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// conn speaks IMAP line by line and keeps the last lines as a transcript.
type conn struct {
	nc              net.Conn
	br              *bufio.Reader
	lastTag         int
	transcriptLines []string
}

// transcriptSize is the number of lines of a transcript.
const transcriptSize = 40

func (c *conn) record(line string) {
	if len(c.transcriptLines) == transcriptSize {
		c.transcriptLines = c.transcriptLines[1:]
	}
	c.transcriptLines = append(c.transcriptLines, fmt.Sprintf("%.300s", line))
}

func (c *conn) transcript() string { return strings.Join(c.transcriptLines, "\n") }

func (c *conn) close() {
	if c.nc != nil {
		_ = c.nc.Close()
	}
}

func (c *conn) send(text string) error {
	for _, line := range strings.SplitAfter(text, "\r\n") {
		if line != "" {
			c.record("> " + strings.TrimSpace(line))
		}
	}
	if err := c.nc.SetDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := io.WriteString(c.nc, text)
	return err
}

// readResponse reads one response: a line, and for each literal in it the next.
func (c *conn) readResponse() (string, error) {
	if err := c.nc.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	var b strings.Builder
	for {
		line, err := c.br.ReadString('\n')
		if err != nil {
			return "", err
		}
		line, ended := strings.CutSuffix(line, "\r\n")
		if !ended {
			return "", fmt.Errorf("a line ends without CR LF: %q", line)
		}
		b.WriteString(line)
		open := strings.LastIndexByte(line, '{')
		if open < 0 || !strings.HasSuffix(line, "}") {
			break
		}
		b.WriteString("\r\n")
		if _, err := io.CopyN(&b, c.br, int64(parseNumber(line[open+1:len(line)-1]))); err != nil {
			return "", err
		}
	}
	c.record("< " + b.String())
	return b.String(), nil
}

// value is an atom, a string or a list of a response.
type value struct {
	text string
	list []value
}

// parseValues parses the values of a response.
func parseValues(s string) []value {
	p := parser{s}
	return p.values()
}

type parser struct{ rest string }

func (p *parser) values() (all []value) {
	for {
		p.rest = strings.TrimLeft(p.rest, " ")
		switch {
		case p.rest == "":
			return all
		case p.rest[0] == ')':
			p.rest = p.rest[1:]
			return all
		case p.rest[0] == '(':
			p.rest = p.rest[1:]
			list := p.values()
			all = append(all, value{list: append([]value{}, list...)})
		default:
			all = append(all, value{text: p.text()})
		}
	}
}

func (p *parser) text() string {
	switch p.rest[0] {
	case '"':
		end := strings.IndexByte(p.rest[1:], '"') + 1
		text := p.rest[1:end]
		p.rest = p.rest[end+1:]
		return text
	case '{':
		size, rest, _ := strings.Cut(p.rest[1:], "}\r\n")
		n, _ := strconv.Atoi(size)
		p.rest = rest[n:]
		return rest[:n]
	}
	end := strings.IndexAny(p.rest, " ()")
	if strings.HasPrefix(p.rest, "BODY[") {
		end = strings.IndexByte(p.rest, ']') + 1
	}
	if end < 0 {
		end = len(p.rest)
	}
	text := p.rest[:end]
	p.rest = p.rest[end:]
	return text
}

func parseNumber(s string) uint64 { n, _ := strconv.ParseUint(s, 10, 64); return n }

// parseUIDSet parses a set of UIDs such as 1:3,5.
func parseUIDSet(s string) (uids []uint32) {
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, isRange := strings.Cut(part, ":")
		if !isRange {
			hi = lo
		}
		from, to := parseNumber(lo), parseNumber(hi)
		for uid := min(from, to); uid <= max(from, to); uid++ {
			uids = append(uids, uint32(uid))
		}
	}
	return uids
}

// responseCode returns the arguments of a response code, if the text has it.
func responseCode(text, name string) (string, bool) {
	_, rest, found := strings.Cut(text, "["+name+" ")
	if !found {
		return "", false
	}
	code, _, closed := strings.Cut(rest, "]")
	return code, closed
}
