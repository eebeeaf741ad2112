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
	errTooMuchData     = errors.New("the source says more than it was asked for")
	errTimeout         = errors.New("the source has not answered in time")
	errBadSearchResult = errors.New("a search found what are no numbers")
	errBadResponse     = errors.New("the source says what is no response")
)

const (
	// maxResponse is the limit for a response, in bytes, without search results and message texts.
	// maxLiterals is the limit for its literals.
	maxResponse, maxLiterals = 256 << 10, 20
	// maxRanges is the maximum number of UID ranges in a search result.
	maxRanges = 2 << 20
)

// sourceConn is the connection to an untrusted source. It limits how much the source may send in
// response to a command, which also bounds the client library's memory. It also limits how long the
// source may be silent. It ignores the client's own deadlines.
type sourceConn struct {
	net.Conn
	idleTimeout time.Duration

	mu         sync.Mutex
	budget     int64  // bytes that the source may still send
	awaiting   bool   // a command waits for its response
	readBuf    []byte // read before the connection
	cause      error  // first error
	pendingErr error  // returned once readBuf is empty

	// Responses are processed one by one, except message texts: see process.
	hideRev2   bool                   // see filterCapabilities
	rev2       bool                   // IMAP4rev2 was hidden
	partial    []byte                 // incomplete response
	scanned    int                    // how far partial was searched for the end of a line
	literals   int                    // literals in partial
	inSearch   bool                   // partial continues a search result
	searchDone bool                   // what follows is not a UID
	textLeft   int64                  // bytes of a message still to come
	foundUIDs  []uidRange             // results of a search
	badNames   []string               // undecodable folder names, in printable form
	openFetch  *fetchResponse         // FETCH response that continues after a message's text
	lateUIDs   bool                   // a UID came after its message's text
	onFetch    func(a *fetchResponse) // called with each FETCH response
}

// searchPattern matches the start of a search response.
var searchPattern = regexp.MustCompile(`(?i)^\* (SEARCH|ESEARCH( \(TAG [^)]*\))?( UID)?)\b`)

// uidRange is a range of UIDs in a search result.
type uidRange struct{ low, high uint32 }

// process passes on whole responses in rewrite's form, and message texts as they arrive. It
// withholds search results from the client library, which needs many minutes to sort a million
// UIDs.
func (l *sourceConn) process(chunk []byte) error {
	if l.textLeft > 0 {
		n := min(l.textLeft, int64(len(chunk)))
		l.readBuf = append(l.readBuf, chunk[:n]...)
		l.textLeft -= n
		chunk = chunk[n:]
	}
	l.partial = append(l.partial, chunk...)
	for l.textLeft == 0 {
		if l.scanned > len(l.partial) { // within a literal
			return l.handlePartial()
		}
		end := l.scanned + bytes.IndexByte(l.partial[l.scanned:], '\n') + 1
		if end == l.scanned {
			l.scanned = len(l.partial) // a line that arrives byte by byte must not be searched again each time
			return l.handlePartial()
		}
		if begin := searchPattern.Find(l.partial[:end]); l.openFetch == nil && (begin != nil || l.inSearch) {
			if err := l.parseSearch(l.partial[len(begin):end]); err != nil {
				return err
			}
			l.inSearch, l.searchDone = false, false
			l.nextResponse(end)
			continue
		}
		if size, there := l.nextLiteral(l.partial[:end], l.scanned); there {
			if l.literals++; size > maxResponse || l.literals > maxLiterals {
				return errTooMuchData
			}
			l.scanned = end + int(size)
			continue
		}
		size, err := l.rewrite(l.partial[:end])
		if err != nil {
			return err
		}
		l.nextResponse(end)
		n := min(size, int64(len(l.partial)))
		l.readBuf = append(l.readBuf, l.partial[:n]...)
		l.partial, l.textLeft = l.partial[n:], size-n
	}
	return nil
}

// nextResponse moves on to the response that starts at end.
func (l *sourceConn) nextResponse(end int) { l.partial, l.scanned, l.literals = l.partial[end:], 0, 0 }

// handlePartial checks an incomplete response. It discards one that is too long, and records search
// results piece by piece.
func (l *sourceConn) handlePartial() error {
	if len(l.partial) < maxResponse {
		return nil
	}
	begin := 0
	if !l.inSearch {
		if begin = len(searchPattern.Find(l.partial)); begin == 0 {
			return errTooMuchData
		}
		l.inSearch = true
	}
	end := bytes.LastIndexAny(l.partial, " ,")
	if end < begin {
		return errTooMuchData
	}
	if err := l.parseSearch(l.partial[begin:end]); err != nil {
		return err
	}
	l.partial = bytes.Clone(l.partial[end:])
	l.scanned = len(l.partial)
	return nil
}

