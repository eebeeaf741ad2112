// SPDX-License-Identifier: Apache-2.0

package archive

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

// Quoting says what became of lines of messages that begin with "From ".
type Quoting string

// The kinds of mbox by their quoting.
const (
	// QuotingAuto takes away one ">" from every ">From ", ">>From " and so on,
	// until a message shows that nothing was quoted.
	QuotingAuto Quoting = ""
	MboxRD      Quoting = "mboxrd" // ">" was put before "From ", ">From " and so on
	MboxO       Quoting = "mboxo"  // ">" was put before "From " alone
	MboxCL2     Quoting = "mboxcl2"
)

// maxAhead is how far Content-Length is believed beyond a line that looks as if
// it began a message, in bytes: so much has to be read ahead to see whether it
// fits.
const maxAhead = 1 << 20

// maxHead is how much of a message's header is looked at, in bytes.
const maxHead = message.MaxHeader

// mbox is a file of messages (RFC 4155) while it is read.
type mbox struct {
	w       *window
	to      Sink
	name    string // of the file; "" for the whole archive
	folder  string // what its messages are in, unless they tell
	quoting Quoting
	n       int
	labels  func() known
	odd     bool   // what begins messages has no date
	buf     []byte // of the last message, for the next
}

// read gives every message to the sink.
func (m *mbox) read() error {
	if bytes.HasPrefix(m.w.line(0), []byte(byteOrderMark)) {
		m.w.take(len(byteOrderMark))
	}
	for blank(m.w.line(0)) {
		m.w.take(len(m.w.line(0)))
	}
	first := m.w.line(0)
	if len(first) == 0 {
		return m.w.ended()
	}
	if !bytes.HasPrefix(first, []byte("From ")) {
		return broken("This is no mbox: it does not begin with a line \"From …\".")
	}
	_, _, dated := fromLine(first)
	m.odd = !dated
	for len(m.w.line(0)) > 0 {
		m.n++
		if err := m.one(); err != nil {
			return err
		}
	}
	return m.w.ended()
}

func (m *mbox) place() string {
	if m.name == "" {
		return fmt.Sprintf("message %d", m.n)
	}
	return fmt.Sprintf("%s, message %d", m.name, m.n)
}

// one gives the next message to the sink.
func (m *mbox) one() error {
	sender, date, _ := fromLine(m.w.line(0))
	m.skipLine()
	msg := &Message{Place: m.place(), Folder: m.folder, Date: date}
	b := &mboxBody{m: m, buf: m.buf[:0], left: -1, length: -1, start: m.w.off}
	b.quoted = m.quoting != MboxCL2
	if !b.ours(msg, sender) && b.head(msg) {
		return b.drain() // what another program keeps there for itself
	}
	msg.Body = b
	if err := m.to.Message(msg); err != nil {
		return err
	}
	err := b.drain()
	m.buf = b.buf
	return err
}

func (m *mbox) skipLine() {
	for {
		line := m.w.line(0)
		m.w.take(len(line))
		if len(line) == 0 || line[len(line)-1] == '\n' {
			return
		}
	}
}

func blank(line []byte) bool { return string(line) == "\n" || string(line) == "\r\n" }

// begins reports whether a message begins so many bytes ahead. Lines of text
// that begin with "From " have no date, or are quoted.
func (m *mbox) begins(from int, afterBlank bool) bool {
	line := m.w.line(from)
	if !bytes.HasPrefix(line, []byte("From ")) {
		return false
	}
	if _, _, ok := fromLine(line); ok && afterBlank {
		return true
	} else if !ok && !(m.odd && afterBlank) {
		return false
	}
	// Without an empty line before it, it may as well be a line of a paragraph.
	return fieldName(m.w.line(from+len(line))) != ""
}

// fieldName is the name of the header field that a line begins, in lower case;
// "" if it begins none.
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
	m      *mbox
	buf    []byte
	out    []byte // what of buf is still to be read
	eol    string // the line end that comes next, unless the message has ended
	mid    bool   // in the middle of a line
	raw    bool   // line ends are as they were
	open   bool   // the message's last line had no end
	quoted bool
	length int64 // what Content-Length says; -1 for nothing
	start  int64 // where the body begins, which that counts
	left   int64 // how much there is still, as Content-Length says; -1 if it is not believed
	done   bool
}

