// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"embed"
	"encoding/json"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
)

// maxTests is how many tests a node makes at the same time, and testsOfOne how many
// of them for one account.
const maxTests, testsOfOne = 32, 4

var (
	hookSettings = db.SQL(`SELECT url, secrets FROM webhook WHERE id = $2 AND account = $1 AND status IN ('enabled', 'disabled')`)
	insertTest   = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, trouble, body, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, 1, 0, $5, $6, $7, $8, $9)`)
	errManyTests = fault.New(fault.Limited, "too_many_tests", "Many tests are being made at this moment. Try again in a few seconds.")
)

// Test sends a test of a kind ("" for the first that the webhook wants) at once
// and returns what became of it: a real delivery, signed as any other, whose
// data has `test: true` and is made up. It is tried once, also to a disabled
// webhook, is listed among the deliveries, and is no event of the account's log.
// It can be redelivered. It takes as long as an attempt may.
func (h *Hooks) Test(ctx context.Context, account, hook db.ID, kind string) (Delivery, Attempt, error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	if kind == "" {
		kind = w.Kinds[0]
		if kind == All {
			kind = event.DeliveryStatus
		}
	}
	if !slices.Contains(event.Kinds[:], kind) {
		var f fault.Fields
		f.Add("event", "unknown_event", "Choose one kind of event.")
		return Delivery{}, Attempt{}, f.Err()
	}
	if !h.beginTest(account) {
		return Delivery{}, Attempt{}, errManyTests
	}
	defer h.endTest(account)
	var url string
	var sealed []byte
	if err := h.o.DB.One(ctx, hookSettings.With(account, hook), &url, &sealed); err != nil {
		return Delivery{}, Attempt{}, err
	}
	id := h.o.DB.NewID()
	body, err := h.sample(account, id, kind, w.Content)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	s := settings{account: account}
	if s.secrets, err = h.open(sealed); err != nil {
		return Delivery{}, Attempt{}, err
	}
	var code string
	s.target, code, _ = h.parse(url)
	s.target.refused = code != ""
	c := h.newClient(s.target)
	defer c.close()
	ctx = context.WithoutCancel(ctx) // that nobody waits for it any more is no failure of the receiver's
	a := c.post(ctx, s.secrets, kind, id, body)
	if err := h.keepTest(ctx, hook, id, kind, body, &a); err != nil {
		return Delivery{}, Attempt{}, err
	}
	d, attempts, err := h.Delivery(ctx, account, hook, id)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	return d, attempts[0], nil
}

// beginTest takes a place for a test, if the account may have one.
func (h *Hooks) beginTest(account db.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.testing >= maxTests || h.tests[account] >= testsOfOne {
		return false
	}
	h.testing++
	h.tests[account]++
	return true
}

func (h *Hooks) endTest(account db.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.testing--
	if h.tests[account]--; h.tests[account] == 0 {
		delete(h.tests, account)
	}
}

func (h *Hooks) keepTest(ctx context.Context, hook, id db.ID, kind string, body []byte, a *answer) error {
	o := outcome{n: 1, state: Delivered}
	o.item.id, o.answer = id, *a
	if !a.taken() {
		o.state = Failed
	}
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, insertTest.With(hook, id, kind, o.state, a.code, a.trouble, string(body), db.Micros(a.began), db.Micros(a.ended))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertAttempt.With(o.attempt(hook)...))
		return err
	})
}

// examples are events as they really came: TestPayloads of the API writes them.
//
//go:embed examples/*.json
var examples embed.FS

// Example returns an event of a kind, such as webhooks get; nil for an unknown
// one.
func Example(kind string) json.RawMessage {
	text, err := examples.ReadFile("examples/" + kind + ".json")
	if err != nil {
		return nil
	}
	return text
}

// sample makes the body of a test: an example that says so.
func (h *Hooks) sample(account, id db.ID, kind string, content bool) ([]byte, error) {
	var e event.Event
	if err := json.Unmarshal(Example(kind), &e); err != nil {
		return nil, err
	}
	e.ID, e.Account, e.Timestamp = id, account, h.o.Now().UTC().Truncate(time.Microsecond)
	e.Data = append([]byte(`{"test": true,`), e.Data[1:]...)
	if !content {
		if err := h.o.Events.Omit(&e); err != nil {
			return nil, err
		}
	}
	return e.Body()
}
