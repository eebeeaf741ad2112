// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mailstead/mailstead/internal/fault"
)

// A send may carry 34 MB of base64 in its attachments. Decoded as ordinary JSON, each string would
// be in memory several times. Therefore an extractor reads the body first. It copies everything
// except the content of attachments, which it decodes into a sink and replaces by a number. The
// remaining text is small; the JSON decoder validates it strictly. The extractor only needs to find
// the attachments.

// bodyLimits are the limits of a body that is read as a stream.
type bodyLimits struct {
	maxBytes     int64  // bytes in total
	maxRest      int    // bytes without the content of attachments
	maxValues    int    // JSON values
	maxFaults    int    // reported faults about types
	sendsField   string // name of the member that holds the sends; "" if the body is one send
	contentField string // another member that is decoded like an attachment's content; "" for none
	// reserve reserves memory, reserveStepBytes at a time, before the rest exceeds freeBodyBytes.
	// If it is nil, only maxRest limits the rest.
	reserve func(n int) error
}

// attachmentExtractor reads a JSON text in one pass.
type attachmentExtractor struct {
	bodyLimits
	in  *bufio.Reader
	out []byte
	// newSink returns the writer for the decoded content of the next attachment.
	newSink      func() io.Writer
	path         []pathStep // path to the current value
	contentCount int
	valueCount   int // JSON values so far
	reserved     int // bytes of out covered by reserve and freeBodyBytes
	faults       fault.FieldErrors
}

// pathStep is a step in the path to a JSON value: the name of a member or the index of an element.
type pathStep struct {
	name  string
	index int // -1 for a member
}

const (
	maxNameBytes   = 4 << 10
	readAheadBytes = 16 << 10 // size of the read buffer
)

// extractAttachments returns the JSON text of r, with the content of each attachment replaced by
// its number. It writes the decoded contents to sinks. bad lists contents that are not valid
// base64. The caller must validate the text with decode; its content members are numbers, or are
// listed in bad. size is the length of the text, or -1 if unknown.
func extractAttachments(r io.Reader, size int64, sink func() io.Writer, b bodyLimits) (rest []byte, bad fault.FieldErrors, err error) {
	if size < 0 || size > readAheadBytes {
		size = readAheadBytes
	}
	x := &attachmentExtractor{in: bufio.NewReaderSize(r, int(size)), out: make([]byte, 0, size), bodyLimits: b, newSink: sink, reserved: freeBodyBytes}
	err = x.value()
	if err == nil {
		// The decoder rejects data after the value.
		err = x.copySpace()
		if b, end := x.in.ReadByte(); err == nil && end == nil {
			err = x.putByte(b)
		}
	}
	if err == io.EOF { //nolint:errorlint // of our own reader
		err = unexpectedEnd(err)
	}
	return x.out, x.faults, err
}

func (x *attachmentExtractor) addFault(code, message string) {
	if len(x.faults) < x.maxFaults {
		x.faults.Add(x.fieldPath(), code, "%s", message)
	}
}

// fieldPath returns the path as problems show it: attachments[0].content.
func (x *attachmentExtractor) fieldPath() string {
	var b strings.Builder
	for _, s := range x.path {
		switch {
		case s.index >= 0:
			fmt.Fprintf(&b, "[%d]", s.index)
		case b.Len() == 0:
			b.WriteString(cleanName(s.name))
		default:
			b.WriteString("." + cleanName(s.name))
		}
	}
	return b.String()
}

// atContent reports whether the path leads to the content of an attachment.
func (x *attachmentExtractor) atContent() bool {
	path := x.path
	if x.contentField != "" && len(path) == 1 && path[0] == (pathStep{x.contentField, -1}) {
		return true
	}
	if x.sendsField != "" {
		if len(path) != 5 || path[0] != (pathStep{x.sendsField, -1}) || path[1].index < 0 {
			return false
		}
		path = path[2:]
	}
	return len(path) == 3 && path[0] == pathStep{"attachments", -1} && path[1].index >= 0 && path[2] == pathStep{"content", -1}
}

func (x *attachmentExtractor) putByte(b byte) error {
	if err := x.grow(1); err != nil {
		return err
	}
	x.out = append(x.out, b)
	return nil
}

// grow ensures capacity for n more bytes, within the limits. It doubles the capacity: append's
// smaller steps would leave garbage of four times the final size.
func (x *attachmentExtractor) grow(n int) error {
	if len(x.out)+n > x.maxRest {
		return fault.New(fault.TooLarge, "body_too_large", "Without attachments the request may have %d bytes.", x.maxRest)
	}
	for x.reserve != nil && len(x.out)+n > x.reserved {
		if err := x.reserve(reserveStepBytes); err != nil {
			return err
		}
		x.reserved += reserveStepBytes
	}
	if need := len(x.out) + n; need > cap(x.out) {
		x.out = append(make([]byte, 0, max(need, min(2*cap(x.out), x.maxRest))), x.out...)
	}
	return nil
}

