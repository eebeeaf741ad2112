// SPDX-License-Identifier: Apache-2.0

// Package smtp is the SMTP part of the load program: a client that costs little, and a sink that
// accepts everything.
package smtp

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"
)

// timeout is the limit for every exchange, so that a run always ends.
const timeout = 60 * time.Second

// Client is an SMTP session. It is not safe for concurrent use.
type Client struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

// Dial connects, sends EHLO and reads the responses.
func Dial(addr string) (*Client, error) { return DialFrom("", addr) }

// DialFrom is Dial from an address of this machine; "" lets the system choose.
func DialFrom(local, addr string) (*Client, error) {
	d := net.Dialer{Timeout: timeout}
	if local != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &Client{conn: conn, r: bufio.NewReader(conn)}
	err = c.expect(220)
	if err == nil {
		err = c.command("EHLO load.bench-sink.net\r\n", 250)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// StartTLS starts TLS and sends EHLO again.
func (c *Client) StartTLS(config *tls.Config) error {
	if err := c.command("STARTTLS\r\n", 220); err != nil {
		return err
	}
	t := tls.Client(c.conn, config)
	if err := t.Handshake(); err != nil {
		return fmt.Errorf("STARTTLS: %w", err)
	}
	c.conn = t
	c.r.Reset(t)
	return c.command("EHLO load.bench-sink.net\r\n", 250)
}

// Auth authenticates with AUTH PLAIN.
func (c *Client) Auth(user, password string) error {
	return c.command("AUTH PLAIN "+base64.StdEncoding.EncodeToString([]byte("\x00"+user+"\x00"+password))+"\r\n", 235)
}

// Send runs one pipelined transaction. The data must have CRLF line endings, including the last
// line, and no line that begins with a dot.
func (c *Client) Send(from, to string, data []byte) error {
	c.out = append(c.out[:0], "MAIL FROM:<"...)
	c.out = append(c.out, from...)
	c.out = append(c.out, ">\r\nRCPT TO:<"...)
	c.out = append(c.out, to...)
	c.out = append(c.out, ">\r\nDATA\r\n"...)
	if err := c.write(c.out); err != nil {
		return err
	}
	for _, want := range []int{250, 250, 354} {
		if err := c.expect(want); err != nil {
			return err
		}
	}
	c.out = append(append(c.out[:0], data...), ".\r\n"...)
	if err := c.write(c.out); err != nil {
		return err
	}
	return c.expect(250)
}

// Close sends QUIT and closes the connection without waiting for the response.
func (c *Client) Close() error {
	return errors.Join(c.write([]byte("QUIT\r\n")), c.conn.Close())
}

func (c *Client) command(line string, want int) error {
	if err := c.write([]byte(line)); err != nil {
		return err
	}
	return c.expect(want)
}

func (c *Client) write(p []byte) error {
	c.conn.SetDeadline(time.Now().Add(timeout))
	_, err := c.conn.Write(p)
	return err
}

// expect reads a reply of any number of lines and checks its code.
func (c *Client) expect(want int) error {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) < 4 {
			return errors.New("a reply line is too short")
		}
		if line[3] == '-' {
			continue
		}
		if code := int(line[0]-'0')*100 + int(line[1]-'0')*10 + int(line[2]-'0'); code != want {
			return fmt.Errorf("got %q instead of %d", bytes.TrimSpace(line), want)
		}
		return nil
	}
}
