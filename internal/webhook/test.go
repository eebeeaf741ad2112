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

// maxTests is the maximum of concurrent tests on a node, maxTestsPerAccount that of one account.
const maxTests, maxTestsPerAccount = 32, 4

var (
	settingsQuery   = db.SQL(`SELECT url, secrets, revision FROM webhook WHERE id = $2 AND account = $1 AND status IN ('enabled', 'disabled')`)
	insertTestQuery = db.SQL(`INSERT INTO webhook_delivery (webhook, id, kind, state, attempts, tries, due_at, code, error, body, created_at, updated_at)
		VALUES ($1, $2, $3, $4, 1, 1, 0, $5, $6, $7, $8, $9)`)
	// A success says nothing about settings that changed meanwhile.
	resetTestedQuery = db.SQL(resetDispatchSQL + ` AND EXISTS (SELECT 1 FROM webhook WHERE id = $1 AND revision = $3)`)
	errTooManyTests  = fault.New(fault.RateLimited, "too_many_tests", "Many tests are being made at this moment. Try again in a few seconds.")
)

// Test sends a test event of a kind ("" for the first that the webhook gets) at once and returns
// the result. It is a real delivery, signed like any other, with made-up data that has `test:
// true`. Test makes one attempt, also for a disabled or paused webhook. A success ends the pause and
// the webhook's failures. The deliveries list the test, the account's event log does not. It can be
// redelivered. Test takes up to the timeout of an attempt.
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
	var revision int64
	var sealed []byte
	if err := h.o.DB.One(ctx, settingsQuery.With(account, hook), &url, &sealed, &revision); err != nil {
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
	ctx = context.WithoutCancel(ctx) // a canceled request is not a failure of the receiver
	a := c.post(ctx, s.secrets, kind, id, body)
	if err := h.saveTest(ctx, hook, id, revision, kind, body, &a); err != nil {
		return Delivery{}, Attempt{}, err
	}
	d, attempts, err := h.Delivery(ctx, account, hook, id)
	if err != nil {
		return Delivery{}, Attempt{}, err
	}
	return d, attempts[0], nil
}

// beginTest takes a slot for a test, if the account may have one.
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

func (h *Service) saveTest(ctx context.Context, hook, id db.ID, revision int64, kind string, body []byte, a *httpResult) error {
	o := outcome{n: 1, state: Delivered}
	o.item.id, o.result = id, *a
	if !a.accepted() {
		o.state = Failed
	}
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		err := tx.Run(ctx,
			insertTestQuery.With(hook, id, kind, o.state, a.code, a.errorCode, string(body), db.Micros(a.startedAt), db.Micros(a.endedAt)),
			insertAttemptQuery.With(o.attemptRow(hook)...))
		if err != nil || !a.accepted() {
			return err
		}
		tx.AfterCommit(func() { h.wake(hook) })
		return tx.Run(ctx, resetTestedQuery.With(hook, db.Micros(h.o.Now()), revision))
	})
}

// examples are real events, written by the API's TestPayloads.
//
//go:embed examples/*.json
var examples embed.FS

// Example returns an example event of a kind, as webhooks get it; nil for an unknown kind.
func Example(kind string) json.RawMessage {
	text, err := examples.ReadFile("examples/" + kind + ".json")
	if err != nil {
		return nil
	}
	return text
}

// testBody returns the body of a test: an example marked as a test.
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
