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
	"github.com/mailstead/mailstead/internal/web"
)

const (
	// heartbeatInterval is how often a stream sends a heartbeat, revalidates its key, and polls for
	// events whose signal was lost.
	heartbeatInterval = 15 * time.Second
	// streamWriteTimeout limits how long a client may take to read one write.
	streamWriteTimeout = 30 * time.Second
	// memoryRetryDelay is the delay before a stream tries again to reserve memory.
	memoryRetryDelay = time.Second
	// Maximum numbers of concurrent streams.
	maxStreams        = 5000
	maxAccountStreams = 50
)

// streamRegistry counts the open streams and ends them on shutdown.
type streamRegistry struct {
	shutdown chan struct{} // closed when the service shuts down
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

// CloseStreams ends all event streams, which would delay the shutdown. Their clients reconnect to
// another node or later.
func (a *API) CloseStreams() { a.streams.once.Do(func() { close(a.streams.shutdown) }) }

type streamEventsInput struct {
	eventFilterParams
	After string `query:"after" doc:"Only what comes after this: the position that was an id of this stream, or the id of an event; 0 for the beginning. The header Last-Event-ID comes before it." example:"1042"`
}

// readStreamFilter reads the filter and the start position of a stream request.
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
		var err error
		f.After, err = a.streamPosition(r.Context(), p, field, from)
		if err := mergeFaults(&bad, err); err != nil {
			return f, false, err
		}
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

// streamPosition parses where a stream begins: a position, or the id of an event.
func (a *API) streamPosition(ctx context.Context, p account.Principal, field, text string) (int64, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		return n, nil
	}
	only, _, err := a.keyDomainID(ctx, p)
	if err != nil {
		return 0, err
	}
	return a.eventPosition(ctx, p, only, field, text)
}

// streamEvents writes events as they get their positions. It holds no database rows while it
// writes.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request, p account.Principal) error {
	// Subscribe before reading the first events, so that none is missed.
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
	if r.Method == http.MethodHead { // a response to HEAD has no body
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
	// The response has started, so the client can learn the error only when it reconnects.
	if r.Context().Err() == nil && !out.clientGone && !web.IsAuthError(err) {
		a.Log.WarnContext(r.Context(), "a stream of events broke off", "request", web.RequestIDFromContext(r.Context()), "error", err)
	}
	return nil
}

// streamNewEvents writes all new events, page by page. Data that the client has not read yet counts
// against the memory budget, like responses. If there is not enough memory for a page, it reads the
// page again later. It revalidates the key before each page.
func (a *API) streamNewEvents(r *http.Request, p account.Principal, f *event.Filter, out *eventStream) error {
	capacity := memoryReservation{budget: a.memory, account: p.Account}
	defer capacity.release()
	for need, more := 0, true; more; {
		select {
		case <-a.streams.shutdown:
			return nil
		default:
		}
		if need > 0 && capacity.reserve(need) != nil {
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
		if need = len(text) - freeBodyBytes; need > capacity.reserved && capacity.reserve(need-capacity.reserved) != nil {
			capacity.release()
			continue
		}
		if len(text) > 0 {
			if err := out.write(text); err != nil {
				return err
			}
		}
		capacity.release()
		f.After, more, need = max(f.After, page.Last), page.More, 0
	}
	return nil
}

// readStreamPage reads the next page and encodes it, using one of the account's read slots.
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
	page.Events = nil // free the events; the text has them
	return page, text, nil
}

type eventStream struct {
	w          http.ResponseWriter
	control    *http.ResponseController
	clientGone bool // the last write failed
}

// openStream starts a response that is an event stream and counts it against the account's limit.
// The caller releases it with streams.close.
func (a *API) openStream(w http.ResponseWriter, account db.ID) (*eventStream, error) {
	if err := a.streams.open(account); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would buffer
	out := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // the request has been read
	return out, nil
}

// writePosition writes the stream's position without an event. A client that reconnects resumes
// there, even if it never got an event.
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
