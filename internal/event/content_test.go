// SPDX-License-Identifier: Apache-2.0

package event_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// The first read of an event stores its content for all readers and for ever: here each load would
// return different content.
func TestContentIsKept(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		var read atomic.Int64
		l.LoadContent = func(_ context.Context, message db.ID, small json.RawMessage) (any, error) {
			return map[string]any{"of": message, "small": small, "text": fmt.Sprintf("<%d>", read.Add(1))}, nil
		}
		account := d.NewID()
		const events = 40
		for i := range events {
			e := event.RecordParams{Account: account, Kind: event.InboundEmail, Data: data{i}, ContentMessage: d.NewID()}
			if i%4 == 0 {
				e.ContentMessage = 0
			}
			record(t, l, e)
		}
		numberAll(t, l)
		if read.Load() != 0 {
			t.Error("content was read before anybody asked for it")
		}
		var readers sync.WaitGroup
		lists := make([][]event.Event, 6)
		for i := range lists {
			readers.Go(func() {
				var err error
				if lists[i], err = listed(t, l, account, event.Filter{}); err != nil || len(lists[i]) != events {
					t.Error(len(lists[i]), err)
				}
			})
		}
		readers.Wait()
		before := read.Load()
		for _, list := range lists {
			for i, e := range list {
				one, err := l.Get(t.Context(), account, e.ID, true)
				if err != nil || string(one.Data) != string(e.Data) {
					t.Fatalf("%s was %s and is %s, %v", e.ID, e.Data, one.Data, err)
				}
				var full struct {
					Text  string
					Small data
				}
				if err := json.Unmarshal(e.Data, &full); err != nil || (i%4 != 0) != (full.Text != "") || i%4 != 0 && full.Small.N != i {
					t.Errorf("%d is %s, %v", i, e.Data, err)
				}
			}
		}
		if read.Load() != before {
			t.Error("content was read again")
		}
	})
}

// An event whose content can't be loaded is not returned, and is read later.
func TestContentUnreadable(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		broken := errors.New("the store is away")
		l.LoadContent = func(context.Context, db.ID, json.RawMessage) (any, error) { return nil, broken }
		account := d.NewID()
		record(t, l, event.RecordParams{Account: account, Kind: event.InboundEmail, Data: data{1}, ContentMessage: 7})
		numberAll(t, l)
		if _, err := listed(t, l, account, event.Filter{}); !errors.Is(err, broken) {
			t.Errorf("listed with %v", err)
		}
		l.LoadContent = func(context.Context, db.ID, json.RawMessage) (any, error) { return data{2}, nil }
		all, err := listed(t, l, account, event.Filter{})
		if err != nil || len(all) != 1 || string(all[0].Data) != `{"n":2}` {
			t.Errorf("%v, %v", all, err)
		}
	})
}

// A request reads about as much data as its page holds, however large the events are.
func TestLargeEventsAreReadInPieces(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account, other := d.NewID(), d.NewID()
		const small, large, size = 60, 60, 400 << 10
		for n := range small + large {
			e := event.RecordParams{Account: account, Kind: event.InboundEmail, Recipient: "a@example.org", Data: "small"}
			if n >= small {
				e.Data = strings.Repeat("x", size)
			}
			record(t, l, e)
		}
		var read atomic.Int64
		l.LoadContent = func(context.Context, db.ID, json.RawMessage) (any, error) {
			read.Add(1)
			return strings.Repeat("x", size), nil
		}
		for range large {
			record(t, l, event.RecordParams{Account: other, Kind: event.InboundEmail, Data: "not read yet", ContentMessage: d.NewID()})
		}
		numberAll(t, l)

		sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		before := sample[0].Value.Uint64()
		page, err := l.List(t.Context(), account, event.Filter{Limit: db.MaxPageSize})
		if err != nil || !page.More || len(page.Events) <= small {
			t.Fatalf("%d events, more: %v, %v", len(page.Events), page.More, err)
		}
		metrics.Read(sample)
		if took := sample[0].Value.Uint64() - before; took > 30<<20 {
			t.Errorf("a page of %d events took %d MB", len(page.Events), took>>20)
		}

		page, err = l.List(t.Context(), other, event.Filter{Limit: db.MaxPageSize})
		if n := len(page.Events); err != nil || !page.More || n == 0 || int(read.Load()) > n+1 {
			t.Errorf("%d events, more: %v, of %d the content was read, %v", n, page.More, read.Load(), err)
		}

		// Events that don't match are read, within limits.
		pages := 0
		for page = (event.Page{More: true}); page.More; pages++ {
			at := page.Last
			if page, err = l.List(t.Context(), account, event.Filter{Recipient: "a@example.org", Kinds: []string{event.Bounce}, After: at}); err != nil || len(page.Events) != 0 {
				t.Fatalf("%d events, %v", len(page.Events), err)
			}
			if page.More && page.Last == at {
				t.Fatal("it does not go on")
			}
		}
		if pages < 2 {
			t.Error("all were looked at for one page")
		}
	})
}

// A page of large events keeps only its own events in memory. The pages together have all events.
func TestLargeEvents(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		l := newLog(d, node)
		account := d.NewID()
		const events, size = 60, 400 << 10
		for range events {
			record(t, l, event.RecordParams{Account: account, Kind: event.InboundEmail, Data: strings.Repeat("x", size)})
		}
		numberAll(t, l)
		heap := func() int64 {
			runtime.GC()
			sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
			metrics.Read(sample)
			return int64(sample[0].Value.Uint64()) //nolint:gosec // there is not as much
		}
		before := heap()
		page, err := l.List(t.Context(), account, event.Filter{Limit: db.MaxPageSize})
		if err != nil || !page.More || len(page.Events) == 0 {
			t.Fatalf("%d events, more: %v, %v", len(page.Events), page.More, err)
		}
		if kept := heap() - before; kept > 10<<20 {
			t.Errorf("a page of %d events keeps %d MB", len(page.Events), kept>>20)
		}
		runtime.KeepAlive(page)
		n := len(page.Events)
		for page.More {
			if page, err = l.List(t.Context(), account, event.Filter{Limit: db.MaxPageSize, After: page.Last}); err != nil {
				t.Fatal(err)
			}
			n += len(page.Events)
		}
		if n != events {
			t.Errorf("the pages hold %d events", n)
		}
	})
}