// head reads the header of a message that another program wrote, up to the
// body, without the fields that are none of the message's own. It reports
// whether this is no message, but a place for a program's own notes.
func (b *mboxBody) head(msg *Message) (internal bool) {
	w := b.m.w
	begun, told, drop, titled, noted := false, false, false, false, false
	if line := w.line(0); fieldName(bytes.TrimPrefix(line, []byte(byteOrderMark))) != "" && fieldName(line) == "" {
		w.take(len(byteOrderMark))
		b.start = w.off
	}
	for w.off-b.start < maxHead { // what is dropped counts, too: keywords are kept
		line := w.line(0)
		name := fieldName(line)
		folded := begun && len(line) > 0 && (line[0] == ' ' || line[0] == '\t')
		switch {
		case !begun && blank(line) && b.ends(): // there is nothing but what belongs to the mbox
			b.done = true
			return false
		case blank(line):
			b.buf = append(b.buf, "\r\n"...)
			w.take(len(line))
			b.start, b.out = w.off, b.buf
			return titled && noted
		case !folded && stray(line) && !b.m.begins(0, false):
			drop = true // it is of an archive that this message went through
		case len(line) == 0 || line[len(line)-1] != '\n' || !folded && (name == "" || b.m.begins(0, false)):
			b.start, b.out = w.off, b.buf
			return titled && noted
		case !folded:
			if drop = own(name) && !(told && strings.HasPrefix(name, "x-mozilla-")); drop || name == "x-gmail-labels" && !told {
				b.note(msg, name, line[bytes.IndexByte(line, ':')+1:])
			}
			// Google's export and Thunderbird put theirs before the message: others are of whoever sent it, or had it before.
			told = told || !drop && !slices.Contains([]string{"x-gm-thrid", "x-account-key", "x-uidl"}, name)
			noted = noted || name == "x-imap" // people write about such messages, too
			titled = titled || name == "subject" && bytes.Contains(line, []byte("FOLDER INTERNAL DATA")) && bytes.Contains(line, []byte("DELETE THIS MESSAGE"))
		}
		line = w.line(0) // reading ahead has moved it
		if begun = true; !drop {
			if need := len(b.buf) + len(line) + 1; need > cap(b.buf) && need > maxHead/4 { // append would take more
				b.buf = append(make([]byte, 0, maxHead+fragment), b.buf...)
			}
			b.buf = appendLine(b.buf, line)
		}
		w.take(len(line))
	}
	b.out, b.start = b.buf, w.off
	return titled && noted
}

// stray reports whether a line begins a message in an archive, quoted or not. In a
// header it is what another archive has left there.
func stray(line []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(line, ">"), []byte("From ")) && len(line) <= maxFromLine && line[len(line)-1] == '\n'
}

// note takes what a field tells. A long one of labels goes on in further lines.
func (b *mboxBody) note(msg *Message, name string, value []byte) {
	switch name {
	case "content-length":
		if n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64); err == nil && n >= 0 {
			b.length = n
		}
	case "x-gmail-labels":
		text := string(value)
		for from := len(b.m.w.line(0)); len(text) < fragment; {
			more := b.m.w.line(from)
			if len(more) == 0 || more[0] != ' ' && more[0] != '\t' {
				break
			}
			from += len(more)
			text = strings.TrimRight(text, "\r\n") + string(more)
		}
		msg.labels(strings.TrimSpace(text), b.m.labels())
	default:
		msg.mark(name, string(value))
	}
}

// appendLine appends a line with CRLF at its end.
func appendLine(to, line []byte) []byte {
	line = line[:len(line)-1]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return append(append(to, line...), "\r\n"...)
}

// next reads some lines.
func (b *mboxBody) next() {
	b.buf = b.buf[:0]
	for len(b.buf) < fragment && !b.done {
		b.line()
	}
	b.out = b.buf
}

// line reads a line, or a piece of a long one.
func (b *mboxBody) line() {
	w := b.m.w
	if !b.mid && b.ends() {
		b.end()
		return
	}
	text := w.line(0)
	if b.left >= 0 {
		text = text[:min(int64(len(text)), b.left)]
	}
	if len(text) == 0 {
		b.end()
		return
	}
	quoted := !b.mid && b.quoted && b.quote(text)
	whole := text[len(text)-1] == '\n'
	if !whole && len(text) > 1 && text[len(text)-1] == '\r' { // its LF may come
		text = text[:len(text)-1]
	}
	n := len(text)
	b.buf = append(b.buf, b.eol...)
	b.eol = ""
	if quoted {
		text = text[1:]
	}
	if whole {
		text = text[:len(text)-1]
		switch {
		case b.raw:
			b.eol = "\n"
		default:
			b.eol = "\r\n"
			text = bytes.TrimSuffix(text, []byte("\r"))
		}
	}
	b.buf = append(b.buf, text...)
	b.mid = !whole
	if w.take(n); b.left >= 0 {
		b.left -= int64(n)
	}
}