// copySpace copies white space.
func (x *attachmentExtractor) copySpace() error {
	for {
		b, err := x.in.ReadByte()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		switch b {
		case ' ', '\t', '\r', '\n':
		default:
			return x.in.UnreadByte()
		}
		if err := x.putByte(b); err != nil {
			return err
		}
	}
}

// peekNext copies white space and returns the byte after it without consuming it.
func (x *attachmentExtractor) peekNext() (byte, error) {
	if err := x.copySpace(); err != nil {
		return 0, err
	}
	b, err := x.in.Peek(1)
	if err != nil {
		return 0, err
	}
	return b[0], nil
}

func (x *attachmentExtractor) value() error {
	if x.valueCount++; x.valueCount > x.maxValues {
		return tooManyValues(x.maxValues)
	}
	b, err := x.peekNext()
	if err != nil {
		return err
	}
	if x.atContent() {
		switch b {
		case '"':
			return x.decodeContent()
		case 'n':
			x.addFault("required", "Give the content in base64.")
		default:
			x.addFault("wrong_type", "The content must be a string, in base64.")
		}
	}
	switch b {
	case '{':
		return x.object()
	case '[':
		return x.array()
	case '"':
		return x.copyString()
	}
	return x.copyScalar()
}

// copyScalar copies a number, true, false, null, or invalid text.
func (x *attachmentExtractor) copyScalar() error {
	for n := 0; ; n++ {
		b, err := x.in.ReadByte()
		if err == io.EOF && n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		switch b {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			if n == 0 {
				return invalidJSON("A value is missing.")
			}
			return x.in.UnreadByte()
		}
		if n > 400 {
			return invalidJSON("This is no JSON, or a number is too long.")
		}
		if err := x.putByte(b); err != nil {
			return err
		}
	}
}

func (x *attachmentExtractor) push(s pathStep) error {
	if len(x.path) >= maxDepth {
		return invalidJSON("The JSON is nested more than %d levels deep.", maxDepth)
	}
	x.path = append(x.path, s)
	return nil
}

func (x *attachmentExtractor) pop() { x.path = x.path[:len(x.path)-1] }

func (x *attachmentExtractor) object() error {
	return x.copyElements('}', func(int) error {
		if b, err := x.peekNext(); err != nil {
			return err
		} else if b != '"' {
			return invalidJSON("The name of a member is missing.")
		}
		start := len(x.out)
		if err := x.copyString(); err != nil {
			return err
		}
		if len(x.out)-start > maxNameBytes {
			return invalidJSON("The name of a member is too long.")
		}
		// Names are compared after unescaping. The decoder rejects an invalid name.
		name, _ := jsontext.AppendUnquote(nil, x.out[start:])
		if b, err := x.peekNext(); err != nil {
			return err
		} else if b != ':' {
			return invalidJSON("A colon is missing.")
		}
		if err := x.copyByte(); err != nil {
			return err
		}
		if err := x.push(pathStep{string(name), -1}); err != nil {
			return err
		}
		defer x.pop()
		return x.value()
	})
}

func (x *attachmentExtractor) array() error {
	return x.copyElements(']', func(i int) error {
		if err := x.push(pathStep{"", i}); err != nil {
			return err
		}
		defer x.pop()
		return x.value()
	})
}

func (x *attachmentExtractor) copyByte() error {
	b, err := x.in.ReadByte()
	if err != nil {
		return err
	}
	return x.putByte(b)
}

// copyElements copies the elements between brackets.
func (x *attachmentExtractor) copyElements(end byte, element func(i int) error) error {
	if err := x.copyByte(); err != nil {
		return err
	}
	if b, err := x.peekNext(); err != nil {
		return err
	} else if b == end {
		return x.copyByte()
	}
	for i := 0; ; i++ {
		if err := element(i); err != nil {
			return err
		}
		b, err := x.peekNext()
		if err != nil {
			return err
		}
		if b != ',' && b != end {
			return invalidJSON("A comma or closing bracket is missing.")
		}
		if err := x.copyByte(); err != nil {
			return err
		}
		if b == end {
			return nil
		}
	}
}

// copyString copies a string unchanged.
func (x *attachmentExtractor) copyString() error {
	if err := x.copyByte(); err != nil { // the opening quote
		return err
	}
	for {
		if _, err := x.in.Peek(1); err != nil {
			return err
		}
		chunk, _ := x.in.Peek(x.in.Buffered())
		n := bytes.IndexByte(chunk, '"')
		if n < 0 {
			n = len(chunk)
		}
		if escape := bytes.IndexByte(chunk[:n], '\\'); escape >= 0 {
			n = escape
		}
		if err := x.grow(n); err != nil {
			return err
		}
		x.out = append(x.out, chunk[:n]...)
		end := n < len(chunk) && chunk[n] == '"'
		if _, err := x.in.Discard(n); err != nil {
			return err
		}
		if n == len(chunk) {
			continue
		}
		if err := x.copyByte(); err != nil || end {
			return err
		}
		if err := x.copyByte(); err != nil { // the escaped character
			return err
		}
	}
}

