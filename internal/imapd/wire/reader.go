// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxIdleLine is the largest line buffer that an idle Reader holds on to.
const maxIdleLine = 4 << 10

var (
	errLineTooLong  = newError(Bad, CodeTooBig, "The command line is too long.")
	errDiscardLimit = newError(Bye, CodeTooBig, "That is more than this server will read past.")
)

// Reader reads the commands of one client. The cursor works on one line at a
// time: a literal is asked for only once everything before it has been found
// right, so that a refused command never leaves a literal in doubt.
type Reader struct {
	// Limits may be changed between commands; NewReader sets LimitsBeforeLogin.
	Limits Limits
	// UTF8 says that mailbox names come in UTF-8 instead of modified UTF-7, also
	// those that might be either, as after ENABLE UTF8=ACCEPT (RFC 9755) or IMAP4rev2 (RFC 9051 §5.1).
	UTF8 bool
	// NoCharset says that a search may not name its charset, as after ENABLE
	// UTF8=ACCEPT (RFC 9755 §3). SORT and THREAD, which must, may.
	NoCharset bool

	continueRequest func(text string) error // sends "+ text" and flushes
	br              *bufio.Reader
	line            []byte       // the current line without its end; aliases br or long
	pos             int          // cursor in line
	lineEnd         []byte       // end of the line as it came, which may announce a literal
	longLine        []byte       // holds a line longer than br's buffer
	skipRest        bool         // the command failed: its rest must be skipped
	savesResult     bool         // the command is to save its result (RFC 9051 §6.4.4.1)
	message         *literalBody // APPEND's message, while it is due

	lineLeft    int
	literalLeft int
	discardLeft int64
}

// NewReader returns a Reader on br. It calls ask when the client must be told
// to go on with a synchronising literal; ask sends a continuation request and
// flushes.
func NewReader(br *bufio.Reader, ask func(text string) error) *Reader {
	return &Reader{Limits: LimitsBeforeLogin(), br: br, continueRequest: ask}
}

// Reset goes on with another stream (STARTTLS, COMPRESS). What the old one
// still held is forgotten; the caller refuses STARTTLS if Buffered is not 0.
func (r *Reader) Reset(br *bufio.Reader) {
	r.br, r.message, r.skipRest = br, nil, false
	r.resetLine()
}

// Buffered returns how many bytes the client has sent ahead, as far as they
// have been received: a pipelining client's answers may wait for one flush.
func (r *Reader) Buffered() int { return r.br.Buffered() }

// Skip gets past what the last command left unread, as ReadCommand does
// before it reads the next.
func (r *Reader) Skip() error { return r.skipPrevious() }

// Await waits, after Skip, until the client has sent something. It takes none
// of it, so that nothing is lost when the stream's read is interrupted: after
// an error of the stream it may be called again.
func (r *Reader) Await() error {
	_, err := r.br.Peek(1)
	return err
}

// ReadCommand reads the next command, first getting past what the last one
// left unread. With a *Error the tag is empty if the client's was unreadable
// (answer with "*"). io.EOF means that the client left between commands.
func (r *Reader) ReadCommand() (tag string, cmd Command, err error) {
	if err := r.skipPrevious(); err != nil {
		return "", nil, err
	}
	r.lineLeft, r.literalLeft, r.discardLeft, r.savesResult = r.Limits.Line, r.Limits.Literal, r.Limits.Discard, false
	lineErr := r.readLine()
	if lineErr != nil && !isRecoverable(lineErr) {
		return "", nil, lineErr
	}
	if tag, cmd, err = r.parseLine(lineErr); err == nil {
		return tag, cmd, nil
	}
	if lineErr != nil {
		err = lineErr
	}
	r.skipRest, r.message = true, nil
	if e, ok := err.(*Error); ok && e.Status == No && r.savesResult { // a BAD leaves alone what was saved before (RFC 5182 §2.1)
		unsaving := *e
		unsaving.ClearsSaved = true
		err = &unsaving
	}
	if !isRecoverable(err) && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return tag, nil, err
}

// parseLine parses the line that was read with lineErr. That leaves only its tag to be read.
func (r *Reader) parseLine(lineErr error) (tag string, cmd Command, err error) {
	defer catch(&err)
	tag = r.tag()
	check(lineErr)
	cmd = r.command()
	if r.message == nil && r.pos < len(r.line) {
		fail(bad("The command has more arguments than it takes."))
	}
	return tag, cmd, nil
}

// readNonCommand reads one line that is no command: the answer to a challenge, DONE.
func (r *Reader) readNonCommand() ([]byte, error) {
	if err := r.skipPrevious(); err != nil {
		return nil, err
	}
	r.lineLeft, r.discardLeft = r.Limits.Line, r.Limits.Discard
	if err := r.readLine(); err != nil {
		r.skipRest = isRecoverable(err)
		return nil, err
	}
	return r.line, nil
}

