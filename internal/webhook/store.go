// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
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
	insertDispatchQuery = db.SQL(`INSERT INTO webhook_lane (webhook, tenure, due_at, arrivals, life, failing_since, level, rest_until)
		VALUES ($1, NULL, NULL, 0, 1, 0, 0, 0)`)
	webhookQuery = db.SQL(`SELECT w.id, w.account, w.url, w.description, w.kinds, w.domains, w.mailboxes, w.status, w.reason, w.status_at,
			w.old_until, w.created_at, w.updated_at, l.failing_since, w.revision, w.content
		FROM webhook AS w JOIN webhook_lane AS l ON l.webhook = w.id
		WHERE w.id = $2 AND w.account = $1 AND w.status IN ('enabled', 'disabled')`)
	webhooksQuery = db.PagedSQL(`SELECT id, account, url, description, kinds, domains, mailboxes, status, reason, status_at,
			old_until, created_at, updated_at, (SELECT failing_since FROM webhook_lane WHERE webhook = webhook.id), revision, content
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
	pendingOtherDomainQuery = db.SQL(`SELECT EXISTS (SELECT 1 FROM webhook_delivery AS d JOIN event AS e ON e.id = d.id
		WHERE d.webhook = $1 AND d.state = 'pending' AND e.domain <> $2)`)
	// What failed before says nothing about another URL, or after a mending.
	resetDispatchQuery = db.SQL(`UPDATE webhook_lane SET life = life + 1, failing_since = 0, level = 0, rest_until = 0,
			arrivals = arrivals + 1, due_at = $2
		WHERE webhook = $1`)
)

// Spec is a webhook to be made.
type Spec struct {
	URL         string
	Kinds       []string
	Domains     []db.ID
	Mailboxes   []db.ID
	Description string
	Content     bool // of mail that arrived
	Disabled    bool
}

// Change says what of a webhook changes: what is not nil.
type Change struct {
	URL         *string
	Kinds       *[]string
	Domains     *[]db.ID
	Mailboxes   *[]db.ID
	Description *string
	Content     *bool
	// Status is StatusEnabled or StatusDisabled. Enabling one forgets its failures, and
	// what waits goes on. While it is disabled, events make no deliveries for
	// it: Replay makes them afterwards.
	Status *string
	// Authorize, if it is set, refuses a change with its error. It is asked about the
	// filter that the webhook has and the one that it gets: of two changes at once
	// each might do no harm by itself.
	Authorize func(ctx context.Context, domains, mailboxes []db.ID) error
	// OnlyDomain, unless 0, is the domain that the caller may read events of. Then
	// another URL is refused while events of others wait, from before the filter:
	// they would go there.
	OnlyDomain db.ID
	// NoMailRead says that the caller may not read mail. Then the content of mail can't be
	// turned on, and where it goes to, or of which mail, can't be changed.
	NoMailRead bool
}

var (
	errNotFound          = fault.New(fault.NotFound, "not_found", "There is no webhook with this id.")
	errTooManyWebhooks   = fault.New(fault.Conflict, "too_many_webhooks", "An account has at most %d webhooks. Delete one that you no longer need.", MaxPerAccount)
	errDeliveriesPending = fault.New(fault.Conflict, "deliveries_wait", "Events of other domains still wait for this webhook. A key that is not for one domain may change its URL.")
	errMissingMailScope  = fault.New(fault.Denied, "missing_scope", "This webhook gets the content of mail. Without the scope mail.read you may turn that off, and not change its URL, events and filter while it is on.")
	errConcurrentChange  = fault.New(fault.Conflict, "webhook_changed", "The webhook was changed by another request at the same time. Look at it and try again.")
)

// Check judges what is given as far as it tells by itself: fault.Invalid names
// all of it that is wrong. Create and Update judge the same, and more.
func (c Change) Check() error {
	var f fault.FieldErrors
	c.validate(&f, parseTarget)
	return f.Err()
}

// validate notes what is wrong with what is given, and puts the kinds in order.
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

// validate judges all that is given at once, and puts it in order. What a webhook
// has already is not judged again: its mailbox may be deleted by now, and it is
// changed all the same. fields are named as in the API: url, events, domains,
// mailboxes, description, status.
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

// Create makes a webhook and returns it with its secret, which is never shown
// again. A fault.Invalid names every field at fault, a fault.Conflict says that
// the account has MaxPerAccount already.
func (h *Service) Create(ctx context.Context, account db.ID, n Spec) (Webhook, string, error) {
	c := Change{URL: &n.URL, Kinds: &n.Kinds, Domains: &n.Domains, Mailboxes: &n.Mailboxes, Description: &n.Description}
	if err := h.validate(ctx, account, &c); err != nil {
		return Webhook{}, "", err
	}
	n.Kinds, n.Domains, n.Mailboxes = *c.Kinds, *c.Domains, *c.Mailboxes
	s := secrets{Secret: NewSecret()}
	sealed, err := h.sealSecrets(s)
	if err != nil {
		return Webhook{}, "", err
	}
	id, now := h.o.DB.NewID(), h.o.Now()
	status, reason := StatusEnabled, ""
	if n.Disabled {
		status, reason = StatusDisabled, ReasonManual
	}
	err = h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := tx.Lock(ctx, "webhooks", account); err != nil {
			return err
		}
		made, err := tx.Exec(ctx, insertWebhookQuery.With(id, account, n.URL, n.Description, encodeList(n.Kinds), encodeList(n.Domains), encodeList(n.Mailboxes),
			status, reason, db.Micros(now), sealed, MaxPerAccount, n.Content))
		if err == nil && made == 0 {
			err = errTooManyWebhooks
		}
		if err == nil {
			_, err = tx.Exec(ctx, insertDispatchQuery.With(id))
		}
		return err
	})
	if err != nil {
		return Webhook{}, "", err
	}
	made, err := h.Get(ctx, account, id)
	return made, s.Secret, err
}

// Get returns a webhook of an account, or fault.NotFound.
func (h *Service) Get(ctx context.Context, account, id db.ID) (Webhook, error) {
	found, err := db.All(ctx, h.o.DB, webhookQuery.With(account, id), scanWebhook)
	if err == nil && len(found) == 0 {
		err = errNotFound
	}
	if err != nil {
		return Webhook{}, err
	}
	return found[0], nil
}

// List returns a page of an account's webhooks, newest first.
func (h *Service) List(ctx context.Context, account db.ID, page db.Page) (hooks []Webhook, more bool, err error) {
	return db.ReadPage(ctx, h.o.DB, webhooksQuery, page, scanWebhook, account)
}

// maxUpdateTries is how often a change is begun anew because another came first.
const maxUpdateTries = 5

// Update changes a webhook and returns it as it is now. After it returned, no
// attempt begins here, and after a moment none on other nodes, on what was
// before. Errors are those of Create and Get; a fault.Conflict says that other
// calls changed it all the time.
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
		var waits bool
		if err := h.o.DB.One(ctx, pendingOtherDomainQuery.With(was.ID, c.OnlyDomain), &waits); err != nil {
			return err
		}
		if waits {
			return errDeliveriesPending
		}
	}
	if c.NoMailRead && !allowedWithoutMailRead(was, n) {
		return errMissingMailScope
	}
	assign(&is.Status, c.Status)
	if is.Status != was.Status {
		is.StatusAt, is.Reason = now, ""
		if is.Status == StatusDisabled {
			is.Reason = ReasonManual
		}
	}
	renew := is.Status == StatusEnabled && (was.Status != StatusEnabled || n.URL != was.URL)
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		changed, err := tx.Exec(ctx, updateWebhookQuery.With(was.Account, was.ID, n.URL, n.Description, encodeList(n.Kinds), encodeList(n.Domains), encodeList(n.Mailboxes),
			is.Status, is.Reason, db.Micros(is.StatusAt), db.Micros(now), was.revision, n.Content))
		if err == nil && changed == 0 {
			return errConcurrentChange
		}
		if err == nil && renew {
			_, err = tx.Exec(ctx, resetDispatchQuery.With(was.ID, db.Micros(now)))
		}
		tx.AfterCommit(func() { h.notifyChanged(was.ID) })
		return err
	})
}

// allowedWithoutMailRead reports whether a caller who may not read mail may make a change: it
// must not bring the content of mail to a place that the caller chooses.
func allowedWithoutMailRead(was Webhook, n Spec) bool {
	return !n.Content || was.Content &&
		n.URL == was.URL && slices.Equal(n.Kinds, was.Kinds) && slices.Equal(n.Domains, was.Domains) && slices.Equal(n.Mailboxes, was.Mailboxes)
}

// apply returns what a webhook becomes by a change.
func (c *Change) apply(w Webhook) Spec {
	n := Spec{URL: w.URL, Kinds: w.Kinds, Domains: w.Domains, Mailboxes: w.Mailboxes, Description: w.Description, Content: w.Content}
	assign(&n.URL, c.URL)
	assign(&n.Kinds, c.Kinds)
	assign(&n.Domains, c.Domains)
	assign(&n.Mailboxes, c.Mailboxes)
	assign(&n.Description, c.Description)
	assign(&n.Content, c.Content)
	return n
}

func assign[T any](dst, value *T) {
	if value != nil {
		*dst = *value
	}
}

// Delete deletes a webhook; its deliveries are no longer shown, and those that
// wait are not sent. A fault.NotFound says that there is none.
func (h *Service) Delete(ctx context.Context, account, id db.ID) error {
	return h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, deleteWebhookQuery.With(account, id, db.Micros(h.o.Now())))
		if err == nil && n == 0 {
			err = errNotFound
		}
		tx.AfterCommit(func() { h.notifyChanged(id) })
		return err
	})
}

// Rotate gives a webhook a fresh secret and returns it. X-Service-Signature is
// made with it at once; in webhook-signature the old one signs too for overlap,
// usually SecretOverlap, which is also the most. With 0 only the fresh one signs.
func (h *Service) Rotate(ctx context.Context, account, id db.ID, overlap time.Duration) (Webhook, string, error) {
	var s secrets
	err := h.o.DB.Tx(ctx, func(tx *db.Tx) error {
		var revision int64
		var sealed []byte
		err := tx.One(ctx, secretsQuery.With(account, id), &revision, &sealed)
		if errors.Is(err, db.ErrNoRow) {
			return errNotFound
		}
		if err != nil {
			return err
		}
		if s, err = h.openSecrets(sealed); err != nil {
			return err
		}
		now := h.o.Now()
		s.rotate(now, now.Add(min(max(overlap, 0), SecretOverlap)))
		if sealed, err = h.sealSecrets(s); err != nil {
			return err
		}
		n, err := tx.Exec(ctx, rotateSecretQuery.With(account, id, sealed, s.oldUntil(), db.Micros(now), revision))
		if err == nil && n == 0 {
			err = errConcurrentChange
		}
		tx.AfterCommit(func() { h.notifyChanged(id) })
		return err
	})
	if err != nil {
		return Webhook{}, "", err
	}
	w, err := h.Get(ctx, account, id)
	return w, s.Secret, err
}

// notifyChanged tells those who work for a webhook to look at it anew, here before it
// returns.
func (h *Service) notifyChanged(id db.ID) {
	h.mu.Lock()
	if l := h.dispatchers[id]; l != nil {
		l.stale.Store(true)
	}
	h.mu.Unlock()
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook, ID: int64(id)})
	h.o.Hub.Wake(notify.Key{Kind: notify.Webhook})
}

func scanWebhook(r db.Row) (w Webhook, err error) {
	var kinds, domains, mailboxes string
	var statusAt, old, created, updated, failing int64
	err = r.Scan(&w.ID, &w.Account, &w.URL, &w.Description, &kinds, &domains, &mailboxes, &w.Status, &w.Reason, &statusAt,
		&old, &created, &updated, &failing, &w.revision, &w.Content)
	w.Kinds = strings.Fields(kinds)
	w.Domains, w.Mailboxes = decodeIDs(domains), decodeIDs(mailboxes)
	w.StatusAt, w.OldSecretUntil, w.FailingSince = db.Time(statusAt), db.Time(old), db.Time(failing)
	w.CreatedAt, w.UpdatedAt = db.Time(created), db.Time(updated)
	return w, err
}

// encodeList is how a list stands in a column: each entry with a blank before and
// behind it, so that LIKE finds it; "" for none.
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
		n, _ := strconv.ParseInt(word, 10, 64) // we wrote it
		list = append(list, db.ID(n))
	}
	return list
}
