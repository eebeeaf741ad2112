// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// httpConn is a minimal persistent HTTP/1.1 connection: net/http's client costs more than the
// measured work.
type httpConn struct {
	conn net.Conn
	r    *bufio.Reader
	out  []byte
}

func dialHTTP(addr string) (*httpConn, error) {
	conn, err := net.DialTimeout("tcp", addr, time.Minute)
	if err != nil {
		return nil, err
	}
	return &httpConn{conn: conn, r: bufio.NewReader(conn)}, nil
}

// do sends a request and returns the status and the response body.
func (c *httpConn) do(method, path, token string, body []byte) (status int, answer []byte, err error) {
	c.out = fmt.Appendf(c.out[:0], "%s /api/v1%s HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: https\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n", method, path, token, len(body))
	rest := body
	if len(body) < 1<<20 { // in one packet if it fits
		c.out, rest = append(c.out, body...), nil
	}
	c.conn.SetDeadline(time.Now().Add(5 * time.Minute))
	if _, err := c.conn.Write(c.out); err != nil {
		return 0, nil, err
	}
	if _, err := c.conn.Write(rest); err != nil {
		// A rejected request is answered before it is read completely.
		if status, answer, readErr := c.readResponse(); readErr == nil {
			return status, answer, nil
		}
		return 0, nil, err
	}
	return c.readResponse()
}

// readResponse reads the response.
func (c *httpConn) readResponse() (status int, answer []byte, err error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 {
		return 0, nil, errors.New("not an HTTP answer")
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length, err := c.readHeaders()
	if err != nil {
		return 0, nil, err
	}
	if length >= 0 {
		answer = make([]byte, length)
		_, err = io.ReadFull(c.r, answer)
		return status, answer, err
	}
	answer, err = c.readChunks()
	return status, answer, err
}

// readHeaders reads up to the empty line; -1 means a chunked body.
func (c *httpConn) readHeaders() (length int, err error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":"))
		switch {
		case !ok:
			return length, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		}
	}
}

func (c *httpConn) readChunks() (body []byte, err error) {
	for {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 24)
		if err != nil {
			return nil, err
		}
		chunk := make([]byte, n+2) // with its line ending
		if _, err := io.ReadFull(c.r, chunk); err != nil {
			return nil, err
		}
		if n == 0 {
			return body, nil
		}
		body = append(body, chunk[:n]...)
	}
}

func (c *httpConn) close() error { return c.conn.Close() }
