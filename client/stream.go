// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

const (
	// silence is how long a stream may say nothing until it is taken for dead:
	// the service says something every 15 seconds.
	silence = time.Minute
	// maxGroupQueue bounds a line of a stream, in bytes.
	maxLine = 16 << 20
)

// StreamedEvent is an event as it comes by a stream.
type StreamedEvent struct {
	Event
	Cursor string // where to go on: give it to StreamEvents
	Body   []byte // the JSON as it came, the same bytes that webhooks get
}

// StreamEvents tells of events as they happen, in order, each once, until ctx
// ends or the loop is left. A connection that breaks is made again, where it
// broke off; a refusal ends the stream with a *[Problem]. after is the cursor of
// the last event that was seen: "" begins with what happens next, "0" with the
// oldest that is kept. It takes no times.
func (c *Client) StreamEvents(ctx context.Context, f EventFilter, after string) iter.Seq2[StreamedEvent, error] {
	return func(yield func(StreamedEvent, error) bool) {
		s := &stream{client: c, call: call{method: http.MethodGet, path: "/events/stream", query: f.query()}, cursor: after}
		err := s.follow(ctx, func(data []byte) (bool, error) {
			e := StreamedEvent{Cursor: s.cursor, Body: data}
			if err := decode(data, &e.Event); err != nil {
				return false, err
			}
			return yield(e, nil), nil
		})
		if err != nil {
			yield(StreamedEvent{}, err)
		}
	}
}

// stream is where a stream of events is.
type stream struct {
	client *Client
	call   call
	cursor string
}

var errBroken = errors.New("mailstead: the stream of events broke off")

// follow tells of what comes until tell wants no more, and makes a connection
// that breaks again; an error says why that is in vain.
func (s *stream) follow(ctx context.Context, tell func(data []byte) (more bool, err error)) error {
	for attempt := 1; ; attempt++ {
		err := s.read(ctx, func(data []byte) (bool, error) {
			attempt = 1
			return tell(data)
		})
		if err == nil {
			return nil // the loop was left
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wait, ok := pause(attempt, err)
		if !ok || !repeatable(s.call, err) {
			return err
		}
		if err := s.client.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// read reads one connection until it breaks; nil if tell wants no more.
func (s *stream) read(ctx context.Context, tell func(data []byte) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dead := time.AfterFunc(silence, cancel)
	defer dead.Stop()
	resp, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	id, data := s.cursor, []byte(nil)
	for lines.Scan() {
		dead.Reset(silence)
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "data":
			data = []byte(value)
		case "":
			if lines.Text() != "" {
				continue // a comment
			}
			s.cursor = id // not before: the rest might not have come
			if data == nil {
				continue
			}
			if more, err := tell(data); err != nil || !more {
				return err
			}
			data = nil
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return final{fmt.Errorf("mailstead: an event has more than %d bytes", maxLine)}
	}
	return errBroken
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return final{fmt.Errorf("mailstead: an event can't be read: %w", err)}
	}
	return nil
}

func (s *stream) open(ctx context.Context) (*http.Response, error) {
	header := http.Header{"Accept": {"text/event-stream, application/problem+json;q=0.9"}}
	if s.cursor != "" {
		header.Set("Last-Event-ID", s.cursor)
	}
	return s.client.open(ctx, s.call, header)
}

// open makes one attempt at a call whose answer is read as it comes.
func (c *Client) open(ctx context.Context, in call, header http.Header) (*http.Response, error) {
	to, err := c.url(in)
	if err != nil {
		return nil, final{err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, final{fmt.Errorf("mailstead: %w", err)}
	}
	r.Header = header
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: %w", in.method, in.path, plain(err))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	a := &answer{status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20)); err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: reading the answer: %w", in.method, in.path, err)
	}
	return nil, problem(a)
}
