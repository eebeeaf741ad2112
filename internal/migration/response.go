// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The client library closes the connection at the first response that violates the syntax of RFC
// 9051 §9. Many servers send some: keywords with brackets, dates without a zone, names without
// quotation marks. So sourceConn passes on each response as rewrite writes it, and FETCH responses
// only with the text of a message. It drops useless responses, whether they can be parsed or not.

var (
	literalPattern = regexp.MustCompile(`\{([0-9]{1,18})\+?\}\r?\n$`)
	// textResponsePattern matches responses that end in human-readable text, which announces no
	// literal.
	textResponsePattern = regexp.MustCompile(`(?i)^ *(?:[^* ]|\* *(?:OK|NO|BAD|BYE|PREAUTH)\b)`)
	// fetchPattern matches the start of a FETCH response. bodyLiteralPattern matches the
	// announcement of a message's text, or of a part of it.
	fetchPattern       = regexp.MustCompile(`(?i)^ *\* *[0-9]+ +FETCH *\(`)
	bodyLiteralPattern = regexp.MustCompile(`(?i)(?:(?:BODY|BINARY)(?:\.PEEK)?\[[^\]]*\](?:<[0-9]+>)?|\bRFC822(?:\.HEADER|\.TEXT)?) *~?\{[0-9]+\+?\}\r?\n$`)
	tagPattern         = regexp.MustCompile(`^[Tt][0-9]+$`)
	codePattern        = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
	// listExtensionPattern matches the start of what may follow a folder name in LIST (RFC 5258),
	// statusItemsPattern what follows it in STATUS.
	listExtensionPattern = regexp.MustCompile(`(?i) \((?:"|CHILDINFO |OLDNAME )`)
	statusItemsPattern   = regexp.MustCompile(` \([^(]*\)?\s*$`)
	numberPattern        = regexp.MustCompile(`^[0-9]+$`)
)

// nextLiteral reports whether a response, whose last line begins at last, continues with a literal
// that belongs to the response itself, and returns its size.
func (l *sourceConn) nextLiteral(part []byte, last int) (size int64, there bool) {
	m := literalPattern.FindSubmatch(part[last:])
	if m == nil || l.openFetch == nil && textResponsePattern.Match(part) || (l.openFetch != nil || fetchPattern.Match(part)) && bodyLiteralPattern.Match(part) {
		return 0, false
	}
	size, err := strconv.ParseInt(string(m[1]), 10, 64)
	return size, err == nil
}

// emit passes a response on to the client library.
func (l *sourceConn) emit(format string, args ...any) {
	l.readBuf = fmt.Appendf(l.readBuf, format, args...)
}

// rewrite passes a response on to the client library in a form that it can parse, or notes its
// contents. If the text of a message follows, it returns the length.
func (l *sourceConn) rewrite(response []byte) (text int64, err error) {
	c := &parser{rest: string(response)}
	if l.openFetch != nil {
		return l.readFetch(c)
	}
	if c.skipSpace(); c.rest == "" {
		return 0, nil
	}
	switch tag := c.word(); {
	case tag == "+":
		if l.hideRev2 { // login may need it
			l.emit("+ %s\r\n", printable(c.rest))
		}
		return 0, nil
	case tagPattern.MatchString(tag):
		switch kind := strings.ToUpper(c.word()); kind {
		case "OK", "NO", "BAD":
			l.rewriteStatusResponse(strings.ToUpper(tag), kind, c)
			return 0, nil
		}
		return 0, errBadResponse
	case tag != "*":
		return 0, errBadResponse // lines may be miscounted: the next data could be anything
	}
	kind := strings.ToUpper(c.word())
	if numberPattern.MatchString(kind) {
		n, _ := strconv.ParseUint(kind, 10, 32)
		switch strings.ToUpper(c.word()) {
		case "EXISTS":
			l.emit("* %d EXISTS\r\n", n)
		case "FETCH":
			if c.skipSpace(); !c.accept('(') {
				return 0, errBadResponse
			}
			l.openFetch = &fetchResponse{seq: uint32(n)}
			return l.readFetch(c)
		}
		return 0, nil
	}
	switch kind {
	case "OK", "NO", "BAD", "BYE", "PREAUTH":
		l.rewriteStatusResponse("*", kind, c)
	case "CAPABILITY":
		l.emit("* CAPABILITY%s\r\n", l.filterCapabilities(c.rest))
	case "NAMESPACE":
		l.emit("* NAMESPACE %s %s %s\r\n", rewriteNamespace(c), rewriteNamespace(c), rewriteNamespace(c))
	case "LIST":
		return 0, l.rewriteList(c)
	case "STATUS":
		l.rewriteStatusData(c)
	}
	return 0, nil
}

