// SPDX-License-Identifier: Apache-2.0

// Package imap is the IMAP client of the load program: it counts what comes
// and parses next to nothing, so that it costs little beside the server.
package imap

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// timeout bounds every exchange, so that a run always ends.
const timeout = 5 * time.Minute

// Client is one IMAP session with TLS from the start. It is not safe for
// concurrent use, but Idle's reader and Done may be two goroutines.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	tag  int

	// Untagged, when set, sees the first line of each untagged response; the
	// bytes are valid during the call only.
	Untagged func(line []byte)
}

// Response is what came back for a command.
type Response struct {
	Lines int   // untagged responses
	Bytes int64 // all of them, literals included
	Text  string
}

// Dial connects and reads the greeting. From, if not empty, is the local
// address to connect from: servers limit connections per address.
func Dial(addr, from string, config *tls.Config) (*Client, error) {
	d := &tls.Dialer{NetDialer: &net.Dialer{Timeout: timeout}, Config: config}
	if from != "" {
		d.NetDialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, r: bufio.NewReaderSize(conn, 4<<10)}
	c.conn.SetDeadline(time.Now().Add(timeout))
	if _, err := c.r.ReadSlice('\n'); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// GrowBuffer gives the session a read buffer for large answers.
func (c *Client) GrowBuffer() { c.r = bufio.NewReaderSize(c.conn, 256<<10) }

// Login signs in.
func (c *Client) Login(user, password string) error {
	_, err := c.Command("LOGIN " + quote(user) + " " + quote(password))
	return err
}

// Command runs one command and reads everything up to its OK; NO and BAD are
// errors.
func (c *Client) Command(text string) (Response, error) {
	c.begin()
	c.out = append(append(c.out, text...), "\r\n"...)
	return c.readResponses(text)
}

// Append stores a message by a non-synchronising literal.
func (c *Client) Append(folder string, message []byte) (Response, error) {
	c.begin()
	c.out = append(append(append(c.out, "APPEND "...), folder...), " {"...)
	c.out = append(strconv.AppendInt(c.out, int64(len(message)), 10), "+}\r\n"...)
	c.out = append(append(c.out, message...), "\r\n"...)
	return c.readResponses("APPEND")
}

// AppendAll stores messages with the same flags by one command (RFC 3502).
func (c *Client) AppendAll(folder, flags string, messages [][]byte) (Response, error) {
	c.begin()
	c.out = append(append(c.out, "APPEND "...), folder...)
	for _, m := range messages {
		c.out = append(append(append(c.out, ' '), flags...), " {"...)
		c.out = append(strconv.AppendInt(c.out, int64(len(m)), 10), "+}\r\n"...)
		c.out = append(c.out, m...)
	}
	c.out = append(c.out, "\r\n"...)
	return c.readResponses("APPEND")
}

// Idle begins to wait for changes; NextLine reads them, Done ends it.
func (c *Client) Idle() error {
	c.begin()
	c.out = append(c.out, "IDLE\r\n"...)
	if err := c.send(); err != nil {
		return err
	}
	for {
		line, err := c.NextLine()
		if err != nil {
			return err
		}
		if line[0] == '+' {
			return nil
		}
	}
}

// NextLine reads one line of the server's, its line end included; valid until
// the next read.
func (c *Client) NextLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err == nil && len(line) < 3 {
		err = errors.New("the server sent an empty line")
	}
	return line, err
}

// Done ends Idle; its OK is read by the caller of NextLine.
func (c *Client) Done() error {
	_, err := c.conn.Write([]byte("DONE\r\n"))
	return err
}

// Close ends the session at once.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) begin() {
	c.tag++
	c.out = append(strconv.AppendInt(append(c.out[:0], 'a'), int64(c.tag), 10), ' ')
}

func (c *Client) send() error {
	c.conn.SetDeadline(time.Now().Add(timeout))
	_, err := c.conn.Write(c.out)
	return err
}

func (c *Client) readResponses(what string) (Response, error) {
	var a Response
	if err := c.send(); err != nil {
		return a, err
	}
	tag := "a" + strconv.Itoa(c.tag) + " "
	for {
		tagged, err := c.readResponse(tag, &a)
		if err != nil {
			return a, fmt.Errorf("%.40s: %w", what, err)
		}
		if tagged {
			if len(a.Text) < 2 || a.Text[:2] != "OK" {
				return a, fmt.Errorf("%.40s: %s", what, a.Text)
			}
			return a, nil
		}
	}
}

// readResponse reads one response with its literals. A tagged one's text goes
// into the answer.
func (c *Client) readResponse(tag string, a *Response) (tagged bool, err error) {
	first := true
	for {
		line, err := c.r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !long {
			return false, err
		}
		if first && len(line) >= len(tag) && string(line[:len(tag)]) == tag {
			a.Text = string(bytes.TrimSpace(line[len(tag):]))
			return true, nil
		}
		if first {
			a.Lines++
			if c.Untagged != nil {
				c.Untagged(line)
			}
		}
		first = false
		a.Bytes += int64(len(line))
		if long {
			continue
		}
		n := literalSize(line)
		if n < 0 {
			return false, nil
		}
		if _, err := c.r.Discard(n); err != nil {
			return false, unexpectedEOF(err)
		}
		a.Bytes += int64(n)
	}
}

// literalSize returns the length that a line announces at its end, or -1.
func literalSize(line []byte) int {
	if !bytes.HasSuffix(line, []byte("}\r\n")) {
		return -1
	}
	open := bytes.LastIndexByte(line, '{')
	if open < 0 {
		return -1
	}
	n, err := strconv.Atoi(string(line[open+1 : len(line)-3]))
	if err != nil {
		return -1
	}
	return n
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func quote(s string) string {
	out := []byte{'"'}
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			out = append(out, '\\')
		}
		out = append(out, s[i])
	}
	return string(append(out, '"'))
}