// decodeContent decodes the next string into the next sink.
func (x *attachmentExtractor) decodeContent() error {
	if _, err := x.in.Discard(1); err != nil { // the opening quote
		return err
	}
	s := &jsonStringReader{in: x.in}
	good, err := decodeBase64(x.newSink(), s)
	if err != nil {
		return err
	}
	if !good {
		x.addFault("invalid_base64", "The content must be base64 with its padding (RFC 4648 section 4).")
	}
	for _, b := range strconv.AppendInt(nil, int64(x.contentCount), 10) {
		if err := x.putByte(b); err != nil {
			return err
		}
	}
	x.contentCount++
	return nil
}

// decodeBase64 decodes s to its end and reports whether it was base64.
func decodeBase64(w io.Writer, s *jsonStringReader) (good bool, err error) {
	var text [16 << 10]byte
	var plain [12 << 10]byte
	have, padded := 0, false
	for good = true; ; {
		n, err := s.Read(text[have:])
		if err != nil && err != io.EOF {
			return false, err
		}
		have += n
		if have == len(text) || err == io.EOF {
			whole := have &^ 3
			decoded, bad := base64.StdEncoding.Decode(plain[:], text[:whole])
			// Padding ends the content; nothing may follow.
			good = good && bad == nil && (!padded || whole == 0)
			padded = padded || whole > 0 && text[whole-1] == '='
			if good {
				if _, err := w.Write(plain[:decoded]); err != nil {
					return false, err
				}
			}
			have = copy(text[:], text[whole:have])
		}
		if err == io.EOF {
			return good && have == 0, nil
		}
	}
}

// jsonStringReader reads a JSON string up to its closing quote. It skips the escaped line breaks of
// wrapped base64.
type jsonStringReader struct {
	in   *bufio.Reader
	done bool
}

func (s *jsonStringReader) Read(p []byte) (n int, err error) {
	for n < len(p) && !s.done {
		if s.in.Buffered() == 0 && n > 0 {
			return n, nil
		}
		if _, err := s.in.Peek(1); err != nil {
			return n, unexpectedEnd(err)
		}
		chunk, _ := s.in.Peek(min(len(p)-n, s.in.Buffered()))
		plain := bytes.IndexByte(chunk, '"')
		if plain < 0 {
			plain = len(chunk)
		}
		if i := bytes.IndexAny(chunk[:plain], "\\\r\n"); i >= 0 {
			plain = i
		}
		n += copy(p[n:], chunk[:plain])
		if plain == len(chunk) {
			_, err = s.in.Discard(plain)
		} else {
			n, err = s.readSpecial(p, n, plain)
		}
		if err != nil {
			return n, err
		}
	}
	if s.done && n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// readSpecial handles the byte after plain characters: the closing quote, a line break or an
// escape.
func (s *jsonStringReader) readSpecial(p []byte, n, plain int) (int, error) {
	if _, err := s.in.Discard(plain); err != nil {
		return n, err
	}
	b, err := s.in.ReadByte()
	if err != nil {
		return n, err
	}
	switch b {
	case '"':
		s.done = true
	case '\r', '\n':
		return n, invalidJSON("A string holds a line break; write it as \\n.")
	case '\\':
		c, err := s.readEscape()
		if err != nil {
			return n, err
		}
		if c != '\n' {
			p[n] = c
			n++
		}
	}
	return n, nil
}

func unexpectedEnd(err error) error {
	if err == io.EOF { //nolint:errorlint // of our own reader
		return invalidJSON("The JSON ends too early.")
	}
	return err
}

// readEscape reads the rest of an escape sequence. Base64 may contain \/ \n \r and characters
// written as \u00XX. Any other escape becomes a byte that base64 rejects.
func (s *jsonStringReader) readEscape() (byte, error) {
	b, err := s.in.ReadByte()
	if err != nil {
		return 0, unexpectedEnd(err)
	}
	switch b {
	case '/':
		return '/', nil
	case 'n', 'r':
		return '\n', nil
	case 'u':
		var hex [4]byte
		if _, err := io.ReadFull(s.in, hex[:]); err != nil {
			return 0, unexpectedEnd(io.EOF)
		}
		if v, err := strconv.ParseUint(string(hex[:]), 16, 16); err == nil && v < 0x80 && v != '\r' {
			return byte(v), nil
		}
	}
	return 0xff, nil
}
