// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The client library hangs up at the first response that is not written as RFC 9051
// §9 has it, and many servers write some otherwise: keywords with brackets, dates
// without a zone, names without quotation marks. So it gets each response as rewrite
// writes it, and FETCH responses only if they have the text of a message. What is of
// no use is dropped, whether it can be understood or not.

var (
	announced = regexp.MustCompile(`\{([0-9]{1,18})\+?\}\r?\n$`)
	// spoken are responses that end in text for people, in which nothing is announced.
	spoken = regexp.MustCompile(`(?i)^ *(?:[^* ]|\* *(?:OK|NO|BAD|BYE|PREAUTH)\b)`)
	// fetching begins a FETCH response, and ofText announces the text of a message, or
	// a part of it.
	fetching = regexp.MustCompile(`(?i)^ *\* *[0-9]+ +FETCH *\(`)
	ofText   = regexp.MustCompile(`(?i)(?:(?:BODY|BINARY)(?:\.PEEK)?\[[^\]]*\](?:<[0-9]+>)?|\bRFC822(?:\.HEADER|\.TEXT)?) *~?\{[0-9]+\+?\}\r?\n$`)
	tagged   = regexp.MustCompile(`^[Tt][0-9]+$`)
	code     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]*$`)
	// extended begins what may follow the name of a folder in a list (RFC 5258), counts
	// what follows it in a STATUS response.
	extended = regexp.MustCompile(`(?i) \((?:"|CHILDINFO |OLDNAME )`)
	counts   = regexp.MustCompile(` \([^(]*\)?\s*$`)
	number   = regexp.MustCompile(`^[0-9]+$`)
)

// literal reports whether a response, whose last line begins there, goes on with a
// literal of so many bytes that belongs to the response itself.
func (l *line) literal(part []byte, last int) (size int64, there bool) {
	m := announced.FindSubmatch(part[last:])
	if m == nil || l.open == nil && spoken.Match(part) || (l.open != nil || fetching.Match(part)) && ofText.Match(part) {
		return 0, false
	}
	size, err := strconv.ParseInt(string(m[1]), 10, 64)
	return size, err == nil
}

// say passes something on to the client library.
func (l *line) say(format string, args ...any) { l.first = fmt.Appendf(l.first, format, args...) }

// rewrite passes a response on to the client library as it can be read there, or
// notes what it says. If the text of a message follows, it returns its length.
func (l *line) rewrite(response []byte) (text int64, err error) {
	c := &cursor{rest: string(response)}
	if l.open != nil {
		return l.fetch(c)
	}
	if c.blanks(); c.rest == "" {
		return 0, nil
	}
	switch tag := c.word(); {
	case tag == "+":
		if l.hiding { // signing in may need it
			l.say("+ %s\r\n", shown(c.rest))
		}
		return 0, nil
	case tagged.MatchString(tag):
		switch kind := strings.ToUpper(c.word()); kind {
		case "OK", "NO", "BAD":
			l.status(strings.ToUpper(tag), kind, c)
			return 0, nil
		}
		return 0, errStrange
	case tag != "*":
		return 0, errStrange // lines may be counted wrong: what comes next could be anything
	}
	kind := strings.ToUpper(c.word())
	if number.MatchString(kind) {
		n, _ := strconv.ParseUint(kind, 10, 32)
		switch strings.ToUpper(c.word()) {
		case "EXISTS":
			l.say("* %d EXISTS\r\n", n)
		case "FETCH":
			if c.blanks(); !c.take('(') {
				return 0, errStrange
			}
			l.open = &answer{place: uint32(n)}
			return l.fetch(c)
		}
		return 0, nil
	}
	switch kind {
	case "OK", "NO", "BAD", "BYE", "PREAUTH":
		l.status("*", kind, c)
	case "CAPABILITY":
		l.say("* CAPABILITY%s\r\n", l.capabilities(c.rest))
	case "NAMESPACE":
		l.say("* NAMESPACE %s %s %s\r\n", namespace(c), namespace(c), namespace(c))
	case "LIST":
		return 0, l.list(c)
	case "STATUS":
		l.figures(c)
	}
	return 0, nil
}

// status passes on how a command ended, or what the source says besides.
func (l *line) status(tag, kind string, c *cursor) {
	c.blanks()
	with, text := "", c.rest
	if inner, after, closed := strings.Cut(text, "]"); closed && strings.HasPrefix(inner, "[") {
		text = after
		word, args, _ := strings.Cut(strings.TrimSpace(inner[1:]), " ")
		switch word = strings.ToUpper(word); word {
		case "CAPABILITY":
			with = "[CAPABILITY" + l.capabilities(args) + "] "
		case "UIDNEXT", "UIDVALIDITY":
			if n, err := strconv.ParseUint(strings.TrimSpace(args), 10, 32); err == nil {
				with = fmt.Sprintf("[%s %d] ", word, n)
			}
		case "PERMANENTFLAGS", "HIGHESTMODSEQ", "COPYUID", "APPENDUID": // which need arguments
		default:
			if code.MatchString(word) {
				with = "[" + word + "] "
			}
		}
	}
	if text = strings.TrimSpace(shown(text)); with == "" {
		text = strings.TrimLeft(text, "[ ")
	}
	if text == "" {
		text = "-"
	}
	l.say("%s %s %s%s\r\n", tag, kind, with, text)
}

// capabilities are those that have the form of one, without IMAP4rev2 while that is
// to be hidden: the client library writes names of folders in UTF-8 to a server that
// offers it, although that holds only once it is enabled, and then with "&" as it was
// in IMAP4rev1.
func (l *line) capabilities(words string) string {
	var all strings.Builder
	for word := range strings.FieldsSeq(words) {
		if strings.EqualFold(word, "IMAP4rev2") {
			if l.rev2 = true; l.hiding {
				continue
			}
		}
		if isAtom(word) {
			all.WriteString(" " + word)
		}
	}
	return all.String()
}

// namespace reads the namespaces of one kind (RFC 2342), as far as they make sense.
func namespace(c *cursor) string {
	all, ok := c.value(0)
	if !ok {
		return "NIL"
	}
	text := ""
	for _, v := range all.list {
		if len(v.list) > 1 && decodable(v.list[0].text) {
			text += "(" + quoted(v.list[0].text) + " " + delimiter(v.list[1]) + ")"
		}
	}
	if text == "" {
		return "NIL"
	}
	return "(" + text + ")"
}

func delimiter(v value) string {
	if r, n := utf8.DecodeRuneInString(v.text); n == 0 || n < len(v.text) || r < ' ' || r == utf8.RuneError {
		return "NIL"
	}
	return quoted(v.text)
}

// list passes on a folder, or notes its name if that can't be decoded.
func (l *line) list(c *cursor) error {
	attributes, ok := c.value(0)
	if !ok {
		return nil
	}
	delim, ok := c.value(0)
	if !ok {
		return nil
	}
	name, _ := c.folder(extended)
	if name == "" { // the root, which is no folder
		return nil
	}
	if !decodable(name) {
		if len(l.odd) == maxListed {
			return errTooMuch
		}
		l.odd = append(l.odd, shown(name))
		return nil
	}
	var words []string
	for _, v := range attributes.list {
		if isAtom(strings.TrimPrefix(v.text, `\`)) {
			words = append(words, v.text)
		}
	}
	l.say("* LIST (%s) %s %s\r\n", strings.Join(words, " "), delimiter(delim), quoted(name))
	return nil
}

// figures passes on how much is in a folder.
func (l *line) figures(c *cursor) {
	name, at := c.folder(counts)
	if !at || !decodable(name) {
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
	l.say("* STATUS %s (%s)\r\n", quoted(name), strings.Join(words, " "))
}

// answer is what a FETCH response says of a message.
type answer struct {
	place, uid uint32
	flagged    bool // flags are told
	flags      []string
	dated      bool // INTERNALDATE is told
	date       string
	size       int64

	begun, named bool // passed on, with the UID
}

// fetch reads a FETCH response, or what is left of one behind the text of a message.
func (l *line) fetch(c *cursor) (text int64, err error) {
	a := l.open
	for {
		if c.blanks(); c.take(')') {
			break
		}
		name := strings.ToUpper(c.item())
		c.blanks()
		switch {
		case name == "":
			return 0, errStrange
		case strings.Contains(name, "[") && !strings.HasPrefix(name, "BINARY.SIZE"), name == "RFC822", name == "RFC822.HEADER", name == "RFC822.TEXT":
			text, v, ok := c.text()
			if !ok {
				return 0, errStrange
			}
			if v.atom { // NIL
				continue
			}
			l.begin(name, text+int64(len(v.text)))
			if text > 0 || c.rest == "" {
				return text, nil
			}
			l.first = append(l.first, v.text...)
			continue
		}
		v, ok := c.value(0)
		if !ok && !strings.HasPrefix(c.rest, ")") { // else it has no value
			return 0, errStrange
		}
		switch name {
		case "UID":
			uid, _ := strconv.ParseUint(v.text, 10, 32)
			a.uid = uint32(uid)
		case "FLAGS":
			a.flagged = true
			for _, v := range v.list {
				a.flags = append(a.flags, v.text)
			}
		case "INTERNALDATE":
			a.dated, a.date = true, v.text
		case "RFC822.SIZE":
			a.size, _ = strconv.ParseInt(v.text, 10, 64)
			a.size = max(0, a.size)
		}
	}
	if l.open = nil; a.begun {
		if !a.named && a.uid != 0 {
			l.late = true
			l.say(" UID %d", a.uid)
		}
		l.say(")\r\n")
	}
	if l.hear != nil {
		l.hear(a)
	}
	return 0, nil
}

// begin passes on what comes before the text of a message, or of its head.
func (l *line) begin(name string, size int64) {
	a := l.open
	if !a.begun {
		l.say("* %d FETCH (", a.place)
		if a.named = a.uid != 0; a.named {
			l.say("UID %d ", a.uid)
		}
	} else {
		l.say(" ")
	}
	a.begun = true
	switch name {
	case "BODY[]", "BODY.PEEK[]", "RFC822", "BINARY[]":
		name = "BODY[]"
	default:
		name = "BODY[HEADER]"
	}
	l.say("%s {%d}\r\n", name, size)
}
