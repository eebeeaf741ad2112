// SPDX-License-Identifier: Apache-2.0

// Package imap is the IMAP client of the load program: it counts responses and parses almost
// nothing, so that it costs little compared with the server.
package imap

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// timeout is the limit for every exchange, so that a run always ends.
const timeout = 5 * time.Minute

// Client is an IMAP session with implicit TLS. It is not safe for concurrent use, except that
// Idle's reader and Done may run in two goroutines.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
	tag  int

	// Untagged, if set, receives the first line of each untagged response; the bytes are valid only
	// during the call.
	Untagged func(line []byte)
}

// Response is the response to a command.
type Response struct {
	Lines int   // untagged responses
	Bytes int64 // total size, including literals
	Text  string
}

// Dial connects and reads the greeting. from, if not empty, is the local address to connect from:
// servers limit connections per address.
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

// GrowBuffer gives the session a read buffer for large responses.
func (c *Client) GrowBuffer() { c.r = bufio.NewReaderSize(c.conn, 256<<10) }

// Login signs in.
func (c *Client) Login(user, password string) error {
	_, err := c.Command("LOGIN " + quote(user) + " " + quote(password))
	return err
}

// Command runs a command and reads everything up to its OK; NO and BAD are errors.
func (c *Client) Command(text string) (Response, error) {
	c.begin()
	c.out = append(append(c.out, text...), "\r\n"...)
	return c.readResponses(text)
}

// Append stores a message with a non-synchronizing literal.
func (c *Client) Append(folder string, message []byte) (Response, error) {
	c.begin()
	c.out = append(append(append(c.out, "APPEND "...), folder...), " {"...)
	c.out = append(strconv.AppendInt(c.out, int64(len(message)), 10), "+}\r\n"...)
	c.out = append(append(c.out, message...), "\r\n"...)
	return c.readResponses("APPEND")
}

// AppendAll stores messages with the same flags in one command (RFC 3502).
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

// Idle starts IDLE; NextLine reads the updates, Done ends it.
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

// NextLine reads one line with its line ending; it is valid until the next read.
func (c *Client) NextLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err == nil && len(line) < 3 {
		err = errors.New("the server sent an empty line")
	}
	return line, err
}

// Done ends Idle; the caller of NextLine reads its OK.
func (c *Client) Done() error {
	_, err := c.conn.Write([]byte("DONE\r\n"))
	return err
}

// Close closes the connection.
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

// readResponse reads one response with its literals. The text of a tagged response is added to a.
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
			return false, fmt.Errorf("within a literal: %w", err)
		}
		a.Bytes += int64(n)
	}
}

// literalSize returns the literal length at the end of a line, or -1.
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

func quote(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }
