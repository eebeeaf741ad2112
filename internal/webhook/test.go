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

// maxTests is how many tests a node makes at the same time, and maxTestsPerAccount how many
// of them for one account.
const maxTests, maxTestsPerAccount = 32, 4

var (
	settingsQuery   = db.SQL(`SELECT url, secrets FROM webhook WHERE id = $2 AND account = $1 AND status IN ('enabled', 'disabled')`)
	insertTestQuery = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, trouble, body, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, 1, 0, $5, $6, $7, $8, $9)`)
	errTooManyTests = fault.New(fault.RateLimited, "too_many_tests", "Many tests are being made at this moment. Try again in a few seconds.")
)

// Test sends a test of a kind ("" for the first that the webhook wants) at once
// and returns what became of it: a real delivery, signed as any other, whose
// data has `test: true` and is made up. It is tried once, also to a disabled
// webhook, is listed among the deliveries, and is no event of the account's log.
// It can be redelivered. It takes as long as an attempt may.
func (h *Service) Test(ctx context.Context, account, hook db.ID, kind string) (Delivery, Attempt, error) {
	w, err := h.Get(ctx, account, hook)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	if kind == "" {
		kind = w.Kinds[0]
		if kind == AllKinds {
			kind = event.DeliveryStatus
		}
	}
	if !slices.Contains(event.Kinds[:], kind) {
		var f fault.FieldErrors
		f.Add("event", "unknown_event", "Choose one kind of event.")
		return Delivery{}, Attempt{}, f.Err()
	}
	if !h.beginTest(account) {
		return Delivery{}, Attempt{}, errTooManyTests
	}
	defer h.endTest(account)
	var url string
	var sealed []byte
	if err := h.o.DB.One(ctx, settingsQuery.With(account, hook), &url, &sealed); err != nil {
		return Delivery{}, Attempt{}, err
	}
	id := h.o.DB.NewID()
	body, err := h.testBody(account, id, kind, w.Content)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	s := settings{account: account}
	if s.secrets, err = h.openSecrets(sealed); err != nil {
		return Delivery{}, Attempt{}, err
	}
	var code string
	s.target, code, _ = h.parseURL(url)
	s.target.forbidden = code != ""
	c := h.newClient(s.target)
	defer c.close()
	ctx = context.WithoutCancel(ctx) // that nobody waits for it any more is no failure of the receiver's
	a := c.post(ctx, s.secrets, kind, id, body)
	if err := h.saveTest(ctx, hook, id, kind, body, &a); err != nil {
		return Delivery{}, Attempt{}, err
	}
	d, attempts, err := h.Delivery(ctx, account, hook, id)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	return d, attempts[0], nil
}

// beginTest takes a place for a test, if the account may have one.
func (h *Service) beginTest(account db.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.testsRunning >= maxTests || h.testsByAccount[account] >= maxTestsPerAccount {
		return false
	}
	h.testsRunning++
	h.testsByAccount[account]++
	return true
}

func (h *Service) endTest(account db.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.testsRunning--
	if h.testsByAccount[account]--; h.testsByAccount[account] == 0 {
		delete(h.testsByAccount, account)
	}
}

func (h *Service) saveTest(ctx context.Context, hook, id db.ID, kind string, body []byte, a *httpResult) error {
	o := outcome{n: 1, state: Delivered}
	o.item.id, o.result = id, *a
	if !a.accepted() {
		o.state = Failed
	}
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, insertTestQuery.With(hook, id, kind, o.state, a.code, a.errorCode, string(body), db.Micros(a.startedAt), db.Micros(a.endedAt))); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertAttemptQuery.With(o.attemptRow(hook)...))
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

// testBody makes the body of a test: an example that says so.
func (h *Service) testBody(account, id db.ID, kind string, content bool) ([]byte, error) {
	var e event.Event
	if err := json.Unmarshal(Example(kind), &e); err != nil {
		return nil, err
	}
	e.ID, e.Account, e.Timestamp = id, account, h.o.Now().UTC().Truncate(time.Microsecond)
	e.Data = append([]byte(`{"test": true,`), e.Data[1:]...)
	if !content {
		if err := h.o.Events.OmitContent(&e); err != nil {
			return nil, err
		}
	}
	return e.Body()
}
