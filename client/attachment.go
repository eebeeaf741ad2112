// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Attachment is a file attached to a message. Its content is encoded while it is sent: large files
// need no memory.
type Attachment struct {
	Filename    string
	ContentType string // if empty: by the file name's extension
	ContentID   string // for images that the HTML refers to as cid:…
	Disposition string // attachment or inline; if empty: inline with a ContentID, else attachment

	// Content is read from its current position. If it is an io.Seeker, it is reset to that
	// position afterwards, and the request can be repeated. Otherwise the request is sent once,
	// unless it failed before anything was read. Content is not closed. A reader that may block
	// should stop when the context of the call ends, because the call waits for it.
	Content io.Reader
	// Open, if set, opens the content for each attempt instead; the result is closed.
	Open func() (io.ReadCloser, error)
}

// File returns an attachment that is read from a file when it is sent.
func File(path string) Attachment {
	return Attachment{Filename: filepath.Base(path), Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// Bytes returns an attachment with its content in memory.
func Bytes(filename string, content []byte) Attachment {
	return Attachment{Filename: filename, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// source opens an attachment's content.
type source struct {
	open func() (io.ReadCloser, error)
	once bool // it can be opened only once
}

func (a *Attachment) source() (*source, error) {
	if a.Open != nil {
		return &source{open: a.Open}, nil
	}
	if a.Content == nil {
		return nil, errors.New("it has neither Content nor Open")
	}
	if s, ok := a.Content.(io.Seeker); ok {
		if start, err := s.Seek(0, io.SeekCurrent); err == nil { // else it is a pipe or similar
			r := rewinder{a.Content, s, start}
			return &source{open: func() (io.ReadCloser, error) { return r, r.Close() }}, nil
		}
	}
	return &source{open: func() (io.ReadCloser, error) { return io.NopCloser(a.Content), nil }, once: true}, nil
}

// rewinder is a reader whose Close resets its position.
type rewinder struct {
	io.Reader
	s     io.Seeker
	start int64
}

func (r rewinder) Close() error {
	_, err := r.s.Seek(r.start, io.SeekStart)
	return err
}

// writer writes requests with attachments.
type writer struct {
	text  bytes.Buffer
	parts []part
	err   error
}

func (w *writer) raw(text string) { w.text.WriteString(text) }

func (w *writer) value(v any) {
	text, err := encode(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.text.Write(text)
}

// reopen removes the last bracket, so that members can follow.
func (w *writer) reopen() {
	if n := w.text.Len(); n > 0 {
		w.text.Truncate(n - 1)
	}
}

// message writes a struct with at least one required member, and its attachments.
func (w *writer) message(v any, files []Attachment) {
	w.value(v)
	if len(files) == 0 || w.err != nil {
		return
	}
	w.reopen()
	for i := range files {
		if i == 0 {
			w.raw(`,"attachments":[`)
		} else {
			w.raw(`,`)
		}
		w.attachment(i, &files[i])
	}
	w.raw(`]}`)
}

func (w *writer) attachment(i int, a *Attachment) {
	from, err := a.source()
	if err != nil {
		if w.err == nil {
			w.err = fmt.Errorf("mailstead: attachment %d: %w", i, err)
		}
		return
	}
	w.value(struct {
		Filename    string `json:"filename"`
		ContentType string `json:"content_type,omitempty"`
		ContentID   string `json:"content_id,omitempty"`
		Disposition string `json:"disposition,omitempty"`
	}{a.Filename, a.ContentType, a.ContentID, a.Disposition})
	w.reopen()
	w.raw(`,"content":"`)
	w.flush()
	w.parts = append(w.parts, part{file: from})
	w.raw(`"}`)
}

func (w *writer) flush() {
	w.parts = append(w.parts, part{text: bytes.Clone(w.text.Bytes())})
	w.text.Reset()
}

func (w *writer) body() (*body, error) {
	if w.err != nil {
		return nil, w.err
	}
	w.flush()
	b := &body{media: "application/json", size: -1, parts: w.parts}
	if len(w.parts) == 1 {
		b.size = int64(len(w.parts[0].text))
	}
	return b, nil
}
