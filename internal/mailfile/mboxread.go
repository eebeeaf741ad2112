// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

// Quoting is how an mbox quotes lines of messages that begin with "From ".
type Quoting string

// Values of Quoting.
const (
	// QuotingAuto removes one ">" from every ">From ", ">>From " and so on, until a message shows
	// that nothing was quoted.
	QuotingAuto Quoting = ""
	MboxRD      Quoting = "mboxrd" // ">" was put before "From ", ">From " and so on
	MboxO       Quoting = "mboxo"  // ">" was put before "From " alone
	MboxCL2     Quoting = "mboxcl2"
)

// maxLookahead is how far Content-Length is trusted beyond a line that looks like the start of a
// message, in bytes: the reader must read that far ahead to verify it.
const maxLookahead = 1 << 20

// maxHeader is how much of a message's header is parsed, in bytes.
const maxHeader = message.MaxHeader

// mboxReader reads an mbox (RFC 4155).
type mboxReader struct {
	in         *lineReader
	sink       Sink
	name       string // file name; "" for the whole archive
	folder     string // folder of its messages, unless they name one
	quoting    Quoting
	n          int
	labelTable func() labelTable
	undated    bool   // first lines have no date
	buf        []byte // buffer of the last message, for reuse
}

// readAll passes every message to the sink.
func (m *mboxReader) readAll() error {
	if bytes.HasPrefix(m.in.peekLine(0), []byte(byteOrderMark)) {
		m.in.discard(len(byteOrderMark))
	}
	for isBlank(m.in.peekLine(0)) {
		m.in.discard(len(m.in.peekLine(0)))
	}
	first := m.in.peekLine(0)
	if len(first) == 0 {
		return m.in.readErr()
	}
	if !bytes.HasPrefix(first, []byte("From ")) {
		return brokenError("This is no mbox: it does not begin with a line \"From …\".")
	}
	_, _, dated := parseFromLine(first)
	m.undated = !dated
	for len(m.in.peekLine(0)) > 0 {
		m.n++
		if err := m.readMessage(); err != nil {
			return err
		}
	}
	return m.in.readErr()
}

func (m *mboxReader) location() string {
	if m.name == "" {
		return fmt.Sprintf("message %d", m.n)
	}
	return fmt.Sprintf("%s, message %d", m.name, m.n)
}

// readMessage passes the next message to the sink.
func (m *mboxReader) readMessage() error {
	sender, date, _ := parseFromLine(m.in.peekLine(0))
	m.skipLine()
	msg := &Message{Location: m.location(), Folder: m.folder, Date: date}
	b := &mboxBody{mbox: m, buf: m.buf[:0], remaining: -1, contentLength: -1, start: m.in.offset}
	b.quoted = m.quoting != MboxCL2
	if !b.readOwnHeader(msg, sender) && b.readHeader(msg) {
		return b.drain() // internal data of another program
	}
	msg.Body = b
	if err := m.sink.Message(msg); err != nil {
		return err
	}
	err := b.drain()
	m.buf = b.buf
	return err
}

func (m *mboxReader) skipLine() {
	for {
		line := m.in.peekLine(0)
		m.in.discard(len(line))
		if len(line) == 0 || line[len(line)-1] == '\n' {
			return
		}
	}
}

func isBlank(line []byte) bool { return string(line) == "\n" || string(line) == "\r\n" }

// startsMessage reports whether a message begins from bytes ahead. Ordinary lines that begin with
// "From " have no date, or are quoted.
func (m *mboxReader) startsMessage(from int, afterBlank bool) bool {
	line := m.in.peekLine(from)
	if !bytes.HasPrefix(line, []byte("From ")) {
		return false
	}
	if _, _, ok := parseFromLine(line); ok && afterBlank {
		return true
	} else if !ok && !(m.undated && afterBlank) {
		return false
	}
	// Without an empty line before it, it may be part of a paragraph.
	return fieldName(m.in.peekLine(from+len(line))) != ""
}

// fieldName returns the name of the header field that a line begins, in lower case; "" if it begins
// none.
func fieldName(line []byte) string {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return ""
	}
	name := bytes.TrimRight(line[:colon], " \t")
	for _, c := range name {
		if c <= ' ' || c >= 0x7f {
			return ""
		}
	}
	return strings.ToLower(string(name))
}

// mboxBody reads one message of an mbox.
type mboxBody struct {
	mbox          *mboxReader
	buf           []byte
	buffered      []byte // unread part of buf
	pendingEOL    string // next line ending, unless the message has ended
	midLine       bool   // in the middle of a line
	rawLines      bool   // line endings are unchanged
	unterminated  bool   // the message's last line has no line ending
	quoted        bool
	contentLength int64 // value of Content-Length; -1 for none
	start         int64 // start of the body, from which Content-Length counts
	remaining     int64 // rest according to Content-Length; -1 if it is not trusted
	done          bool
}

