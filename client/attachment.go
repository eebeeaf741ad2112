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

// Attachment is a file that goes with a message. Its content is encoded and
// sent as it is read: however large, it doesn't stand in memory.
type Attachment struct {
	Filename    string
	ContentType string // by the name's extension if empty
	ContentID   string // for images that the HTML shows as cid:…
	Disposition string // attachment or inline; inline with a ContentID, else attachment, if empty

	// Content is read from where it stands. If it is an io.Seeker it is put
	// back there afterwards, and the request can be repeated; otherwise it is
	// made once, unless it failed before anything was read. It is not closed. One that may block for long should
	// end with the context of the call, which waits for it.
	Content io.Reader
	// Open is asked for the content instead, if it is set, for each attempt;
	// what it returns is closed.
	Open func() (io.ReadCloser, error)
}

// File is an attachment that is read from a file when it is sent.
func File(path string) Attachment {
	return Attachment{Filename: filepath.Base(path), Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// Bytes is an attachment with a content in memory.
func Bytes(filename string, content []byte) Attachment {
	return Attachment{Filename: filename, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }}
}

// source is where an attachment's content comes from.
type source struct {
	open func() (io.ReadCloser, error)
	once bool // it can be opened a single time
}

func (a *Attachment) source() (*source, error) {
	if a.Open != nil {
		return &source{open: a.Open}, nil
	}
	if a.Content == nil {
		return nil, errors.New("it has neither Content nor Open")
	}
	if s, ok := a.Content.(io.Seeker); ok {
		if start, err := s.Seek(0, io.SeekCurrent); err == nil { // else it is a pipe, or the like
			r := rewinder{a.Content, s, start}
			return &source{open: func() (io.ReadCloser, error) { return r, r.Close() }}, nil
		}
	}
	return &source{open: func() (io.ReadCloser, error) { return io.NopCloser(a.Content), nil }, once: true}, nil
}

// rewinder is a reader that is put back to where it stood, not closed.
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

// reopen takes the last bracket back, so that members can follow.
func (w *writer) reopen() {
	if n := w.text.Len(); n > 0 {
		w.text.Truncate(n - 1)
	}
}

// message writes a struct with at least one member that is always there, and
// its attachments.
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
