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
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// heartbeatInterval is how often a stream says that it lives, looks whether its key
	// still does, and looks for what no signal told of.
	heartbeatInterval = 15 * time.Second
	// streamWriteTimeout is how long a client may take to read what it is sent at once.
	streamWriteTimeout = 30 * time.Second
	// memoryRetryDelay is after how long it is looked again whether there is room for
	// what a client is to be sent.
	memoryRetryDelay = time.Second
	// Streams that are open at once.
	maxStreams        = 5000
	maxAccountStreams = 50
)

// streamRegistry counts the streams that are open, and ends them.
type streamRegistry struct {
	shutdown chan struct{} // closed when the service ends
	once     sync.Once

	mu        sync.Mutex
	total     int
	byAccount map[db.ID]int
}

func newStreamRegistry() *streamRegistry {
	return &streamRegistry{shutdown: make(chan struct{}), byAccount: map[db.ID]int{}}
}

func (s *streamRegistry) open(account db.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byAccount[account] >= maxAccountStreams || s.total >= maxStreams {
		limited := fault.New(fault.RateLimited, "too_many_streams", "There can be %d streams of an account at once. Close one.", maxAccountStreams)
		limited.RetryAfter = heartbeatInterval
		return limited
	}
	s.total++
	s.byAccount[account]++
	return nil
}

func (s *streamRegistry) close(account db.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.byAccount[account]--; s.byAccount[account] == 0 {
		delete(s.byAccount, account)
	}
}

// CloseStreams ends all streams of events; their clients come back elsewhere, or
// later. It is for the end of the service, which they would hold up.
func (a *API) CloseStreams() { a.streams.once.Do(func() { close(a.streams.shutdown) }) }

type streamEventsInput struct {
	eventFilterParams
	After string `query:"after" doc:"Only what comes after this position: the id of an event of this stream; 0 for the beginning. The header Last-Event-ID comes before it." example:"1042"`
}

// readStreamFilter reads a request for a stream: what it wants, and from where on.
func (a *API) readStreamFilter(w http.ResponseWriter, r *http.Request, p account.Principal) (f event.Filter, some bool, err error) {
	var in streamEventsInput
	var bad fault.FieldErrors
	if err := mergeFaults(&bad, bind(r, &in)); err != nil {
		return f, false, err
	}
	f = in.filter(&bad)
	field, from := "after", in.After
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		field, from = "Last-Event-ID", last
	}
	if from != "" && from != "0" {
		f.After = parsePosition(&bad, field, from)
	}
	if err := bad.Err(); err != nil {
		return f, false, err
	}
	if from == "" {
		if f.After, err = a.Events.LastPosition(r.Context()); err != nil {
			return f, false, err
		}
	}
	f.Limit, f.NoContent = db.MaxPageSize, !p.HasScope(mailReadScope)
	some, err = a.restrictToKeyDomain(r.Context(), p, &f)
	return f, some, err
}

// streamEvents writes events as they get their positions. No row is being read
// while it writes.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	// Subscribed before it is asked what there is, it misses nothing.
	sub := a.Events.Hub.Subscribe(notify.Key{Kind: notify.EventStream, ID: int64(p.Account)})
	defer sub.Close()
	keys := a.Events.Hub.Subscribe(notify.Key{Kind: notify.Account, ID: int64(p.Account)})
	defer keys.Close()
	f, some, err := a.readStreamFilter(w, r, p)
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
	err = out.writePosition(f.After)
	tick := time.NewTicker(heartbeatInterval)
	defer tick.Stop()
	for err == nil {
		if some {
			if err = a.streamNewEvents(r, p, &f, out); err != nil {
				break
			}
		}
		select {
		case <-sub.C:
		case <-r.Context().Done():
			return nil
		case <-a.streams.shutdown:
			return nil
		case <-keys.C:
			_, err = a.authenticate(r, "events.read")
		case <-tick.C:
			if _, err = a.authenticate(r, "events.read"); err == nil {
				err = out.writePosition(f.After)
			}
		}
	}
	// The answer has begun: why it ends, the client learns when it comes back.
	if r.Context().Err() == nil && !out.clientGone && !isAuthError(err) {
		a.Log.WarnContext(r.Context(), "a stream of events broke off", "request", requestID(r.Context()), "error", err)
	}
	return nil
}

// streamNewEvents writes all that is new, page by page. What the client has not read yet
// counts as answers do; a page for which there is no room is read again later. None
// is read once the key has ended, however much there is still to be told.
func (a *API) streamNewEvents(r *http.Request, p account.Principal, f *event.Filter, out *eventStream) error {
	room := memoryReservation{budget: a.memory, account: p.Account}
	defer room.release()
	for need, more := 0, true; more; {
		select {
		case <-a.streams.shutdown:
			return nil
		default:
		}
		if need > 0 && room.reserve(need) != nil {
			if err := notify.Sleep(r.Context(), memoryRetryDelay); err != nil {
				return err
			}
			continue
		}
		if err := a.revalidateKey(r); err != nil {
			return err
		}
		page, text, err := a.readStreamPage(r.Context(), p, f)
		if err != nil {
			return err
		}
		if need = len(text) - freeBodyBytes; need > room.reserved && room.reserve(need-room.reserved) != nil {
			room.release()
			continue
		}
		if len(text) > 0 {
			if err := out.write(text); err != nil {
				return err
			}
		}
		room.release()
		f.After, more, need = max(f.After, page.Last), page.More, 0
	}
	return nil
}

// readStreamPage reads the next page, and makes its text, in a turn of the account's.
func (a *API) readStreamPage(ctx context.Context, p account.Principal, f *event.Filter) (page event.Page, text []byte, err error) {
	pass, err := a.readSlots.Acquire(ctx, p.Account, maxReadsPerAccount)
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
	w          http.ResponseWriter
	control    *http.ResponseController
	clientGone bool // the client does not read
}

// openStream begins an answer that is a stream of events, one of those that the
// account may have open at once. It ends with streams.close.
func (a *API) openStream(w http.ResponseWriter, account db.ID) (*eventStream, error) {
	if err := a.streams.open(account); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would gather
	out := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // the client has said all
	return out, nil
}

// writePosition says where the stream is, with no event: a client that comes back goes
// on from there, also if it never got one.
func (s *eventStream) writePosition(position int64) error {
	return s.write(fmt.Appendf(nil, "id: %d\n\n", position))
}

func (s *eventStream) write(text []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWriteTimeout))
	_, err := s.w.Write(text)
	if err == nil {
		err = s.control.Flush()
	}
	s.clientGone = err != nil
	return err
}