// readHeader reads the header of a message that another program wrote, without the fields that are
// not part of the message. internal reports that this is no message but a program's internal data.
func (b *mboxBody) readHeader(msg *Message) (internal bool) {
	w := b.mbox.in
	begun, told, drop, titled, noted := false, false, false, false, false
	if line := w.peekLine(0); fieldName(bytes.TrimPrefix(line, []byte(byteOrderMark))) != "" && fieldName(line) == "" {
		w.discard(len(byteOrderMark))
		b.start = w.offset
	}
	for w.offset-b.start < maxHeader { // dropped fields count, too: keywords are stored
		line := w.peekLine(0)
		name := fieldName(line)
		folded := begun && len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
		switch {
		case !begun && isBlank(line) && b.atEnd(): // only mbox data is left
			b.done = true
			return false
		case isBlank(line):
			b.buf = append(b.buf, "\r\n"...)
			w.discard(len(line))
			b.start, b.buffered = w.offset, b.buf
			return titled && noted
		case !folded && isStrayFrom(line) && !b.mbox.startsMessage(0, false):
			drop = true // it belongs to an archive that this message was in
		case len(line) == 0 || line[len(line)-1] != '\n' || !folded && (name == "" || b.mbox.startsMessage(0, false)):
			b.start, b.buffered = w.offset, b.buf
			return titled && noted
		case !folded:
			if drop = isMetadataField(name) && !(told && strings.HasPrefix(name, "x-mozilla-")); drop || name == "x-gmail-labels" && !told {
				b.readField(msg, name, line[bytes.IndexByte(line, ':')+1:])
			}
			// Google's export and Thunderbird put their fields first: later ones come from the
			// sender or a previous owner.
			told = told || !drop && !slices.Contains([]string{"x-gm-thrid", "x-account-key", "x-uidl"}, name)
			noted = noted || name == "x-imap" // people write about such messages, too
			titled = titled || name == "subject" && bytes.Contains(line, []byte("FOLDER INTERNAL DATA")) && bytes.Contains(line, []byte("DELETE THIS MESSAGE"))
		}
		line = w.peekLine(0) // peeking has moved it
		if begun = true; !drop {
			if need := len(b.buf) + len(line) + 1; need > cap(b.buf) && need > maxHeader/4 { // append would take more
				b.buf = append(make([]byte, 0, maxHeader+fragmentSize), b.buf...)
			}
			b.buf = appendCRLF(b.buf, line)
		}
		w.discard(len(line))
	}
	b.buffered, b.start = b.buf, w.offset
	return titled && noted
}

// isStrayFrom reports whether a line begins a message in an archive, quoted or not. In a header it
// is left over from another archive.
func isStrayFrom(line []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(line, ">"), []byte("From ")) && len(line) <= maxFromLine && line[len(line)-1] == '\n'
}

// readField applies a field. A long field of labels continues on further lines.
func (b *mboxBody) readField(msg *Message, name string, value []byte) {
	switch name {
	case "content-length":
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil && n >= 0 {
			b.contentLength = n
		}
	case "x-gmail-labels":
		text := string(value)
		for from := len(b.mbox.in.peekLine(0)); len(text) < fragmentSize; {
			more := b.mbox.in.peekLine(from)
			if len(more) == 0 || more[0] != ' ' && more[0] != '\t' {
				break
			}
			from += len(more)
			text = strings.TrimRight(text, "\r\n") + string(more)
		}
		msg.applyLabels(strings.TrimSpace(text), b.mbox.labelTable())
	default:
		msg.applyStatusField(name, string(value))
	}
}

// appendCRLF appends a line with CRLF as its ending.
func appendCRLF(to, line []byte) []byte {
	line = line[:len(line)-1]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return append(append(to, line...), "\r\n"...)
}

// fill reads some lines.
func (b *mboxBody) fill() {
	b.buf = b.buf[:0]
	for len(b.buf) < fragmentSize && !b.done {
		b.readLine()
	}
	b.buffered = b.buf
}

// readLine reads a line, or a piece of a long one.
func (b *mboxBody) readLine() {
	w := b.mbox.in
	if !b.midLine && b.atEnd() {
		b.finish()
		return
	}
	text := w.peekLine(0)
	if b.remaining >= 0 {
		text = text[:min(int64(len(text)), b.remaining)]
	}
	if len(text) == 0 {
		b.finish()
		return
	}
	quoted := !b.midLine && b.quoted && b.isQuoted(text)
	whole := text[len(text)-1] == '\n'
	if !whole && len(text) > 1 && text[len(text)-1] == '\r' { // its LF may follow
		text = text[:len(text)-1]
	}
	n := len(text)
	b.buf = append(b.buf, b.pendingEOL...)
	b.pendingEOL = ""
	if quoted {
		text = text[1:]
	}
	if whole {
		text = text[:len(text)-1]
		switch {
		case b.rawLines:
			b.pendingEOL = "\n"
		default:
			b.pendingEOL = "\r\n"
			text = bytes.TrimSuffix(text, []byte("\r"))
		}
	}
	b.buf = append(b.buf, text...)
	b.midLine = !whole
	if w.discard(n); b.remaining >= 0 {
		b.remaining -= int64(n)
	}
}

