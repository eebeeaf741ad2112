// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"bytes"
	"errors"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	errTooMuch = errors.New("the source says more than it was asked for")
	errSilent  = errors.New("the source has not answered in time")
	errNumbers = errors.New("a search found what are no numbers")
	errStrange = errors.New("the source says what is no response")
)

const (
	// maxLine bounds a response, in bytes, but for what a search has found and the
	// texts of messages; maxPieces is how many literals it may have.
	maxLine, maxPieces = 256 << 10, 20
	// maxSpans is how many ranges of UIDs a search may find.
	maxSpans = 2 << 20
)

// line is the connection to a source, whose program is a stranger's. It bounds
// how much may come in answer to a command, so that what a client library keeps
// in memory is bounded too, and how long it may say nothing. The client's own
// deadlines are not heeded.
type line struct {
	net.Conn
	patience time.Duration

	mu     sync.Mutex
	budget int64  // bytes that may still come
	asked  bool   // an answer is waited for
	first  []byte // what is read before the connection
	cause  error  // why it broke
	failed error  // why nothing comes behind first

	// Responses are read one by one, but for the texts of messages: see screen.
	hiding bool            // see rewrite
	rev2   bool            // there was something to hide
	part   []byte          // of a response
	looked int             // up to where it was looked for the end of a line
	pieces int             // literals that part has
	within bool            // part goes on with what a search has found
	over   bool            // what follows there is no UID
	text   int64           // so much of a message is still to come
	found  []span          // by a search
	odd    []string        // names of folders that can't be decoded, as they are shown
	open   *answer         // the FETCH response that goes on behind the text of a message
	late   bool            // a UID came behind the text of its message
	hear   func(a *answer) // is told each FETCH response
}

// search is how an answer to a search begins.
var search = regexp.MustCompile(`(?i)^\* (SEARCH|ESEARCH( \(TAG [^)]*\))?( UID)?)\b`)

// span are UIDs that were found.
type span struct{ low, high uint32 }

// screen passes on whole responses, as rewrite makes them, and the texts of messages
// as they come. What a search has found is kept from the client library: to put a
// million UIDs in order takes it many minutes.
func (l *line) screen(chunk []byte) error {
	if l.text > 0 {
		n := min(l.text, int64(len(chunk)))
		l.first = append(l.first, chunk[:n]...)
		l.text -= n
		chunk = chunk[n:]
	}
	l.part = append(l.part, chunk...)
	for l.text == 0 {
		if l.looked > len(l.part) { // within a literal
			return l.unfinished()
		}
		end := l.looked + bytes.IndexByte(l.part[l.looked:], '\n') + 1
		if end == l.looked {
			l.looked = len(l.part) // a line that comes byte by byte must not be looked through each time
			return l.unfinished()
		}
		if begin := search.Find(l.part[:end]); l.open == nil && (begin != nil || l.within) {
			if err := l.find(l.part[len(begin):end]); err != nil {
				return err
			}
			l.within, l.over = false, false
			l.next(end)
			continue
		}
		if size, there := l.literal(l.part[:end], l.looked); there {
			if l.pieces++; size > maxLine || l.pieces > maxPieces {
				return errTooMuch
			}
			l.looked = end + int(size)
			continue
		}
		size, err := l.rewrite(l.part[:end])
		if err != nil {
			return err
		}
		l.next(end)
		n := min(size, int64(len(l.part)))
		l.first = append(l.first, l.part[:n]...)
		l.part, l.text = l.part[n:], size-n
	}
	return nil
}

// next goes on with the response behind the one that ends there.
func (l *line) next(end int) { l.part, l.looked, l.pieces = l.part[end:], 0, 0 }

// unfinished looks at a response whose end has not come. It is not kept once it is too
// long; what a search has found is noted piece by piece.
func (l *line) unfinished() error {
	if len(l.part) < maxLine {
		return nil
	}
	begin := 0
	if !l.within {
		if begin = len(search.Find(l.part)); begin == 0 {
			return errTooMuch
		}
		l.within = true
	}
	end := bytes.LastIndexAny(l.part, " ,")
	if end < begin {
		return errTooMuch
	}
	if err := l.find(l.part[begin:end]); err != nil {
		return err
	}
	l.part = bytes.Clone(l.part[end:])
	l.looked = len(l.part)
	return nil
}