// quote reports whether a line begins with a ">" that was put there.
func (b *mboxBody) quote(line []byte) bool {
	depth := len(line) - len(bytes.TrimLeft(line, ">"))
	return depth > 0 && (depth == 1 || b.m.quoting != MboxO) && quotable(line)
}

// ends reports whether the message ends before the line that is ahead, and
// takes the empty line that belongs to the mbox.
func (b *mboxBody) ends() bool {
	line := b.m.w.line(0)
	if b.left > 0 || b.left < 0 && len(line) > 2 && line[0] != 'F' {
		return false
	}
	empty := 0
	if blank(line) {
		empty = len(line)
	}
	if b.left == 0 {
		b.m.w.take(empty)
		return true
	}
	if len(b.m.w.line(empty)) > 0 {
		if !b.m.begins(empty, empty > 0) || b.goesOn(empty) {
			return false
		}
	}
	b.m.w.take(empty)
	return true
}

// goesOn reports whether Content-Length tells that the message goes on beyond a
// line that looks as if it began another. It is believed if a message begins,
// or the file ends, where it says.
func (b *mboxBody) goesOn(empty int) bool {
	w := b.m.w
	need := b.length - (w.off - b.start)
	if b.length < 0 || need <= int64(empty) || need > maxAhead {
		return false
	}
	n := int(need)
	if len(w.ahead(n)) < n {
		return false
	}
	at := n
	for range 2 {
		if line := w.line(at); blank(line) {
			at += len(line)
		}
	}
	if at == n && w.ahead(n)[n-1] != '\n' && len(w.line(n)) > 0 {
		return false
	}
	if len(w.line(at)) > 0 && !b.m.begins(at, true) {
		return false
	}
	b.left, b.quoted = need, false
	if b.m.quoting == QuotingAuto { // it was written by a program that quotes nothing
		b.m.quoting = MboxCL2
	}
	return true
}

func (b *mboxBody) end() {
	if !b.open {
		b.buf = append(b.buf, b.eol...)
	}
	b.done = true
}

// Read is that of io.Reader.
func (b *mboxBody) Read(p []byte) (int, error) {
	for len(b.out) == 0 {
		if b.done {
			if err := b.m.w.ended(); err != nil && len(b.m.w.line(0)) == 0 {
				return 0, err
			}
			return 0, io.EOF
		}
		b.next()
	}
	n := copy(p, b.out)
	b.out = b.out[n:]
	return n, nil
}

// drain reads to the end of the message.
func (b *mboxBody) drain() error {
	for !b.done {
		b.next()
	}
	if len(b.m.w.line(0)) == 0 {
		return b.m.w.ended()
	}
	return nil
}

// Names for senders in the first lines of messages that this package wrote.
const (
	ourName    = "MAILSTEAD"
	rawMark    = "-RAW"  // line ends are as they were
	openMark   = "-OPEN" // the message's last line had no end
	folderMark = "-ALL"  // the folder stands beside the flags
)

// The fields that this package puts before a message, in this order.
const (
	statusField   = "Status: "
	xStatusField  = "X-Status: "
	keywordsField = "X-Keywords: "
	folderField   = "X-Folder: "
	specialField  = "X-Special-Use: "
)

// ours recognises a message that this package wrote, by its first line and by
// the fields before it, and takes those. A program that changed them has made
// it one of its own.
func (b *mboxBody) ours(msg *Message, sender string) bool {
	marks, ok := strings.CutPrefix(sender, ourName)
	if !ok {
		return false
	}
	raw, marks := cutMark(marks, rawMark)
	open, marks := cutMark(marks, openMark)
	all, marks := cutMark(marks, folderMark)
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
		line := b.m.w.line(at)
		value, ok := bytes.CutPrefix(line, []byte(field))
		if !ok || line[len(line)-1] != '\n' {
			return false
		}
		values[field] = strings.TrimRight(string(value), "\r\n")
		at += len(line)
	}
	msg.mark("status", values[statusField])
	msg.mark("x-status", values[xStatusField])
	msg.Keywords = strings.Fields(values[keywordsField]) // a comma is part of one
	if all {
		msg.Folder, msg.Special = decodeName(values[folderField]), use(values[specialField])
	}
	b.m.w.take(at)
	b.raw, b.open, b.quoted = raw, open, true
	b.start = b.m.w.off
	return true
}

func cutMark(marks, mark string) (bool, string) {
	rest, ok := strings.CutPrefix(marks, mark)
	return ok, rest
}

// stamp is how the date stands in the first line of a message.
func stamp(t time.Time) string { return credible(t).Format(time.ANSIC) }