// skipPrevious gets past what is left of the last command.
func (r *Reader) skipPrevious() error {
	b, refused := r.message, r.skipRest
	r.message, r.skipRest = nil, false
	var err error
	switch {
	case b != nil && b.requested:
		// At most Limits.Append bytes, which the client was allowed to send.
		if err = b.discard(); err == nil {
			err = r.nextLine()
		}
		if err == nil || isRecoverable(err) {
			err = r.skip()
		}
	case b != nil || refused:
		err = r.skip()
	}
	r.resetLine()
	return err
}

func (r *Reader) resetLine() {
	r.line, r.lineEnd, r.pos = nil, nil, 0
	if cap(r.longLine) > maxIdleLine {
		r.longLine = nil
	}
}

// skip reads past the rest of a refused command: literals that the client has
// sent unasked and the lines after them. A synchronising literal that was
// announced is not sent, as nobody asked for it (RFC 7888 §4).
func (r *Reader) skip() error {
	for {
		n, sync, ok := parseLiteral(r.lineEnd)
		if !ok || sync {
			return nil
		}
		if err := r.discard(n); err != nil {
			return err
		}
		if err := r.nextLine(); err != nil && !isRecoverable(err) {
			return err
		}
		if r.discardLeft -= int64(len(r.line)); r.discardLeft < 0 {
			return errDiscardLimit
		}
	}
}

// discard throws n bytes away, within the limit per command.
func (r *Reader) discard(n int64) error {
	if n > r.discardLeft {
		return errDiscardLimit
	}
	r.discardLeft -= n
	for n > 0 {
		step, err := r.br.Discard(int(min(n, 1<<30)))
		if err != nil {
			return unexpectedEOF(err)
		}
		n -= int64(step)
	}
	return nil
}

// nextLine reads the line after a literal.
func (r *Reader) nextLine() error {
	err := r.readLine()
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readLine makes the next line the current one. A line feed ends a line even
// without its carriage return, so that such a line is refused alone and at
// once instead of swallowing the next.
func (r *Reader) readLine() error {
	r.pos, r.line, r.lineEnd = 0, nil, nil
	b, err := r.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		b, err = r.readLong(b)
	}
	if err != nil {
		if len(b) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if r.lineEnd == nil && len(b) > r.lineLeft {
		r.discardLeft -= int64(len(b))
		r.lineEnd = trimEOL(b)
		b = b[:r.lineLeft]
	}
	if r.lineEnd != nil { // longer than the limit: only its head is kept
		r.line = b
		r.lineLeft = 0
		return errLineTooLong
	}
	r.lineLeft -= len(b)
	r.line = trimEOL(b)
	r.lineEnd = r.line
	switch {
	case len(r.line)+2 != len(b):
		return bad("A line must end with CR LF.")
	case bytes.IndexByte(r.line, 0) >= 0:
		return bad("A command cannot hold NUL.")
	case bytes.IndexByte(r.line, '\r') >= 0:
		return bad("A command cannot hold a bare CR.")
	}
	return nil
}

// readLong collects a line that br cannot hold. Past the limit it keeps the
// head, for the tag, and in r.tail the end, which may announce a literal.
func (r *Reader) readLong(b []byte) ([]byte, error) {
	r.longLine = append(r.longLine[:0], b...)
	var over, end []byte
	for {
		b, err := r.br.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return r.longLine, err
		}
		if over == nil && len(r.longLine)+len(b) > r.lineLeft {
			over = r.longLine
			end = append(end, lineSuffix(r.longLine)...)
		}
		if over == nil {
			r.longLine = append(r.longLine, b...)
		} else {
			end = append(end, b...)
			end = append(end[:0], lineSuffix(end)...)
			if r.discardLeft -= int64(len(b)); r.discardLeft < 0 {
				return nil, errDiscardLimit
			}
		}
		if err == nil {
			break
		}
	}
	if over != nil {
		r.lineEnd = trimEOL(end)
		return over[:min(len(over), max(r.lineLeft, 0))], nil
	}
	return r.longLine, nil
}

// lineSuffix returns enough of b's end to hold any literal's announcement.
func lineSuffix(b []byte) []byte { return b[max(0, len(b)-64):] }

// trimEOL returns a non-nil b without its CR LF or LF.
func trimEOL(b []byte) []byte {
	b = b[:len(b)-1]
	if n := len(b); n > 0 && b[n-1] == '\r' {
		b = b[:n-1]
	}
	return b
}

// parseLiteral reports the literal that the end of a line announces: {n}, {n+}
// (RFC 7888), either after ~ (RFC 3516). A size too large to hold saturates.
func parseLiteral(line []byte) (n int64, sync, ok bool) {
	end := len(line)
	if end < 3 || line[end-1] != '}' {
		return 0, false, false
	}
	end--
	sync = true
	if line[end-1] == '+' {
		sync = false
		end--
	}
	start := end
	for start > 0 && isDigit(line[start-1]) {
		start--
	}
	if start == end || start == 0 || line[start-1] != '{' {
		return 0, false, false
	}
	for _, c := range line[start:end] {
		if n > 1<<58 {
			break
		}
		n = n*10 + int64(c-'0')
	}
	return n, sync, true
}

// isRecoverable reports whether err is an answer to the client after which the
// connection lives on.
func isRecoverable(err error) bool {
	e, ok := err.(*Error)
	return ok && e.Status != Bye
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