// rewriteStatusResponse passes on a tagged or untagged status response.
func (l *sourceConn) rewriteStatusResponse(tag, kind string, c *parser) {
	c.skipSpace()
	with, text := "", c.rest
	if inner, after, closed := strings.Cut(text, "]"); closed && strings.HasPrefix(inner, "[") {
		text = after
		word, args, _ := strings.Cut(strings.TrimSpace(inner[1:]), " ")
		switch word = strings.ToUpper(word); word {
		case "CAPABILITY":
			with = "[CAPABILITY" + l.filterCapabilities(args) + "] "
		case "UIDNEXT", "UIDVALIDITY":
			if n, err := strconv.ParseUint(strings.TrimSpace(args), 10, 32); err == nil {
				with = fmt.Sprintf("[%s %d] ", word, n)
			}
		case "PERMANENTFLAGS", "HIGHESTMODSEQ", "COPYUID", "APPENDUID": // these need arguments
		default:
			if codePattern.MatchString(word) {
				with = "[" + word + "] "
			}
		}
	}
	if text = strings.TrimSpace(printable(text)); with == "" {
		text = strings.TrimLeft(text, "[ ")
	}
	if text == "" {
		text = "-"
	}
	l.emit("%s %s %s%s\r\n", tag, kind, with, text)
}

// filterCapabilities returns the valid capabilities, without IMAP4rev2 while that is hidden. The
// client library writes folder names in UTF-8 to any server that offers IMAP4rev2, although UTF-8
// applies only once it is enabled. It also still encodes "&" as in IMAP4rev1.
func (l *sourceConn) filterCapabilities(words string) string {
	var all strings.Builder
	for word := range strings.FieldsSeq(words) {
		if strings.EqualFold(word, "IMAP4rev2") {
			if l.rev2 = true; l.hideRev2 {
				continue
			}
		}
		if isAtom(word) {
			all.WriteString(" " + word)
		}
	}
	return all.String()
}

// rewriteNamespace returns the valid namespaces of one kind (RFC 2342).
func rewriteNamespace(c *parser) string {
	all, ok := c.value(0)
	if !ok {
		return "NIL"
	}
	text := ""
	for _, v := range all.list {
		if len(v.list) > 1 && canDecode(v.list[0].text) {
			text += "(" + quoteString(v.list[0].text) + " " + formatDelimiter(v.list[1]) + ")"
		}
	}
	if text == "" {
		return "NIL"
	}
	return "(" + text + ")"
}

func formatDelimiter(v value) string {
	if r, n := utf8.DecodeRuneInString(v.text); n == 0 || n < len(v.text) || r < ' ' || r == utf8.RuneError {
		return "NIL"
	}
	return quoteString(v.text)
}

