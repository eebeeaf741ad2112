// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/relay"
)

var (
	spoilCaptured = db.SQL(`UPDATE captured_message SET structure = $1`)
	loseCaptured  = db.SQL(`DELETE FROM blob WHERE id IN (SELECT blob FROM captured_message)`)
)

func newCapture(t *testing.T, d *db.DB) *relay.Sandbox {
	t.Helper()
	files, err := blob.NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &relay.Sandbox{LocalName: "sandbox.test", DB: d, Blobs: &blob.Store{DB: d, Files: files, Now: time.Now}, Log: slog.New(slog.DiscardHandler)}
}

// keep stores a message in the outbox.
func keep(t *testing.T, c *relay.Sandbox, m *queue.OutboundMessage) error {
	t.Helper()
	body, err := m.Body(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c.Store(t.Context(), &queue.Transaction{Mail: m, Deliveries: []*queue.Delivery{{Recipient: "bob@d.test"}}}, body)
}

func readCaptured(t *testing.T, c *relay.Sandbox, m relay.CapturedMessage) string {
	t.Helper()
	index, r, err := c.Open(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	raw, err := io.ReadAll(r.All())
	if err != nil || index.Size != int64(len(raw)) {
		t.Fatal(index.Size, len(raw), err)
	}
	return string(raw)
}

// The captured message is the one that a host would have received, and only its account can see it.
func TestCapture(t *testing.T) {
	h := newFixture(t, 25, nil)
	c := newCapture(t, h.db)
	h.deliveryAgent = c
	h.run()
	big := ".\r\n..\r\n.x\r\n" + strings.Repeat("x", 100_000) + "\r\n" + strings.Repeat("0123456789abcdef\r\n", 10_000)
	id := h.accept(h.newMail(func(m *queue.OutboundMessage) {
		m.Domain = "from.test"
		m.Body = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text + big)), nil }
	}), "bob@d.test", "eve@d.test")
	if got := h.states(id); got != "delivered 2.0.0, delivered 2.0.0" {
		t.Errorf("states %s", got)
	}
	if r := h.deliveries(id)[0]; r.Remote != "sandbox" {
		t.Errorf("delivery %+v", r)
	}
	// There was an SMTP session, as with any other host.
	for _, part := range []string{"S: 220 sandbox", "C: EHLO", "C: MAIL FROM:<a@from.test>", "C: RCPT TO:<eve@d.test>", "C: DATA", "S: 250 2.0.0 Captured"} {
		if said := h.attempt(id).Transcript; !strings.Contains(said, part) {
			t.Errorf("no %q in the conversation:\n%s", part, said)
		}
	}
	all, more, err := c.List(t.Context(), 1, "", db.Page{})
	if err != nil || more || len(all) != 1 {
		t.Fatal(len(all), more, err)
	}
	m := all[0]
	if m.Message != id || m.Sender != "a@from.test" || !slices.Equal(m.Recipients, []string{"bob@d.test", "eve@d.test"}) || m.Size != int64(len(head+text+big)) {
		t.Errorf("captured %+v", m)
	}
	if got := readCaptured(t, c, m); got != head+text+big {
		t.Errorf("its %d bytes begin with %.100s", len(got), got)
	}
	for _, other := range []struct {
		account db.ID
		domain  string
	}{{2, ""}, {1, "other.test"}} {
		if _, err := c.Get(t.Context(), other.account, other.domain, m.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%+v gets %v", other, err)
		}
		if err := c.Clear(t.Context(), other.account, other.domain); err != nil {
			t.Error(err)
		}
		if list, _, err := c.List(t.Context(), other.account, other.domain, db.Page{}); err != nil || len(list) != 0 {
			t.Errorf("%+v lists %v, %v", other, list, err)
		}
	}
	if _, err := c.Get(t.Context(), 1, "from.test", m.ID); err != nil {
		t.Error(err)
	}
	if err := c.Clear(t.Context(), 1, "from.test"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), 1, "", m.ID); !fault.Is(err, fault.NotFound) {
		t.Errorf("after clearing: %v", err)
	}
	if _, _, err := c.Open(t.Context(), m); !fault.Is(err, fault.NotFound) {
		t.Errorf("its bytes: %v", err)
	}
}

// Lost content is not mistaken for a deleted message. A structure that can't be decoded is computed
// again.
func TestCapturedLost(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := leasetest.Open(t, url)
		c := newCapture(t, d)
		m := &queue.OutboundMessage{MessageInfo: queue.MessageInfo{Account: 1}, ID: d.NewID(), Body: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(text)), nil
		}}
		if err := keep(t, c, m); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, d, spoilCaptured.With([]byte("?")))
		all, _, err := c.List(t.Context(), 1, "", db.Page{})
		if err != nil || len(all) != 1 {
			t.Fatal(len(all), err)
		}
		if got := readCaptured(t, c, all[0]); got != text {
			t.Errorf("without its structure %q", got)
		}
		dbtest.Exec(t, d, loseCaptured.With())
		if _, _, err := c.Open(t.Context(), all[0]); !blob.IsLost(err) || !strings.Contains(err.Error(), all[0].ID.String()) {
			t.Errorf("what is lost is %v", err)
		}
		if err := c.Clear(t.Context(), 1, ""); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Open(t.Context(), all[0]); !fault.Is(err, fault.NotFound) {
			t.Errorf("what was cleared is %v", err)
		}
	})
}

// The size of the outbox is limited: the oldest messages are deleted.
func TestCaptureIsBounded(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := leasetest.Open(t, url)
		c := newCapture(t, d)
		var last db.ID
		for n := range relay.MaxCapturedMessages + 120 {
			m := &queue.OutboundMessage{MessageInfo: queue.MessageInfo{Account: 1}, ID: d.NewID(), Body: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader([]byte(text))), nil
			}}
			if err := keep(t, c, m); err != nil {
				t.Fatal(n, err)
			}
			last = m.ID
		}
		n, at := 0, db.Page{Limit: db.MaxPageSize}
		for {
			all, more, err := c.List(t.Context(), 1, "", at)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 && all[0].Message != last {
				t.Error("the newest is gone")
			}
			n += len(all)
			if !more {
				break
			}
			at.After = all[len(all)-1].ID
		}
		if n < relay.MaxCapturedMessages || n > relay.MaxCapturedMessages+50 {
			t.Errorf("it keeps %d", n)
		}
	})
}

// A stored message is not stored again because the deletion of older ones failed.
func TestCapturedOnce(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, _ := leasetest.Open(t, url)
		c := newCapture(t, d)
		keep := func() error {
			m := &queue.OutboundMessage{MessageInfo: queue.MessageInfo{Account: 1}, ID: d.NewID(), Body: func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader([]byte(text))), nil
			}}
			return keep(t, c, m)
		}
		for range relay.MaxCapturedMessages {
			if err := keep(); err != nil {
				t.Fatal(err)
			}
		}
		if d.Engine() == db.SQLite {
			dbtest.Exec(t, d, db.SQL("CREATE TRIGGER stay BEFORE DELETE ON captured_message BEGIN SELECT RAISE(ABORT, 'stay'); END").With())
		} else {
			dbtest.Exec(t, d, db.SQL("CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''stay''; END'").With(),
				db.SQL("CREATE TRIGGER stay BEFORE DELETE ON captured_message EXECUTE FUNCTION stay()").With())
		}
		for n := range 60 { // more than are captured between two checks
			if err := keep(); err != nil {
				t.Fatal(n, err)
			}
		}
	})
}
