// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

const (
	// heartbeat is how often a stream says that it lives, looks whether its key
	// still does, and looks for what no signal told of.
	heartbeat = 15 * time.Second
	// streamTime is how long a client may take to read what it is sent at once.
	streamTime = 30 * time.Second
	// streamPause is after how long it is looked again whether there is room for
	// what a client is to be sent.
	streamPause = time.Second
	// Streams that are open at once.
	maxStreams        = 5000
	maxAccountStreams = 50
)

// streams counts the streams that are open, and ends them.
type streams struct {
	ended chan struct{} // closed when the service ends
	once  sync.Once

	mu    sync.Mutex
	total int
	of    map[db.ID]int
}

func newStreams() *streams { return &streams{ended: make(chan struct{}), of: map[db.ID]int{}} }

func (s *streams) open(account db.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[account] >= maxAccountStreams || s.total >= maxStreams {
		limited := fault.New(fault.Limited, "too_many_streams", "There can be %d streams of an account at once. Close one.", maxAccountStreams)
		limited.Retry = heartbeat
		return limited
	}
	s.total++
	s.of[account]++
	return nil
}

func (s *streams) close(account db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[account]--; s.of[account] == 0 {
		delete(s.of, account)
	}
}

// EndStreams ends all streams of events; their clients come back elsewhere, or
// later. It is for the end of the service, which they would hold up.
func (a *API) EndStreams() { a.streams.once.Do(func() { close(a.streams.ended) }) }

type streamEventsInput struct {
	eventChoice
	After string `query:"after" doc:"Only what comes after this position: the id of an event of this stream; 0 for the beginning. The header Last-Event-ID comes before it." example:"1042"`
}

// streamFilter reads a request for a stream: what it wants, and from where on.
func (a *API) streamFilter(w http.ResponseWriter, r *http.Request, p account.Principal) (f event.Filter, some bool, err error) {
	var in streamEventsInput
	var bad fault.Fields
	if err := merge(&bad, bind(r, &in)); err != nil {
		return f, false, err
	}
	f = in.filter(&bad)
	field, from := "after", in.After
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		field, from = "Last-Event-ID", last
	}
	if from != "" && from != "0" {
		f.After = position(&bad, field, from)
	}
	if err := bad.Err(); err != nil {
		return f, false, err
	}
	if from == "" {
		if f.After, err = a.Events.Newest(r.Context()); err != nil {
			return f, false, err
		}
	}
	f.Limit, f.NoContent = db.MaxPage, !p.Can(readMail)
	some, err = a.only(r.Context(), p, &f)
	return f, some, err
}

// streamEvents writes events as they get their positions. No row is being read
// while it writes.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	// Subscribed before it is asked what there is, it misses nothing.
	sub := a.Events.Hub.Subscribe(signal.Key{Kind: signal.Stream, ID: int64(p.Account)})
	defer sub.Close()
	keys := a.Events.Hub.Subscribe(signal.Key{Kind: signal.Account, ID: int64(p.Account)})
	defer keys.Close()
	f, some, err := a.streamFilter(w, r, p)
	if err != nil {
		return err
	}
	out, err := a.openStream(w, p.Account)
	if err != nil {
		return err
	}
	defer a.streams.close(p.Account)
	if r.Method == http.MethodHead { // nothing goes on in an answer without a body
		return nil
	}
	err = out.here(f.After)
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	for err == nil {
		if some {
			if err = a.streamNew(r, p, &f, out); err != nil {
				break
			}
		}
		select {
		case <-sub.C:
		case <-r.Context().Done():
			return nil
		case <-a.streams.ended:
			return nil
		case <-keys.C:
			_, err = a.authenticate(r, "events.read")
		case <-tick.C:
			if _, err = a.authenticate(r, "events.read"); err == nil {
				err = out.here(f.After)
			}
		}
	}
	// The answer has begun: why it ends, the client learns when it comes back.
	if r.Context().Err() == nil && !out.left && !keyEnded(err) {
		a.Log.WarnContext(r.Context(), "a stream of events broke off", "request", requestID(r.Context()), "error", err)
	}
	return nil
}

// streamNew writes all that is new, page by page. What the client has not read yet
// counts as answers do; a page for which there is no room is read again later. None
// is read once the key has ended, however much there is still to be told.
func (a *API) streamNew(r *http.Request, p account.Principal, f *event.Filter, out *eventStream) error {
	room := kept{of: a.bodies, account: p.Account}
	defer room.giveBack()
	for need, more := 0, true; more; {
		select {
		case <-a.streams.ended:
			return nil
		default:
		}
		if need > 0 && room.take(need) != nil {
			if err := signal.Sleep(r.Context(), streamPause); err != nil {
				return err
			}
			continue
		}
		if err := a.still(r); err != nil {
			return err
		}
		page, text, err := a.streamPage(r.Context(), p, f)
		if err != nil {
			return err
		}
		if need = len(text) - freeBody; need > room.bytes && room.take(need-room.bytes) != nil {
			room.giveBack()
			continue
		}
		if len(text) > 0 {
			if err := out.write(text); err != nil {
				return err
			}
		}
		room.giveBack()
		f.After, more, need = max(f.After, page.Last), page.More, 0
	}
	return nil
}

// streamPage reads the next page, and makes its text, in a turn of the account's.
func (a *API) streamPage(ctx context.Context, p account.Principal, f *event.Filter) (page event.Page, text []byte, err error) {
	pass, err := a.reading.Take(ctx, p.Account, readsOfOne)
	if err != nil {
		return event.Page{}, nil, err
	}
	defer pass()
	if page, err = a.Events.List(ctx, p.Account, *f); err != nil {
		return event.Page{}, nil, err
	}
	for i := range page.Events {
		e := &page.Events[i]
		body, err := e.Body()
		if err != nil {
			return event.Page{}, nil, err
		}
		text = fmt.Appendf(text, "id: %s\nevent: %s\ndata: %s\n\n", strconv.FormatInt(e.Position, 10), e.Type, body)
	}
	page.Events = nil // they are in the text
	return page, text, nil
}

type eventStream struct {
	w    http.ResponseWriter
	c    *http.ResponseController
	left bool // the client does not read
}

// openStream begins an answer that is a stream of events, one of those that the
// account may have open at once. It ends with streams.close.
func (a *API) openStream(w http.ResponseWriter, account db.ID) (*eventStream, error) {
	if err := a.streams.open(account); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would gather
	out := &eventStream{w: w, c: http.NewResponseController(w)}
	_ = out.c.SetReadDeadline(time.Time{}) // the client has said all
	return out, nil
}

// here says where the stream is, with no event: a client that comes back goes
// on from there, also if it never got one.
func (s *eventStream) here(position int64) error {
	return s.write(fmt.Appendf(nil, "id: %d\n\n", position))
}

func (s *eventStream) write(text []byte) error {
	_ = s.c.SetWriteDeadline(time.Now().Add(streamTime))
	_, err := s.w.Write(text)
	if err == nil {
		err = s.c.Flush()
	}
	s.left = err != nil
	return err
}