// rewriteList passes on a folder, or notes its name if it can't be decoded.
func (l *sourceConn) rewriteList(c *parser) error {
	attributes, ok := c.value(0)
	if !ok {
		return nil
	}
	delim, ok := c.value(0)
	if !ok {
		return nil
	}
	name, _ := c.mailboxName(listExtensionPattern)
	if name == "" { // the root, which is not a folder
		return nil
	}
	if !canDecode(name) {
		if len(l.badNames) == maxListed {
			return errTooMuchData
		}
		l.badNames = append(l.badNames, printable(name))
		return nil
	}
	var words []string
	for _, v := range attributes.list {
		if isAtom(strings.TrimPrefix(v.text, `\`)) {
			words = append(words, v.text)
		}
	}
	l.emit("* LIST (%s) %s %s\r\n", strings.Join(words, " "), formatDelimiter(delim), quoteString(name))
	return nil
}

// rewriteStatusData passes on a STATUS response.
func (l *sourceConn) rewriteStatusData(c *parser) {
	name, at := c.mailboxName(statusItemsPattern)
	if !at || !canDecode(name) {
		return
	}
	all, ok := c.value(0)
	if !ok {
		return
	}
	var words []string
	for i := 0; i+1 < len(all.list); i += 2 {
		kind, n := strings.ToUpper(all.list[i].text), all.list[i+1].text
		bits := map[string]int{"MESSAGES": 32, "SIZE": 63}[kind]
		if count, err := strconv.ParseUint(n, 10, max(bits, 1)); bits > 0 && err == nil {
			words = append(words, fmt.Sprintf("%s %d", kind, count))
		}
	}
	l.emit("* STATUS %s (%s)\r\n", quoteString(name), strings.Join(words, " "))
}

// fetchResponse is the content of a FETCH response.
type fetchResponse struct {
	seq, uid uint32
	hasFlags bool // the response has flags
	flags    []string
	hasDate  bool // the response has INTERNALDATE
	date     string
	size     int64

	started, uidSent bool // passed on; passed on with the UID
}

// readFetch parses a FETCH response, or the rest of one after the text of a message.
func (l *sourceConn) readFetch(c *parser) (text int64, err error) {
	a := l.openFetch
	for {
		if c.skipSpace(); c.accept(')') {
			break
		}
		name := strings.ToUpper(c.itemName())
		c.skipSpace()
		switch {
		case name == "":
			return 0, errBadResponse
		case strings.Contains(name, "[") && !strings.HasPrefix(name, "BINARY.SIZE"), name == "RFC822", name == "RFC822.HEADER", name == "RFC822.TEXT":
			text, v, ok := c.messageText()
			if !ok {
				return 0, errBadResponse
			}
			if v.atom { // NIL
				continue
			}
			l.emitLiteralHead(name, text+int64(len(v.text)))
			if text > 0 || c.rest == "" {
				return text, nil
			}
			l.readBuf = append(l.readBuf, v.text...)
			continue
		}
		v, ok := c.value(0)
		if !ok && !strings.HasPrefix(c.rest, ")") { // else it has no value
			return 0, errBadResponse
		}
		switch name {
		case "UID":
			uid, _ := strconv.ParseUint(v.text, 10, 32)
			a.uid = uint32(uid)
		case "FLAGS":
			a.hasFlags = true
			for _, v := range v.list {
				a.flags = append(a.flags, v.text)
			}
		case "INTERNALDATE":
			a.hasDate, a.date = true, v.text
		case "RFC822.SIZE":
			a.size, _ = strconv.ParseInt(v.text, 10, 64)
			a.size = max(0, a.size)
		}
	}
	if l.openFetch = nil; a.started {
		if !a.uidSent && a.uid != 0 {
			l.lateUIDs = true
			l.emit(" UID %d", a.uid)
		}
		l.emit(")\r\n")
	}
	if l.onFetch != nil {
		l.onFetch(a)
	}
	return 0, nil
}

// emitLiteralHead passes on the response up to the text of a message, or of its header.
func (l *sourceConn) emitLiteralHead(name string, size int64) {
	a := l.openFetch
	if !a.started {
		l.emit("* %d FETCH (", a.seq)
		if a.uidSent = a.uid != 0; a.uidSent {
			l.emit("UID %d ", a.uid)
		}
	} else {
		l.emit(" ")
	}
	a.started = true
	switch name {
	case "BODY[]", "BODY.PEEK[]", "RFC822", "BINARY[]":
		name = "BODY[]"
	default:
		name = "BODY[HEADER]"
	}
	l.emit("%s {%d}\r\n", name, size)
}
