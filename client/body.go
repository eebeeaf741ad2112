// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// body is a request body: text, with files between that are base64-encoded while they are read. It
// serves one attempt at a time.
type body struct {
	media string
	size  int64 // -1: unknown
	parts []part
	spent bool // a file was read that can be read only once
}

// part is a piece of text or a file.
type part struct {
	text  []byte
	file  *source
	plain bool // the file is not encoded
}

// jsonBody encodes a value.
func jsonBody(v any) (*body, error) {
	text, err := encode(v)
	if err != nil {
		return nil, err
	}
	return textBody("application/json", text), nil
}

func textBody(media string, text []byte) *body {
	return &body{media: media, size: int64(len(text)), parts: []part{{text: text}}}
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("mailstead: encoding the request: %w", err)
	}
	return bytes.TrimSpace(text.Bytes()), nil
}

// repeatable reports whether the body can be sent again.
func (b *body) repeatable() bool { return b == nil || !b.spent }

// open returns the body's content from its start.
func (b *body) open() (*content, error) {
	if b == nil {
		return &content{}, nil
	}
	if b.spent {
		return nil, errors.New("a file's reader can be read once only")
	}
	return &content{body: b, rest: b.parts}, nil
}

// content is a body that net/http reads, possibly even after it has returned an error. It reads
// nothing more after end.
type content struct {
	*body
	rest  []part
	now   io.Reader // first part of rest, if opened
	close func() error

	mu      sync.Mutex
	err     error // error of a file
	reading bool
	ended   bool
	idle    chan struct{} // closed when the last Read returns; nil unless end waits
}

// reader returns the body for http.NewRequest; its Close does nothing, because end closes the
// content.
func (c *content) reader() io.Reader {
	switch {
	case c.body == nil:
		return http.NoBody
	case len(c.parts) == 1 && c.parts[0].file == nil:
		return bytes.NewReader(c.parts[0].text) // which net/http can repeat by itself
	}
	return io.NopCloser(c)
}

// Read reads the parts one after the other.
func (c *content) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.ended || c.err != nil {
		defer c.mu.Unlock()
		return 0, cmp.Or(c.err, http.ErrBodyReadAfterClose)
	}
	c.reading = true
	c.mu.Unlock()
	n, err := c.next(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if err != io.EOF {
		c.err = err
	}
	if c.ended {
		_ = c.leave() // opened only for reading
		if c.idle != nil {
			close(c.idle)
		}
	}
	return n, err
}

func (c *content) next(p []byte) (int, error) {
	for len(c.rest) > 0 {
		if c.now == nil {
			if err := c.begin(c.rest[0]); err != nil {
				return 0, err
			}
		}
		n, err := c.now.Read(p)
		switch {
		case err == io.EOF:
			c.rest = c.rest[1:]
			if err := c.leave(); err != nil {
				return n, fmt.Errorf("closing a file: %w", err)
			}
		case err != nil:
			return n, fmt.Errorf("reading a file: %w", err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

func (c *content) begin(p part) error {
	if p.file == nil {
		c.now = bytes.NewReader(p.text)
		return nil
	}
	c.spent = c.spent || p.file.once
	r, err := p.file.open()
	if err != nil {
		return fmt.Errorf("opening a file: %w", err)
	}
	c.now, c.close = r, r.Close
	if !p.plain {
		c.now = &encoder{in: r}
	}
	return nil
}

// leave closes the current part.
func (c *content) leave() error {
	closeIt := c.close
	c.now, c.close = nil, nil
	if closeIt == nil {
		return nil
	}
	return closeIt()
}

// end makes sure that nothing is read any more. It waits for a running Read, unless ctx has ended:
// then the caller wants to return at once.
func (c *content) end(ctx context.Context) {
	c.mu.Lock()
	c.ended = true
	if !c.reading {
		_ = c.leave() // opened only for reading
		c.mu.Unlock()
		return
	}
	c.idle = make(chan struct{})
	c.mu.Unlock()
	select {
	case <-c.idle:
	case <-ctx.Done():
	}
}

// failed returns the error of a file; nil if there was none so far.
func (c *content) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// encoder encodes its input in base64.
type encoder struct {
	in   io.Reader
	raw  [12 << 10]byte
	text [16 << 10]byte
	have []byte // encoded text, not yet read
	err  error
}

func (e *encoder) Read(p []byte) (int, error) {
	if len(e.have) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		n, err := io.ReadFull(e.in, e.raw[:])
		if err == io.ErrUnexpectedEOF {
			err = io.EOF
		}
		e.err = err
		if err == nil || err == io.EOF {
			base64.StdEncoding.Encode(e.text[:], e.raw[:n])
			e.have = e.text[:base64.StdEncoding.EncodedLen(n)]
		}
	}
	n := copy(p, e.have)
	e.have = e.have[n:]
	if n == 0 && len(p) > 0 {
		return 0, e.err
	}
	return n, nil
}