// parseSearch records search results.
func (l *sourceConn) parseSearch(said []byte) error {
	if l.searchDone {
		return nil
	}
	for word := range bytes.FieldsFuncSeq(said, func(r rune) bool { return strings.ContainsRune(" ,\r\n", r) }) {
		if word[0] == '(' || bytes.EqualFold(word, []byte("MODSEQ")) {
			l.searchDone = true
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
			return errBadSearchResult
		}
		if err := l.addRange(uidRange{uint32(min(low, high)), uint32(max(low, high))}); err != nil {
			return err
		}
	}
	return nil
}

// addRange records UIDs, merged with the range before if they are adjacent.
func (l *sourceConn) addRange(s uidRange) error {
	if n := len(l.foundUIDs); n > 0 {
		if last := &l.foundUIDs[n-1]; s.low >= last.low && uint64(s.low) <= uint64(last.high)+1 {
			last.high = max(last.high, s.high)
			return nil
		}
	}
	if len(l.foundUIDs) == maxRanges {
		return errTooMuchData
	}
	l.foundUIDs = append(l.foundUIDs, s)
	return nil
}

// stopHidingRev2 stops hiding IMAP4rev2, and reports whether the source offers it.
func (l *sourceConn) stopHidingRev2() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hideRev2 = false
	return l.rev2
}

// beginCommand must be called before a command is sent. budget is the limit for the response, in
// bytes.
func (l *sourceConn) beginCommand(budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget, l.awaiting, l.foundUIDs, l.badNames, l.onFetch = budget, true, nil, nil, nil
	_ = l.Conn.SetDeadline(time.Now().Add(l.idleTimeout))
}

// limitIdle lowers the limit for the source's silence.
func (l *sourceConn) limitIdle(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idleTimeout = min(l.idleTimeout, patience)
}

// endCommand must be called once the response is complete. It removes the deadline.
func (l *sourceConn) endCommand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting = false
	_ = l.Conn.SetDeadline(time.Time{})
}

// setFetchHandler sets the function to call with each FETCH response until the next command. The
// call happens while the source is read, so it must be quick.
func (l *sourceConn) setFetchHandler(hear func(a *fetchResponse)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFetch = hear
}

// hasLateUIDs reports whether a UID came after its message's text.
func (l *sourceConn) hasLateUIDs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lateUIDs
}

// addBudget allows n more bytes, for n bytes that the caller has stored.
func (l *sourceConn) addBudget(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget += n
}

// Read reads data for the client library.
func (l *sourceConn) Read(p []byte) (int, error) {
	for { // a source may send any number of pieces before there is a line to pass on
		n, more, err := l.readOnce(p)
		if !more {
			return n, err
		}
	}
}

// readOnce reads once. more reports whether it only took data in, so that the caller must read
// again.
func (l *sourceConn) readOnce(p []byte) (n int, more bool, err error) {
	l.mu.Lock()
	if len(l.readBuf) > 0 {
		n := copy(p, l.readBuf)
		if l.readBuf = l.readBuf[n:]; len(l.readBuf) == 0 {
			l.readBuf = nil
		}
		l.mu.Unlock()
		return n, false, nil
	}
	if l.pendingErr == nil && l.budget <= 0 {
		l.pendingErr = errTooMuchData
	}
	if err := l.pendingErr; err != nil {
		l.mu.Unlock()
		return 0, false, l.recordError(err)
	}
	if int64(len(p)) > l.budget {
		p = p[:l.budget]
	}
	if l.awaiting {
		_ = l.Conn.SetReadDeadline(time.Now().Add(l.idleTimeout))
	}
	l.mu.Unlock()
	n, err = l.Conn.Read(p)
	l.mu.Lock()
	l.budget -= int64(n)
	if n > 0 {
		l.pendingErr = l.process(p[:n])
		l.mu.Unlock()
		return 0, true, nil
	}
	l.mu.Unlock()
	if err != nil {
		// EOF within a message must not pass for the message's end.
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return n, false, l.recordError(err)
	}
	return n, false, nil
}

// Write writes a command.
func (l *sourceConn) Write(p []byte) (int, error) {
	_ = l.SetWriteDeadline(time.Now())
	n, err := l.Conn.Write(p)
	return n, l.recordError(err)
}

// recordError records the first error.
func (l *sourceConn) recordError(err error) error {
	if err == nil {
		return nil
	}
	var late net.Error
	if errors.As(err, &late) && late.Timeout() {
		err = errTimeout
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
	return err
}

// searchResults returns the UIDs found since the last command.
func (l *sourceConn) searchResults() []uidRange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foundUIDs
}

// undecodableNames returns the folder names that could not be decoded.
func (l *sourceConn) undecodableNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.badNames
}

// err returns the first error; nil if the connection is intact.
func (l *sourceConn) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// SetReadDeadline does nothing: see beginCommand.
func (l *sourceConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline ignores the given time and sets the connection's own limit.
func (l *sourceConn) SetWriteDeadline(time.Time) error {
	return l.Conn.SetWriteDeadline(time.Now().Add(l.idleTimeout))
}
