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
	// silence is how long a stream may be silent before the client reconnects: the service sends
	// something every 15 seconds.
	silence = time.Minute
	// maxLine is the limit for a line of a stream, in bytes.
	maxLine = 16 << 20
)

// StreamedEvent is an event in a stream.
type StreamedEvent struct {
	Event
	Cursor string // continue here: pass it to StreamEvents
	Body   []byte // original JSON, the same bytes that webhooks receive
}

// StreamEvents yields events as they happen, in order, each once, until ctx ends or the loop is
// left. It reconnects after a broken connection, and continues there; a rejection ends the stream
// with a *[Problem]. after is the cursor of the last event received: "" starts with the next event,
// "0" with the oldest stored. f must have no times.
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

// stream is the state of a stream of events.
type stream struct {
	client *Client
	call   call
	cursor string
}

var errBroken = errors.New("mailstead: the stream of events broke off")

// follow calls tell for each event until it returns false, and reconnects after a broken
// connection. It returns an error if that is useless.
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
		wait, ok := retryWait(attempt, err)
		if !ok || !repeatable(s.call, err) {
			return err
		}
		if err := s.client.wait(ctx, wait); err != nil {
			return err
		}
	}
}

// read reads one connection until it breaks; it returns nil once tell returns false.
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
				continue // comment line
			}
			s.cursor = id // only now: the event was incomplete before
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
		return finalError{fmt.Errorf("mailstead: an event has more than %d bytes", maxLine)}
	}
	return errBroken
}

func decode(data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return finalError{fmt.Errorf("mailstead: an event can't be read: %w", err)}
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

// open makes one attempt at a call whose response is read as it arrives.
func (c *Client) open(ctx context.Context, in call, header http.Header) (*http.Response, error) {
	to, err := c.url(in)
	if err != nil {
		return nil, finalError{err}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
	if err != nil {
		return nil, finalError{fmt.Errorf("mailstead: %w", err)}
	}
	r.Header = header
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", c.agent)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("mailstead: %s %s: %w", in.method, in.path, withoutURL(err))
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
