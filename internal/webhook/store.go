// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	insertWebhookQuery = db.SQL(`INSERT INTO webhook (id, account, url, description, kinds, domains, mailboxes, status, reason, status_at,
			secrets, old_until, revision, created_at, updated_at, content)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0, 1, $10, $10, $13
		WHERE (SELECT COUNT(*) FROM webhook WHERE account = $2 AND status IN ('enabled', 'disabled')) < $12`)
	insertDispatchQuery = db.SQL(`INSERT INTO webhook_dispatch (webhook, lease, due_at, arrivals, generation, failing_since, level, paused_until, resumes)
		VALUES ($1, NULL, NULL, 0, 1, 0, 0, 0, 0)`)
	webhookQuery = db.SQL(`SELECT w.id, w.account, w.url, w.description, w.kinds, w.domains, w.mailboxes, w.status, w.reason, w.status_at,
			w.old_until, w.created_at, w.updated_at, l.failing_since, l.paused_until, w.revision, w.content
		FROM webhook AS w JOIN webhook_dispatch AS l ON l.webhook = w.id
		WHERE w.id = $2 AND w.account = $1 AND w.status IN ('enabled', 'disabled')`)
	webhooksQuery = db.PagedSQL(`SELECT id, account, url, description, kinds, domains, mailboxes, status, reason, status_at,
			old_until, created_at, updated_at, (SELECT failing_since FROM webhook_dispatch WHERE webhook = webhook.id),
			(SELECT paused_until FROM webhook_dispatch WHERE webhook = webhook.id), revision, content
		FROM webhook WHERE status IN ('enabled', 'disabled') AND {page account = $1}`)
	updateWebhookQuery = db.SQL(`UPDATE webhook SET url = $3, description = $4, kinds = $5, domains = $6, mailboxes = $7,
			status = $8, reason = $9, status_at = $10, content = $13, revision = revision + 1, updated_at = $11
		WHERE id = $2 AND account = $1 AND revision = $12 AND status IN ('enabled', 'disabled')`)
	deleteWebhookQuery = db.SQL(`UPDATE webhook SET status = 'deleted', status_at = $3, revision = revision + 1, updated_at = $3
		WHERE id = $2 AND account = $1 AND status IN ('enabled', 'disabled')`)
	secretsQuery = db.SQL(`SELECT revision, secrets FROM webhook
		WHERE id = $2 AND account = $1 AND status IN ('enabled', 'disabled') {for_update}`)
	rotateSecretQuery = db.SQL(`UPDATE webhook SET secrets = $3, old_until = $4, revision = revision + 1, updated_at = $5
		WHERE id = $2 AND account = $1 AND revision = $6 AND status IN ('enabled', 'disabled')`)
	pendingOtherDomainQuery = db.SQL(`SELECT 1 FROM webhook_delivery AS d JOIN event AS e ON e.id = d.id
		WHERE d.webhook = $1 AND d.state = 'pending' AND e.domain <> $2 LIMIT 1`)
	// Earlier failures say nothing about another URL, or about a webhook that was enabled again.
	resetDispatchQuery = db.SQL(resetDispatchSQL)
)

// resetDispatchSQL forgets the failures of a webhook.
const resetDispatchSQL = `UPDATE webhook_dispatch SET generation = generation + 1, failing_since = 0, level = 0, paused_until = 0,
		arrivals = arrivals + 1, due_at = $2
	WHERE webhook = $1`

// Spec describes a webhook to create.
type Spec struct {
	URL         string
	Kinds       []string
	Domains     []db.ID
	Mailboxes   []db.ID
	Description string
	Content     bool // whether deliveries contain the content of received mail
	Disabled    bool
}

// Change lists the fields of a webhook to change; nil fields stay unchanged. Any change of an enabled
// webhook ends its pause: the failures may have been what it mends.
type Change struct {
	URL         *string
	Kinds       *[]string
	Domains     *[]db.ID
	Mailboxes   *[]db.ID
	Description *string
	Content     *bool
	// Status is StatusEnabled or StatusDisabled. Enabling a webhook resets its failures, and
	// waiting deliveries continue. While a webhook is disabled, events create no deliveries for it:
	// Replay creates them afterwards.
	Status *string
	// Authorize, if set, rejects a change with its error. Update calls it with the webhook's old
	// filter and with its new one: two concurrent changes may each be harmless alone.
	Authorize func(ctx context.Context, domains, mailboxes []db.ID) error
	// OnlyDomain, unless 0, is the only domain whose events the caller may read. Update then
	// rejects a new URL while events of other domains wait, from before the filter: they would go
	// to that URL.
	OnlyDomain db.ID
	// NoMailRead reports that the caller may not read mail. Update then rejects turning on the
	// content of mail, and changing the URL, events or filter while it is on.
	NoMailRead bool
}

var (
	errNotFound          = fault.New(fault.NotFound, "not_found", "There is no webhook with this id.")
	errTooManyWebhooks   = fault.New(fault.Conflict, "too_many_webhooks", "An account has at most %d webhooks. Delete one that you no longer need.", MaxPerAccount)
	errDeliveriesPending = fault.New(fault.Conflict, "deliveries_wait", "Events of other domains still wait for this webhook. A key that is not for one domain may change its URL.")
	errMissingMailScope  = fault.New(fault.Denied, "missing_scope", "This webhook gets the content of mail. Without the scope mail.read you may turn that off, and not change its URL, events and filter while it is on.")
	errConcurrentChange  = fault.New(fault.Conflict, "webhook_changed", "The webhook was changed by another request at the same time. Look at it and try again.")
)

// Check validates the fields that can be checked without the database or DNS. It returns a
// fault.Invalid that names all invalid ones. Create and Update check the same and more.
func (c Change) Check() error {
	var f fault.FieldErrors
	c.validate(&f, parseTarget)
	return f.Err()
}

// validate adds the errors of the given fields to f, and sorts the kinds.
func (c *Change) validate(f *fault.FieldErrors, parse func(url string) (t target, code, why string)) {
	if c.URL != nil {
		if _, code, why := parse(*c.URL); code != "" {
			f.Add("url", code, "%s", why)
		}
	}
	if c.Kinds != nil {
		c.Kinds = new(checkKinds(f, *c.Kinds))
	}
	if c.Description != nil {
		checkDescription(f, *c.Description)
	}
	if s := c.Status; s != nil && *s != StatusEnabled && *s != StatusDisabled {
		f.Add("status", "invalid_status", "The status is %q or %q.", StatusEnabled, StatusDisabled)
	}
}

// validate checks all given fields at once, and normalizes them. It does not check existing values
// again: a webhook whose mailbox was deleted can still be changed. The fields are named as in the
// API: url, events, domains, mailboxes, description, status.
func (h *Service) validate(ctx context.Context, account db.ID, c *Change) error {
	var f fault.FieldErrors
	c.validate(&f, func(url string) (target, string, string) { return h.checkURL(ctx, url) })
	for _, l := range []struct {
		field string
		ids   **[]db.ID
		owns  func(ctx context.Context, account, id db.ID) (bool, error)
	}{{"domains", &c.Domains, h.o.OwnsDomain}, {"mailboxes", &c.Mailboxes, h.o.OwnsMailbox}} {
		if *l.ids == nil {
			continue
		}
		ids, err := checkFilter(ctx, &f, l.field, account, **l.ids, l.owns)
		if err != nil {
			return err
		}
		*l.ids = &ids
	}
	return f.Err()
}

// Create creates a webhook and returns it with its secret, which is never shown again. It returns a
// fault.Invalid that names every invalid field, or a fault.Conflict if the account already has
// MaxPerAccount webhooks.
func (h *Service) Create(ctx context.Context, account db.ID, n Spec) (Webhook, string, error) {
	c := Change{URL: &n.URL, Kinds: &n.Kinds, Domains: &n.Domains, Mailboxes: &n.Mailboxes, Description: &n.Description}
	if err := h.validate(ctx, account, &c); err != nil {
		return Webhook{}, "", err
	}
	n.Kinds, n.Domains, n.Mailboxes = *c.Kinds, *c.Domains, *c.Mailboxes
	s := secrets{Secret: NewSecret()}
	id, now := h.o.DB.NewID(), h.o.Now()
	status, reason := StatusEnabled, ""
	if n.Disabled {
		status, reason = StatusDisabled, ReasonManual
	}
	err := h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "webhooks", account); err != nil {
			return err
		}
		insert := insertWebhookQuery.With(id, account, n.URL, n.Description, encodeList(n.Kinds), encodeList(n.Domains), encodeList(n.Mailboxes),
			status, reason, db.Micros(now), h.sealSecrets(s), MaxPerAccount, n.Content)
		if err := tx.ExecOrFail(ctx, insert, errTooManyWebhooks); err != nil {
			return err
		}
		return tx.Run(ctx, insertDispatchQuery.With(id))
	})
	if err != nil {
		return Webhook{}, "", err
	}
	made, err := h.Get(ctx, account, id)
	return made, s.Secret, err
}

// Get returns a webhook of an account. It returns a fault.NotFound if there is none.
func (h *Service) Get(ctx context.Context, account, id db.ID) (Webhook, error) {
	return db.Find(ctx, h.o.DB, webhookQuery.With(account, id), errNotFound, h.scanWebhook)
}

// List returns a page of an account's webhooks, newest first.
func (h *Service) List(ctx context.Context, account db.ID, page db.Page) (hooks []Webhook, more bool, err error) {
	return db.ReadPage(ctx, h.o.DB, webhooksQuery, page, h.scanWebhook, account)
}

// maxUpdateTries is how often Update tries again after a concurrent change.
const maxUpdateTries = 5

// Update changes a webhook and returns its new state. After it returns, no attempt starts with the
// old settings on this node, and after a moment none on other nodes. Update returns the errors of
// Create and Get, and a fault.Conflict if other calls kept changing the webhook.
func (h *Service) Update(ctx context.Context, account, id db.ID, c Change) (Webhook, error) {
	err := error(errConcurrentChange)
	for range maxUpdateTries {
		var was Webhook
		if was, err = h.Get(ctx, account, id); err != nil {
			return Webhook{}, err
		}
		if err = h.update(ctx, was, c); err != errConcurrentChange { //nolint:errorlint // it is ours, not wrapped
			break
		}
	}
	if err != nil {
		return Webhook{}, err
	}
	return h.Get(ctx, account, id)
}

func (h *Service) update(ctx context.Context, was Webhook, c Change) error {
	if err := h.validate(ctx, was.Account, &c); err != nil {
		return err
	}
	n, is, now := c.apply(was), was, h.o.Now()
	if c.Authorize != nil {
		err := c.Authorize(ctx, was.Domains, was.Mailboxes)
		if err == nil {
			err = c.Authorize(ctx, n.Domains, n.Mailboxes)
		}
		if err != nil {
			return err
		}
	}
	if c.OnlyDomain != 0 && n.URL != was.URL {
		if waits, err := db.Exists(ctx, h.o.DB, pendingOtherDomainQuery.With(was.ID, c.OnlyDomain)); err != nil || waits {
			return cmp.Or(err, error(errDeliveriesPending))
		}
	}
	if c.NoMailRead && !allowedWithoutMailRead(was, n) {
		return errMissingMailScope
	}
	assignIfSet(&is.Status, c.Status)
	if is.Status != was.Status {
		is.StatusAt, is.Reason = now, ""
		if is.Status == StatusDisabled {
			is.Reason = ReasonManual
		}
	}
	renew := is.Status == StatusEnabled && (was.Status != StatusEnabled || n.URL != was.URL)
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { h.notifyChanged(was.ID) })
		err := tx.ExecOrFail(ctx, updateWebhookQuery.With(was.Account, was.ID, n.URL, n.Description, encodeList(n.Kinds), encodeList(n.Domains), encodeList(n.Mailboxes),
			is.Status, is.Reason, db.Micros(is.StatusAt), db.Micros(now), was.revision, n.Content), errConcurrentChange)
		switch {
		case err != nil || is.Status != StatusEnabled:
			return err
		case renew:
			return tx.Run(ctx, resetDispatchQuery.With(was.ID, db.Micros(now)))
		}
		return tx.Run(ctx, endPauseQuery.With(was.ID, db.Micros(now)))
	})
}

// allowedWithoutMailRead reports whether a caller who may not read mail may make a change: it must
// not send the content of mail to a receiver that the caller chooses.
func allowedWithoutMailRead(was Webhook, n Spec) bool {
	return !n.Content || was.Content &&
		n.URL == was.URL && slices.Equal(n.Kinds, was.Kinds) && slices.Equal(n.Domains, was.Domains) && slices.Equal(n.Mailboxes, was.Mailboxes)
}

// apply returns the webhook's settings after a change.
func (c *Change) apply(w Webhook) Spec {
	n := Spec{URL: w.URL, Kinds: w.Kinds, Domains: w.Domains, Mailboxes: w.Mailboxes, Description: w.Description, Content: w.Content}
	assignIfSet(&n.URL, c.URL)
	assignIfSet(&n.Kinds, c.Kinds)
	assignIfSet(&n.Domains, c.Domains)
	assignIfSet(&n.Mailboxes, c.Mailboxes)
	assignIfSet(&n.Description, c.Description)
	assignIfSet(&n.Content, c.Content)
	return n
}

func assignIfSet[T any](dst, value *T) {
	if value != nil {
		*dst = *value
	}
}

// Delete deletes a webhook. Its deliveries are no longer shown, and waiting ones are not sent.
// Delete returns a fault.NotFound if there is no such webhook.
func (h *Service) Delete(ctx context.Context, account, id db.ID) error {
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		tx.AfterCommit(func() { h.notifyChanged(id) })
		return tx.ExecOrFail(ctx, deleteWebhookQuery.With(account, id, db.Micros(h.o.Now())), errNotFound)
	})
}

// RotateSecret generates a new secret for a webhook and returns it. The new secret signs
// X-Service-Signature at once. In webhook-signature the old secret also signs for overlap, which is
// usually, and at most, SecretOverlap. With 0 only the new one signs.
func (h *Service) RotateSecret(ctx context.Context, account, id db.ID, overlap time.Duration) (Webhook, string, error) {
	var s secrets
	err := h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		var revision int64
		var sealed []byte
		err := tx.One(ctx, secretsQuery.With(account, id), &revision, &sealed)
		if err != nil {
			return db.IfNoRow(err, errNotFound)
		}
		if s, err = h.openSecrets(sealed); err != nil {
			return err
		}
		now := h.o.Now()
		s.rotate(now, now.Add(min(max(overlap, 0), SecretOverlap)))
		tx.AfterCommit(func() { h.notifyChanged(id) })
		err = tx.ExecOrFail(ctx, rotateSecretQuery.With(account, id, h.sealSecrets(s), s.oldUntil(), db.Micros(now), revision), errConcurrentChange)
		if err != nil {
			return err
		}
		return tx.Run(ctx, endPauseQuery.With(id, db.Micros(now)))
	})
	if err != nil {
		return Webhook{}, "", err
	}
	w, err := h.Get(ctx, account, id)
	return w, s.Secret, err
}

// notifyChanged makes the webhook's dispatchers reload its row. On this node that takes effect
// before notifyChanged returns.
func (h *Service) notifyChanged(id db.ID) {
	h.mu.Lock()
	if l := h.dispatchers[id]; l != nil {
		l.stale.Store(true)
	}
	h.mu.Unlock()
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook, ID: int64(id)})
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook})
}

func (h *Service) scanWebhook(r db.Row) (w Webhook, err error) {
	var kinds, domains, mailboxes string
	err = r.Scan(&w.ID, &w.Account, &w.URL, &w.Description, &kinds, &domains, &mailboxes, &w.Status, &w.Reason, db.TimeScanner(&w.StatusAt),
		db.TimeScanner(&w.OldSecretUntil), db.TimeScanner(&w.CreatedAt), db.TimeScanner(&w.UpdatedAt), db.TimeScanner(&w.FailingSince), db.TimeScanner(&w.PausedUntil), &w.revision, &w.Content)
	w.Kinds = strings.Fields(kinds)
	if w.Status != StatusEnabled || !w.PausedUntil.After(h.o.Now()) {
		w.PausedUntil = time.Time{}
	}
	w.Domains, w.Mailboxes = decodeIDs(domains), decodeIDs(mailboxes)
	return w, err
}

// encodeList encodes a list for a column, with a blank before and after each entry, so that LIKE
// finds it; "" for an empty list.
func encodeList[T string | db.ID](list []T) string {
	var b strings.Builder
	for _, v := range list {
		b.WriteByte(' ')
		switch v := any(v).(type) {
		case string:
			b.WriteString(v)
		case db.ID:
			b.WriteString(strconv.FormatInt(int64(v), 10))
		}
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	return b.String()
}

func decodeIDs(text string) []db.ID {
	list := []db.ID{}
	for word := range strings.FieldsSeq(text) {
		n, _ := strconv.ParseInt(word, 10, 64) // written by encodeList
		list = append(list, db.ID(n))
	}
	return list
}
