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
	// maxResponse bounds a response, in bytes, but for what a search has found and the
	// texts of messages; maxLiterals is how many literals it may have.
	maxResponse, maxLiterals = 256 << 10, 20
	// maxRanges is how many ranges of UIDs a search may find.
	maxRanges = 2 << 20
)

// sourceConn is the connection to a source, whose program is a stranger's. It bounds
// how much may come in answer to a command, so that what a client library keeps
// in memory is bounded too, and how long it may say nothing. The client's own
// deadlines are not heeded.
type sourceConn struct {
	net.Conn
	idleTimeout time.Duration

	mu         sync.Mutex
	budget     int64  // bytes that may still come
	awaiting   bool   // an answer is waited for
	readBuf    []byte // what is read before the connection
	cause      error  // why it broke
	pendingErr error  // why nothing comes behind first

	// Responses are read one by one, but for the texts of messages: see screen.
	hideRev2   bool                   // see rewrite
	rev2       bool                   // there was something to hide
	partial    []byte                 // of a response
	scanned    int                    // up to where it was looked for the end of a line
	literals   int                    // literals that part has
	inSearch   bool                   // part goes on with what a search has found
	searchDone bool                   // what follows there is no UID
	textLeft   int64                  // so much of a message is still to come
	foundUIDs  []uidRange             // by a search
	badNames   []string               // names of folders that can't be decoded, as they are shown
	openFetch  *fetchResponse         // the FETCH response that goes on behind the text of a message
	lateUIDs   bool                   // a UID came behind the text of its message
	onFetch    func(a *fetchResponse) // is told each FETCH response
}

// searchPattern is how an answer to a search begins.
var searchPattern = regexp.MustCompile(`(?i)^\* (SEARCH|ESEARCH( \(TAG [^)]*\))?( UID)?)\b`)

// uidRange are UIDs that were found.
type uidRange struct{ low, high uint32 }

// process passes on whole responses, as rewrite makes them, and the texts of messages
// as they come. What a search has found is kept from the client library: to put a
// million UIDs in order takes it many minutes.
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
			l.scanned = len(l.partial) // a line that comes byte by byte must not be looked through each time
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

// nextResponse goes on with the response behind the one that ends there.
func (l *sourceConn) nextResponse(end int) { l.partial, l.scanned, l.literals = l.partial[end:], 0, 0 }

// handlePartial looks at a response whose end has not come. It is not kept once it is too
// long; what a search has found is noted piece by piece.
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

// parseSearch notes what a search has found.
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

// addRange notes UIDs that were found, with those before if they follow them.
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

// stopHiding ends the hiding, and reports whether IMAP4rev2 was there.
func (l *sourceConn) stopHiding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hideRev2 = false
	return l.rev2
}

// beginCommand says that a command is sent now, for which so many bytes may come.
func (l *sourceConn) beginCommand(budget int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget, l.awaiting, l.foundUIDs, l.badNames, l.onFetch = budget, true, nil, nil, nil
	_ = l.Conn.SetDeadline(time.Now().Add(l.idleTimeout))
}

// limitIdle bounds how long the source may say nothing from now on.
func (l *sourceConn) limitIdle(patience time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idleTimeout = min(l.idleTimeout, patience)
}

// endCommand says that the command is answered. Nobody waits for anything.
func (l *sourceConn) endCommand() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting = false
	_ = l.Conn.SetDeadline(time.Time{})
}

// setFetchHandler has hear called with each FETCH response until the next command. It is called
// while the source is read, and must be quick.
func (l *sourceConn) setFetchHandler(hear func(a *fetchResponse)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFetch = hear
}

// hasLateUIDs reports whether a UID came behind the text of its message.
func (l *sourceConn) hasLateUIDs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lateUIDs
}

// addBudget says that n bytes have gone on to where they are kept.
func (l *sourceConn) addBudget(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.budget += n
}

// Read reads what comes.
func (l *sourceConn) Read(p []byte) (int, error) {
	for { // a source may send any number of pieces before there is a line to pass on
		n, more, err := l.readOnce(p)
		if !more {
			return n, err
		}
	}
}

// readOnce is Read, but for what it takes in without passing on: then there is more
// to read.
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
		// An end within a message must not pass for the message's end.
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

// recordError notes why the line broke first.
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

// searchResults returns what was found since the last command was sent.
func (l *sourceConn) searchResults() []uidRange {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foundUIDs
}

// undecodableNames returns the names that could not be decoded.
func (l *sourceConn) undecodableNames() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.badNames
}

// err returns why the line broke; nil if it did not.
func (l *sourceConn) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// SetReadDeadline does nothing: see ask.
func (l *sourceConn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline gives what is written the line's own time.
func (l *sourceConn) SetWriteDeadline(time.Time) error {
	return l.Conn.SetWriteDeadline(time.Now().Add(l.idleTimeout))
}
