// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"mime"
	"strings"
)

// SizedReaderAt provides the bytes of a message to write. It may be read twice.
type SizedReaderAt interface {
	io.ReaderAt
	Size() int64
}

// lineEndings describes a message's line endings.
type lineEndings struct {
	allCRLF      bool  // all lines end in CRLF, none in CR CRLF: LF alone represents them
	unterminated bool  // the last line has no line ending
	lines        int64 // number of line endings
}

// scanLineEndings reads a message once.
func scanLineEndings(t SizedReaderAt, buf []byte) (s lineEndings, err error) {
	s = lineEndings{allCRLF: true, unterminated: true}
	last, before := byte(0), byte(0) // the last two bytes before p
	for off := int64(0); off < t.Size(); {
		p := buf[:min(int64(len(buf)), t.Size()-off)]
		n, err := t.ReadAt(p, off)
		if n < len(p) {
			return s, unexpectedEOF(err)
		}
		for at := 0; ; {
			i := bytes.IndexByte(p[at:], '\n')
			if i < 0 {
				break
			}
			at += i + 1
			s.lines++
			s.allCRLF = s.allCRLF && byteAt(p, at-2, last, before) == '\r' && byteAt(p, at-3, last, before) != '\r'
		}
		before, last = byteAt(p, len(p)-2, last, before), p[len(p)-1]
		off += int64(len(p))
	}
	s.unterminated = last != '\n'
	s.allCRLF = s.allCRLF && last != '\r' // it would be lost with the LF that an mbox adds
	return s, nil
}

// byteAt returns p[i], or one of the two bytes before p.
func byteAt(p []byte, i int, last, before byte) byte {
	switch {
	case i >= 0:
		return p[i]
	case i == -1:
		return last
	}
	return before
}

func unexpectedEOF(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // what io.ReaderAt promises
		return io.ErrUnexpectedEOF
	}
	return err
}

// MboxWriter writes messages as an mboxrd file, with LF line endings and the flags in Status,
// X-Status and X-Keywords, as other programs expect. All means that the messages come from several
// folders: then X-Folder and X-Special-Use name each message's folder.
type MboxWriter struct {
	WithFolders bool

	w   *bufio.Writer
	buf []byte
	in  *bufio.Reader
}

// NewMboxWriter returns a writer to w. Call Flush at the end.
func NewMboxWriter(w io.Writer) *MboxWriter {
	return &MboxWriter{w: bufio.NewWriterSize(w, 64<<10), buf: make([]byte, 64<<10), in: bufio.NewReaderSize(nil, fragmentSize)}
}

// ReadError is the error for a message that can't be read. Nothing of it was written, and others
// may follow.
type ReadError struct{ Err error }

// Error returns the cause's text.
func (e *ReadError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReadError) Unwrap() error { return e.Err }

// Write writes a message; its Body is not used. It returns the error of w or t: a ReadError, unless
// only the second reading fails.
func (m *MboxWriter) Write(msg *Message, t SizedReaderAt) error {
	s, err := scanLineEndings(t, m.buf)
	if err != nil {
		return &ReadError{err}
	}
	m.writeHeader(msg, s)
	m.in.Reset(io.NewSectionReader(t, 0, t.Size()))
	begun := false // within a line
	for {
		line, err := m.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			if err != io.EOF { //nolint:errorlint // what io.Reader promises
				return err
			}
			break
		}
		if !begun && needsQuote(line) {
			_ = m.w.WriteByte('>') // the error persists until Flush or a later Write
		}
		whole := line[len(line)-1] == '\n'
		if s.allCRLF {
			if whole {
				line = append(bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), '\n')
			} else if line[len(line)-1] == '\r' && err == bufio.ErrBufferFull { //nolint:errorlint // what bufio promises
				_ = m.in.UnreadByte()
				line = line[:len(line)-1]
			}
		}
		begun = !whole
		if _, err := m.w.Write(line); err != nil {
			return err
		}
	}
	if s.unterminated {
		_ = m.w.WriteByte('\n')
	}
	return m.w.WriteByte('\n')
}

// Flush writes buffered data.
func (m *MboxWriter) Flush() error { return m.w.Flush() }

// needsQuote reports whether a line could be taken for the first line of a message, or for a quoted
// one. Of a line longer than a fragment, only the first fragment is checked. A fragment that may
// continue as "From " counts, so the result is the same with another ">" before it.
func needsQuote(line []byte) bool {
	rest := bytes.TrimLeft(line, ">")
	return bytes.HasPrefix(rest, []byte("From ")) || len(line) >= fragmentSize && bytes.HasPrefix([]byte("From "), rest)
}

func (m *MboxWriter) writeHeader(msg *Message, s lineEndings) {
	var b strings.Builder
	b.WriteString("From " + ownSender)
	if !s.allCRLF {
		b.WriteString(rawMark)
	}
	if s.unterminated {
		b.WriteString(unterminatedMark)
	}
	if m.WithFolders {
		b.WriteString(foldersMark)
	}
	b.WriteString(" " + formatDate(msg.Date) + "\n" + statusField)
	if msg.Flags&Seen != 0 {
		b.WriteByte('R')
	}
	b.WriteString("O\n" + xStatusField)
	for _, f := range []struct {
		flag Flags
		mail byte
	}{{Answered, 'A'}, {Flagged, 'F'}, {Deleted, 'D'}, {Draft, 'T'}} {
		if msg.Flags&f.flag != 0 {
			b.WriteByte(f.mail)
		}
	}
	b.WriteString("\n" + keywordsField + strings.Join(msg.Keywords, " ") + "\n")
	if m.WithFolders {
		b.WriteString(folderField + encodeFolderHeader(msg.Folder) + "\n" + specialField + msg.SpecialUse + "\n")
	}
	_, _ = m.w.WriteString(b.String()) // the error persists until Flush or a later Write
}

// encodeFolderHeader encodes a folder's name for a header field (RFC 2047).
func encodeFolderHeader(name string) string {
	if encoded := mime.BEncoding.Encode("utf-8", name); encoded != name {
		return encoded
	}
	if strings.TrimSpace(name) != name || strings.Contains(name, "=?") {
		return "=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(name)) + "?="
	}
	return name
}

func decodeFolderHeader(text string) string {
	if name, err := new(mime.WordDecoder).DecodeHeader(text); err == nil {
		return name
	}
	return text
}
