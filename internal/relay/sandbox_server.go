// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// sandboxServer is the SMTP server that receives the sandbox's mail, at the other end of a pipe. It
// implements only what our own client needs, one command at a time since a pipe has no buffer, and
// accepts everything.
type sandboxServer struct {
	in  *bufio.Reader
	out io.Writer
	// store stores a message with that content.
	store func(content io.Reader) error
}

// serve serves one SMTP session until the client quits or closes the pipe.
func (r *sandboxServer) serve(conn net.Conn) error {
	defer conn.Close() //nolint:errcheck // it is a pipe
	r.in, r.out = bufio.NewReaderSize(conn, bufferSize), conn
	err := r.reply("220 sandbox ESMTP Mailstead")
	for err == nil {
		var line string
		if line, err = r.in.ReadString('\n'); err != nil {
			break
		}
		switch verb, _, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " "); verb {
		case "EHLO":
			err = r.reply("250-sandbox\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-SIZE\r\n250 ENHANCEDSTATUSCODES")
		case "MAIL":
			err = r.reply("250 2.1.0 Sender accepted")
		case "RCPT":
			err = r.reply("250 2.1.5 Recipient accepted")
		case "RSET":
			err = r.reply("250 2.0.0 Reset")
		case "DATA":
			err = r.data()
		case "QUIT":
			return r.reply("221 2.0.0 Bye")
		default:
			err = r.reply("502 5.5.1 The sandbox does not know this command")
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (r *sandboxServer) data() error {
	if err := r.reply("354 End with a dot on a line of its own"); err != nil {
		return err
	}
	content := &dotReader{in: r.in, lineStart: true}
	failed := r.store(content)
	if _, err := io.Copy(io.Discard, content); err != nil { // skip what store did not read
		return err
	}
	if failed != nil {
		return r.reply("451 4.3.0 The sandbox could not keep the message")
	}
	return r.reply("250 2.0.0 Captured in the sandbox; nothing left this machine")
}

func (r *sandboxServer) reply(line string) error {
	_, err := fmt.Fprintf(r.out, "%s\r\n", line)
	return err
}

// dotReader reads a message up to its final dot (RFC 5321 §4.5.2).
type dotReader struct {
	in        *bufio.Reader
	lineStart bool   // at the start of a line
	unread    []byte // read but not yet returned
	err       error
}

// Read implements io.Reader.
func (d *dotReader) Read(p []byte) (int, error) {
	for len(d.unread) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		part, err := d.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			d.err = io.ErrUnexpectedEOF
			continue
		}
		if d.lineStart && bytes.Equal(part, []byte(".\r\n")) {
			d.err = io.EOF
			continue
		}
		if d.lineStart {
			part = bytes.TrimPrefix(part, []byte("."))
		}
		d.lineStart, d.unread = err == nil, part
	}
	n := copy(p, d.unread)
	d.unread = d.unread[n:]
	return n, nil
}
