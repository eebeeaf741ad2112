// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"regexp"
	"strconv"
	"strings"
)

const (
	// maxDepth is the maximum depth of lists, maxValues the maximum number of values in a response.
	maxDepth, maxValues = 20, 10_000
)

// parser reads the values of a response.
type parser struct {
	rest   string
	values int // values read so far
}

// value is an atom, a string or a list.
type value struct {
	text   string
	atom   bool
	list   []value
	isList bool
}

// skipSpace skips spaces and the end of the line.
func (c *parser) skipSpace() { c.rest = strings.TrimLeft(c.rest, " \t\r\n") }

func (c *parser) accept(b byte) bool {
	found := c.rest != "" && c.rest[0] == b
	if found {
		c.rest = c.rest[1:]
	}
	return found
}

func (c *parser) advance(n int) (text string) {
	text, c.rest = c.rest[:n], c.rest[n:]
	return text
}

// word reads up to a space, a parenthesis or the end.
func (c *parser) word() string {
	c.skipSpace()
	if end := strings.IndexAny(c.rest, " \t\r\n()"); end >= 0 {
		return c.advance(end)
	}
	return c.advance(len(c.rest))
}

// itemName reads the name of a FETCH response item, including its brackets.
func (c *parser) itemName() string {
	end := strings.IndexAny(c.rest, " \t\r\n()[")
	if end >= 0 && c.rest[end] == '[' {
		if n := strings.IndexByte(c.rest[end:], ']'); n > 0 {
			end += n + 1
			end += len(c.rest[end:]) - len(strings.TrimLeft(c.rest[end:], "<0123456789.>"))
		}
	}
	return c.advance(max(end, 0))
}

// value reads an atom, a string or a list. An atom may have any characters except spaces and
// parentheses.
func (c *parser) value(depth int) (v value, ok bool) {
	if c.values++; c.values > maxValues || depth > maxDepth {
		return v, false
	}
	if c.skipSpace(); c.accept('(') {
		v.isList = true
		for {
			if c.skipSpace(); c.accept(')') {
				return v, true
			}
			one, ok := c.value(depth + 1)
			if !ok {
				return v, false
			}
			v.list = append(v.list, one)
		}
	}
	if strings.HasPrefix(c.rest, `"`) {
		v.text, ok = c.quotedString()
		return v, ok
	}
	if size, ok := c.literalSize(); ok {
		if size > int64(len(c.rest)) {
			return v, false
		}
		v.text = c.advance(int(size))
		return v, true
	}
	v.text, v.atom = c.word(), true
	return v, v.text != ""
}

// quotedString reads a quoted string.
func (c *parser) quotedString() (text string, ok bool) {
	var b strings.Builder
	for i := 1; i < len(c.rest); i++ {
		switch c.rest[i] {
		case '"':
			c.rest = c.rest[i+1:]
			return b.String(), true
		case '\\':
			if i++; i == len(c.rest) {
				return "", false
			}
		}
		b.WriteByte(c.rest[i])
	}
	return "", false
}

// literalSize reads the length of a literal.
func (c *parser) literalSize() (size int64, ok bool) {
	head, after, ok := strings.Cut(c.rest, "\n")
	head = strings.TrimPrefix(strings.TrimSuffix(head, "\r"), "~")
	if !ok || !strings.HasPrefix(head, "{") || !strings.HasSuffix(head, "}") {
		return 0, false
	}
	size, err := strconv.ParseInt(strings.TrimSuffix(head[1:len(head)-1], "+"), 10, 64)
	if err != nil || size < 0 {
		return 0, false
	}
	c.rest = after
	return size, true
}

// messageText reads the text of a message: either the number of bytes that follow, or the text
// itself.
func (c *parser) messageText() (follow int64, v value, ok bool) {
	before := c.rest
	if size, ok := c.literalSize(); ok && c.rest == "" {
		return size, v, true
	}
	c.rest = before
	v, ok = c.value(0)
	return 0, v, ok && !v.isList
}

// mailboxName reads a folder name. A name that is neither quoted nor a literal may have spaces and
// parentheses: it ends before the text that behind matches, or at the end of the line.
func (c *parser) mailboxName(behind *regexp.Regexp) (name string, ended bool) {
	c.skipSpace()
	if strings.HasPrefix(c.rest, `"`) || strings.HasPrefix(c.rest, "{") {
		if v, ok := c.value(0); ok {
			return v.text, true
		}
	}
	if at := behind.FindStringIndex(c.rest); at != nil {
		return strings.TrimSpace(c.advance(at[0])), true
	}
	return strings.TrimSpace(c.advance(len(c.rest))), false
}

// isAtom reports whether a word is an atom (RFC 9051 §9).
func isAtom(word string) bool {
	return word != "" && !strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`(){%*"\[]`, r) })
}

// quoteString returns a quoted string.
func quoteString(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}
