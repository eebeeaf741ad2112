// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"io"
	"time"
)

// Append is APPEND. Its message has not been read: a session that takes the
// command calls Reader.Message for the bytes and then Reader.NextMessage until
// that returns nil; one that refuses it just answers, and the Reader gets past
// what the client may have sent.
type Append struct {
	Mailbox string
	Message AppendMessage
}

// Replace is REPLACE (RFC 8508), to be read on like Append.
type Replace struct {
	Message AppendMessage
	Mailbox string
	Number  uint32 // of the one message replaced; Star for the last
	UID     bool   // Number is a UID
}

// AppendMessage is what comes before a message's bytes.
type AppendMessage struct {
	Flags  Flags
	Date   time.Time // zero if not given
	Size   int64     // in bytes, at most Limits.Append
	Binary bool      // sent as literal8: may hold NUL (RFC 3516)
	UTF8   bool      // sent as UTF8 (~{…}) (RFC 9755 §4)
}

// Name returns the command's name.
func (*Append) Name() string { return "APPEND" }

// Name returns the command's name.
func (c *Replace) Name() string { return uidName(c.UID, "REPLACE") }

// literalBody is a message that the client has announced.
type literalBody struct {
	r         *Reader
	remaining int64
	isSync    bool
	isUTF8    bool // followed by a parenthesis
	requested bool // the bytes are coming
}

func (r *Reader) append() Command {
	cmd := Append{Mailbox: r.mailbox()}
	r.sp()
	cmd.Message = r.newMessage()
	return &cmd
}

func (r *Reader) replace(uid bool) Command {
	cmd := Replace{UID: uid}
	if !r.accept('*') {
		cmd.Number = r.nzNumber32()
	}
	r.sp()
	cmd.Mailbox = r.mailbox()
	r.sp()
	cmd.Message = r.newMessage()
	return &cmd
}

// newMessage takes [flags SP] [date SP] and the announcement of the literal.
func (r *Reader) newMessage() (m AppendMessage) {
	if r.peek() == '(' {
		m.Flags = r.flagList()
		r.sp()
	}
	if r.peek() == '"' {
		m.Date = r.dateTime()
		r.sp()
	}
	if r.acceptWord("UTF8") {
		m.UTF8 = true
		if !r.accept(' ') || !r.accept('(') {
			fail(errSyntax)
		}
	}
	m.Binary = r.accept('~')
	n, sync, ok := r.literalAhead()
	switch {
	case !ok || m.UTF8 && !m.Binary:
		fail(bad("APPEND ends with a message as a literal."))
	case n == 0: // so a client gives up a series of messages (RFC 3502 §6.3.11)
		fail(newError(No, "", "A message cannot be empty."))
	case n > r.Limits.Append:
		fail(newError(No, CodeTooBig, "The message is larger than this server takes."))
	}
	m.Size = n
	r.pos = len(r.line)
	r.message = &literalBody{r: r, remaining: n, isSync: sync, isUTF8: m.UTF8}
	return m
}

// Message returns the bytes of the message that Append, Replace or
// NextMessage has announced, exactly as many as its Size, asking the client to
// send them if it waits. The bytes may hold NUL and any line ends. A
// connection that breaks gives io.ErrUnexpectedEOF or the connection's error.
func (r *Reader) Message() (io.Reader, error) {
	if r.message == nil {
		return nil, bad("No message is due.")
	}
	if !r.message.requested {
		r.message.requested = true
		if r.message.isSync {
			if err := r.continueRequest("Go on."); err != nil {
				return nil, err
			}
		}
	}
	return r.message, nil
}

// NextMessage ends a message that has been read. It returns nil at the end of
// the command, else what announces the next message (MULTIAPPEND, RFC 3502).
// With a *Error the whole command is refused and nothing of it may be kept.
func (r *Reader) NextMessage() (*AppendMessage, error) {
	b := r.message
	if b == nil || !b.requested {
		return nil, bad("No message has been read.")
	}
	r.message = nil
	r.lineLeft, r.literalLeft = r.Limits.Line, r.Limits.Literal
	m, err := r.nextMessage(b)
	if err != nil {
		r.skipRest, r.message = true, nil
	}
	return m, err
}

func (r *Reader) nextMessage(b *literalBody) (m *AppendMessage, err error) {
	defer catch(&err)
	check(b.discard())
	check(r.nextLine())
	if b.isUTF8 {
		r.expect(')')
	}
	if r.pos == len(r.line) {
		return nil, nil
	}
	r.sp()
	next := r.newMessage()
	return &next, nil
}

// Read reads the message's bytes.
func (b *literalBody) Read(p []byte) (int, error) {
	if b.remaining == 0 {
		return 0, io.EOF
	}
	n, err := b.r.br.Read(p[:min(int64(len(p)), b.remaining)])
	b.remaining -= int64(n)
	return n, unexpectedEOF(err)
}

// discard reads what the session has left unread.
func (b *literalBody) discard() error {
	n, err := io.CopyN(io.Discard, b.r.br, b.remaining)
	b.remaining -= n
	return unexpectedEOF(err)
}
