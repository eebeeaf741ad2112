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

// receiver is the host that the sandbox's mail goes to: the other end of a pipe. It
// speaks as much SMTP as our own client needs, one command at a time, since a pipe
// holds nothing, and takes what it is given.
type receiver struct {
	in  *bufio.Reader
	out io.Writer
	// keep stores the message whose text content is.
	keep func(content io.Reader) error
}

// serve leads conversations until the pipe is closed.
func (r *receiver) serve(conn net.Conn) error {
	defer conn.Close() //nolint:errcheck // it is a pipe
	r.in, r.out = bufio.NewReaderSize(conn, bufferSize), conn
	err := r.say("220 sandbox ESMTP Mailstead")
	for err == nil {
		var line string
		if line, err = r.in.ReadString('\n'); err != nil {
			break
		}
		switch verb, _, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " "); verb {
		case "EHLO":
			err = r.say("250-sandbox\r\n250-8BITMIME\r\n250-SMTPUTF8\r\n250-SIZE\r\n250 ENHANCEDSTATUSCODES")
		case "MAIL":
			err = r.say("250 2.1.0 Sender accepted")
		case "RCPT":
			err = r.say("250 2.1.5 Recipient accepted")
		case "RSET":
			err = r.say("250 2.0.0 Reset")
		case "DATA":
			err = r.data()
		case "QUIT":
			return r.say("221 2.0.0 Bye")
		default:
			err = r.say("502 5.5.1 The sandbox does not know this command")
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (r *receiver) data() error {
	if err := r.say("354 End with a dot on a line of its own"); err != nil {
		return err
	}
	content := &dotReader{in: r.in, begin: true}
	failed := r.keep(content)
	if _, err := io.Copy(io.Discard, content); err != nil { // what was not read
		return err
	}
	if failed != nil {
		return r.say("451 4.3.0 The sandbox could not keep the message")
	}
	return r.say("250 2.0.0 Captured in the sandbox; nothing left this machine")
}

func (r *receiver) say(line string) error {
	_, err := fmt.Fprintf(r.out, "%s\r\n", line)
	return err
}

// dotReader reads a message up to its final dot (RFC 5321 §4.5.2).
type dotReader struct {
	in    *bufio.Reader
	begin bool   // of a line
	rest  []byte // read, and not handed out
	err   error
}

// Read implements io.Reader.
func (d *dotReader) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		part, err := d.in.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			d.err = io.ErrUnexpectedEOF
			continue
		}
		if d.begin && bytes.Equal(part, []byte(".\r\n")) {
			d.err = io.EOF
			continue
		}
		if d.begin {
			part = bytes.TrimPrefix(part, []byte("."))
		}
		d.begin, d.rest = err == nil, part
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