// isQuoted reports whether a line begins with a quoting ">".
func (b *mboxBody) isQuoted(line []byte) bool {
	depth := len(line) - len(bytes.TrimLeft(line, ">"))
	return depth > 0 && (depth == 1 || b.mbox.quoting != MboxO) && needsQuote(line)
}

// atEnd reports whether the message ends before the next line, and consumes the empty line that
// belongs to the mbox.
func (b *mboxBody) atEnd() bool {
	line := b.mbox.in.peekLine(0)
	if b.remaining > 0 || b.remaining < 0 && len(line) > 2 && line[0] != 'F' {
		return false
	}
	empty := 0
	if isBlank(line) {
		empty = len(line)
	}
	if b.remaining == 0 {
		b.mbox.in.discard(empty)
		return true
	}
	if len(b.mbox.in.peekLine(empty)) > 0 {
		if !b.mbox.startsMessage(empty, empty > 0) || b.continues(empty) {
			return false
		}
	}
	b.mbox.in.discard(empty)
	return true
}

// continues reports whether, by Content-Length, the message continues beyond a line that looks like
// the start of another. Content-Length is trusted if a message begins, or the file ends, where it
// says.
func (b *mboxBody) continues(empty int) bool {
	w := b.mbox.in
	need := b.contentLength - (w.offset - b.start)
	if b.contentLength < 0 || need <= int64(empty) || need > maxLookahead {
		return false
	}
	n := int(need)
	if len(w.peek(n)) < n {
		return false
	}
	at := n
	for range 2 {
		if line := w.peekLine(at); isBlank(line) {
			at += len(line)
		}
	}
	if at == n && w.peek(n)[n-1] != '\n' && len(w.peekLine(n)) > 0 {
		return false
	}
	if len(w.peekLine(at)) > 0 && !b.mbox.startsMessage(at, true) {
		return false
	}
	b.remaining, b.quoted = need, false
	if b.mbox.quoting == QuotingAuto { // the program that wrote it quotes nothing
		b.mbox.quoting = MboxCL2
	}
	return true
}

func (b *mboxBody) finish() {
	if !b.unterminated {
		b.buf = append(b.buf, b.pendingEOL...)
	}
	b.done = true
}

// Read implements io.Reader.
func (b *mboxBody) Read(p []byte) (int, error) {
	for len(b.buffered) == 0 {
		if b.done {
			if err := b.mbox.in.readErr(); err != nil && len(b.mbox.in.peekLine(0)) == 0 {
				return 0, err
			}
			return 0, io.EOF
		}
		b.fill()
	}
	n := copy(p, b.buffered)
	b.buffered = b.buffered[n:]
	return n, nil
}

// drain reads to the end of the message.
func (b *mboxBody) drain() error {
	for !b.done {
		b.fill()
	}
	if len(b.mbox.in.peekLine(0)) == 0 {
		return b.mbox.in.readErr()
	}
	return nil
}

// Parts of the sender in the first lines of messages that this package writes.
const (
	ownSender        = "MAILSTEAD"
	rawMark          = "-RAW"  // line endings are unchanged
	unterminatedMark = "-OPEN" // the message's last line has no line ending
	foldersMark      = "-ALL"  // the folder is recorded, as are the flags
)

// The fields that this package puts before a message, in this order.
const (
	statusField   = "Status: "
	xStatusField  = "X-Status: "
	keywordsField = "X-Keywords: "
	folderField   = "X-Folder: "
	specialField  = "X-Special-Use: "
)

// readOwnHeader recognizes a message that this package wrote, by its first line and the fields
// before it, and consumes those. If another program has changed them, the message counts as that
// program's.
func (b *mboxBody) readOwnHeader(msg *Message, sender string) bool {
	marks, ok := strings.CutPrefix(sender, ownSender)
	if !ok {
		return false
	}
	raw, marks := cutMark(marks, rawMark)
	open, marks := cutMark(marks, unterminatedMark)
	all, marks := cutMark(marks, foldersMark)
	fields := []string{statusField, xStatusField, keywordsField}
	if all {
		fields = append(fields, folderField, specialField)
	}
	if marks != "" {
		return false
	}
	at := 0
	values := map[string]string{}
	for _, field := range fields {
		line := b.mbox.in.peekLine(at)
		value, ok := bytes.CutPrefix(line, []byte(field))
		if !ok || line[len(line)-1] != '\n' {
			return false
		}
		values[field] = strings.TrimRight(string(value), "\r\n")
		at += len(line)
	}
	msg.applyStatusField("status", values[statusField])
	msg.applyStatusField("x-status", values[xStatusField])
	msg.Keywords = strings.Fields(values[keywordsField]) // a comma is part of a keyword
	if all {
		msg.Folder, msg.SpecialUse = decodeFolderHeader(values[folderField]), parseSpecialUse(values[specialField])
	}
	b.mbox.in.discard(at)
	b.rawLines, b.unterminated, b.quoted = raw, open, true
	b.start = b.mbox.in.offset
	return true
}

func cutMark(marks, mark string) (bool, string) {
	rest, ok := strings.CutPrefix(marks, mark)
	return ok, rest
}

// formatDate formats a date for the first line of a message.
func formatDate(t time.Time) string { return clampDate(t).Format(time.ANSIC) }