// find notes what a search has found.
func (l *line) find(said []byte) error {
	if l.over {
		return nil
	}
	for word := range bytes.FieldsFuncSeq(said, func(r rune) bool { return strings.ContainsRune(" ,\r\n", r) }) {
		if word[0] == '(' || bytes.EqualFold(word, []byte("MODSEQ")) {
			l.over = true
			return nil // no more UIDs
		}
		if bytes.EqualFold(word, []byte("ALL")) || bytes.EqualFold(word, []byte("NIL")) {
			continue
		}
		first, last, ranged := bytes.Cut(word, []byte(":"))
		if !ranged {
			last = first
		}
		low, err := strconv.ParseUint(string(first), 10, 32)
		high, err2 := strconv.ParseUint(string(last), 10, 32)
		if err != nil || err2 != nil {
			return errNumbers
		}
		if err := l.add(span{uint32(min(low, high)), uint32(max(low, high))}); err != nil {
			return err
		}
	}
	return nil
}

// add notes UIDs that were found, with those before if they follow them.
func (l *line) add(s span) error {
	if n := len(l.found); n > 0 {
		if last := &l.found[n-1]; s.low >= last.low && uint64(s.low) <= uint64(last.high)+1 {
			last.high = max(last.high, s.high)
			return nil
		}
	}
	if len(l.found) == maxSpans {
		return errTooMuch
	}
	l.found = append(l.found, s)
	return nil
}

// show ends the hiding, and reports whether IMAP4rev2 was there.
func (l *line) show() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hiding = false
	return l.rev2
}

// ask says that a command is sent now, for which so many bytes may come.
func (l *line) ask(budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget, l.asked, l.found, l.odd, l.hear = budget, true, nil, nil, nil
	_ = l.Conn.SetDeadline(time.Now().Add(l.patience))
}

// hurry bounds how long the source may say nothing from now on.
func (l *line) hurry(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.patience = min(l.patience, patience)
}

// rest says that the command is answered. Nobody waits for anything.
func (l *line) rest() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = false
	_ = l.Conn.SetDeadline(time.Time{})
}

// listen has hear called with each FETCH response until the next command. It is called
// while the source is read, and must be quick.
func (l *line) listen(hear func(a *answer)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hear = hear
}

// isLate reports whether a UID came behind the text of its message.
func (l *line) isLate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.late
}

// allow says that n bytes have gone on to where they are kept.
func (l *line) allow(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget += n
}

// Read reads what comes.
func (l *line) Read(p []byte) (int, error) {
	for { // a source may send any number of pieces before there is a line to pass on
		n, more, err := l.read(p)
		if !more {
			return n, err
		}
	}
}

// read is Read, but for what it takes in without passing on: then there is more
// to read.
func (l *line) read(p []byte) (n int, more bool, err error) {
	l.mu.Lock()
	if len(l.first) > 0 {
		n := copy(p, l.first)
		if l.first = l.first[n:]; len(l.first) == 0 {
			l.first = nil
		}
		l.mu.Unlock()
		return n, false, nil
	}
	if l.failed == nil && l.budget <= 0 {
		l.failed = errTooMuch
	}
	if err := l.failed; err != nil {
		l.mu.Unlock()
		return 0, false, l.broken(err)
	}
	if int64(len(p)) > l.budget {
		p = p[:l.budget]
	}
	if l.asked {
		_ = l.Conn.SetReadDeadline(time.Now().Add(l.patience))
	}
	l.mu.Unlock()
	n, err = l.Conn.Read(p)
	l.mu.Lock()
	l.budget -= int64(n)
	if n > 0 {
		l.failed = l.screen(p[:n])
		l.mu.Unlock()
		return 0, true, nil
	}
	l.mu.Unlock()
	if err != nil {
		// An end within a message must not pass for the message's end.
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return n, false, l.broken(err)
	}
	return n, false, nil
}

// Write writes a command.
func (l *line) Write(p []byte) (int, error) {
	_ = l.SetWriteDeadline(time.Now())
	n, err := l.Conn.Write(p)
	return n, l.broken(err)
}

// broken notes why the line broke first.
func (l *line) broken(err error) error {
	if err == nil {
		return nil
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		err = errSilent
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
	return err
}

// results returns what was found since the last command was sent.
func (l *line) results() []span {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.found
}

// unreadable returns the names that could not be decoded.
func (l *line) unreadable() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.odd
}

// why returns why the line broke; nil if it did not.
func (l *line) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// SetReadDeadline does nothing: see ask.
func (l *line) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline gives what is written the line's own time.
func (l *line) SetWriteDeadline(time.Time) error {
	return l.Conn.SetWriteDeadline(time.Now().Add(l.patience))
}
