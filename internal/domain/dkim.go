// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"crypto"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// The states of a DKIM key.
const (
	KeyPending  = "pending"  // to be published; used after it was seen in the DNS
	KeyActive   = "active"   // signs mail
	KeyRetiring = "retiring" // replaced by another; stays published for a while
	KeyRetired  = "retired"  // destroyed; its record can be removed
)

// DKIMKey is a DKIM key of a domain. The private key is never shown.
type DKIMKey struct {
	ID               db.ID
	Selector         string
	Algorithm        string // rsa or ed25519
	State            string
	CustomerProvided bool   // provided by the customer, not generated here
	Record           Record // record to publish, with what was seen of it; RecordPending for a retired key
	CreatedAt        time.Time
	ActiveAt         time.Time // when it was first used; zero for never
	PublishUntil     time.Time // for a retiring key; else zero
	RetiredAt        time.Time // for a retired key; else zero
}

const (
	// retiringKeyPeriod is how long a key stays published after it was replaced, so that mail in
	// transit, and mail that is verified again, can be verified.
	retiringKeyPeriod = 7 * 24 * time.Hour
	// retiredKeyRetention is how long a retired key is listed.
	retiredKeyRetention = 90 * 24 * time.Hour
	// maxKeys limits a domain's keys that are not retired.
	maxKeys = 20
	// maxSelectorLabels limits the labels of a selector.
	maxSelectorLabels = 4
)

// key is a DKIM key as stored.
type key struct {
	id, domain       db.ID
	selector         string
	algorithm        string
	record           string
	seen             bool // in the DNS, at the last check with an answer
	state            string
	customerProvided bool // by the customer

	createdAt, activeAt time.Time
	retireAt            time.Time // retiring: end of that period; retired: time of retirement

	sealedPrivate []byte // sealed private key; only set for a new key
}

// keyColumns are the columns that scanKey scans.
const keyColumns = `k.id, k.domain, k.selector, k.algorithm, k.record, k.seen, k.state, k.imported, k.created_at, k.active_at, k.until_at`

var (
	insertKeyQuery = db.SQL(`INSERT INTO dkim_key (id, domain, selector, algorithm, private_key, record, seen, state, imported, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, FALSE, $7, $8, $9)`)
	domainKeysQuery = db.SQL(`SELECT ` + keyColumns + ` FROM dkim_key k WHERE domain = $1 ORDER BY k.id`)
	keyPageQuery    = db.PagedSQL(`SELECT ` + keyColumns + ` FROM dkim_key k WHERE {page domain = $1}`)
	updateKeyQuery  = db.SQL(`UPDATE dkim_key SET seen = $2, state = $3, active_at = $4, until_at = $5 WHERE id = $1`)
	// The private key is destroyed; the selector stays taken.
	retireKeyQuery = db.SQL(`UPDATE dkim_key SET seen = FALSE, state = 'retired', until_at = $2, private_key = $3 WHERE id = $1`)
	deleteKeyQuery = db.SQL(`DELETE FROM dkim_key WHERE id = $1 AND domain = $2`)
	checkSoonQuery = db.SQL(`UPDATE domain SET checks = 0, next_check_at = CASE WHEN next_check_at > $2 THEN $2 ELSE next_check_at END
		WHERE id = $1`)
)

func (k *key) insertStatement() db.Statement {
	return insertKeyQuery.With(k.id, k.domain, k.selector, k.algorithm, k.sealedPrivate, k.record, k.state, k.customerProvided, db.Micros(k.createdAt))
}

func scanKey(r db.Row) (key, error) {
	var k key
	err := r.Scan(&k.id, &k.domain, &k.selector, &k.algorithm, &k.record, &k.seen, &k.state, &k.customerProvided, db.TimeScanner(&k.createdAt), db.TimeScanner(&k.activeAt), db.TimeScanner(&k.retireAt))
	return k, err
}

// recordLabel returns the part of the record's name before the domain.
func (k *key) recordLabel() string { return k.selector + "._domainkey." }

// recordNote explains a key's record while the key is not active.
func (k *key) recordNote() string {
	switch k.state {
	case KeyPending:
		return "A new DKIM key: publish it beside the others. Mail is signed with it once it was seen."
	case KeyRetiring:
		return "A DKIM key that is no longer used: keep it until " + k.retireAt.UTC().Format(timeFormat) + ", since mail that it signed is still under way."
	}
	return ""
}

// timeFormat is the format of times in text.
const timeFormat = "2 January 2006 15:04 MST"

// toDKIMKey returns the account's view of a key.
func (d *Domains) toDKIMKey(c *claim, k *key) DKIMKey {
	out := DKIMKey{
		ID: k.id, Selector: k.selector, Algorithm: k.algorithm, State: k.state, CustomerProvided: k.customerProvided, CreatedAt: k.createdAt, ActiveAt: k.activeAt,
		Record: Record{
			Kind: KindDKIM, Type: "TXT", Name: k.recordLabel() + c.name, Value: k.record, TTL: recordTTL, Status: RecordPending, Observed: []string{},
			Required: k.state == KeyActive, Note: k.recordNote(),
		},
	}
	switch k.state {
	case KeyActive:
		if k.activeAt.IsZero() { // the domain is new
			out.State = KeyPending
		}
	case KeyRetiring:
		out.PublishUntil = k.retireAt
	case KeyRetired:
		out.RetiredAt = k.retireAt
		out.Record.Note = "This key was destroyed. Remove its record from the DNS."
		return out
	}
	out.Record = d.withObservations([]Record{out.Record}, c.observations)[0]
	return out
}

// Keys returns a page of a domain's DKIM keys, newest first, and whether there are more. If the
// account has no such domain, it returns fault.NotFound.
func (d *Domains) Keys(ctx context.Context, account, id db.ID, page db.Page) ([]DKIMKey, bool, error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	if err != nil {
		return nil, false, err
	}
	keys, more, err := db.ReadPage(ctx, d.DB, keyPageQuery, page, scanKey, id)
	all := make([]DKIMKey, len(keys))
	for i := range keys {
		all[i] = d.toDKIMKey(c, &keys[i])
	}
	return all, more, err
}

// AddKey adds a DKIM key that the customer generated: a selector, which is lower-cased, and the
// private key as mailauth.ParsePEMKey reads it. It is used after its record was seen, and replaces
// the key of its algorithm. Invalid values are a fault.Invalid with fields selector and
// private_key. It returns fault.Conflict if the domain has the selector already, or a pending key
// of the algorithm.
func (d *Domains) AddKey(ctx context.Context, account, id db.ID, selector, pem string) (DKIMKey, error) {
	c, err := findClaim(ctx, d.DB, accountDomainQuery.With(id, account))
	if err != nil {
		return DKIMKey{}, err
	}
	private, selector, err := parseCustomerKey(c.name, selector, pem)
	if err != nil {
		return DKIMKey{}, err
	}
	k, err := d.sealKey(id, selector, private)
	if err != nil {
		return DKIMKey{}, err
	}
	k.customerProvided = true
	added, err := d.addPendingKeys(ctx, account, id, []key{k}, nil)
	if err != nil {
		return DKIMKey{}, err
	}
	return d.toDKIMKey(c, &added[0]), nil
}

func parseCustomerKey(domain, selector, pem string) (crypto.Signer, string, error) {
	var bad fault.FieldErrors
	selector = strings.ToLower(strings.TrimSpace(selector))
	if problem := checkSelector(selector, domain); problem != "" {
		bad.Add("selector", "invalid_selector", "%s", problem)
	}
	private, err := mailauth.ParsePEMKey(pem)
	if f, ok := errors.AsType[*fault.Error](err); ok {
		bad.Add("private_key", f.Code, "%s", f.Message)
	} else if err != nil {
		return nil, "", err
	}
	return private, selector, bad.Err()
}

// checkSelector returns what is wrong with a selector (RFC 6376 §3.1), or "".
func checkSelector(selector, domain string) string {
	labels := strings.Split(selector, ".")
	for _, label := range labels {
		inner := strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789")
		if label == "" || len(label) > 63 || strings.Trim(inner, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return "A selector is made of letters, digits and hyphens, such as s1 or mail-2026; not at its ends."
		}
	}
	if len(labels) > maxSelectorLabels {
		return "The selector has too many dots."
	}
	if len(selector)+len("._domainkey.")+len(domain) > 253 {
		return "The selector is too long."
	}
	return ""
}

// addPendingKeys inserts pending keys, all or none. also, if not nil, runs while the domain is
// locked and may return an error.
func (d *Domains) addPendingKeys(ctx context.Context, account, id db.ID, keys []key, also func(there []key) error) ([]key, error) {
	now := d.Now().UTC().Truncate(time.Microsecond)
	for i := range keys {
		keys[i].state, keys[i].createdAt = KeyPending, now
	}
	err := d.updateKeys(ctx, account, id, func(tx *db.Tx, there []key) error {
		if also != nil {
			if err := also(there); err != nil {
				return err
			}
		}
		live := 0
		for _, old := range there {
			if old.state != KeyRetired {
				live++
			}
			for _, k := range keys {
				switch {
				case old.selector == k.selector:
					return fault.New(fault.Conflict, "selector_taken", "This domain has a DKIM key with this selector already, or had one not long ago.")
				case old.state == KeyPending && old.algorithm == k.algorithm:
					return errKeyPending
				}
			}
		}
		if live+len(keys) > maxKeys {
			return fault.New(fault.Conflict, "too_many_keys", "A domain can have %d DKIM keys that are not retired. Delete some first.", maxKeys)
		}
		write := []db.Statement{checkSoonQuery.With(id, db.Micros(now.Add(d.FirstCheckDelay)))}
		for i := range keys {
			write = append(write, keys[i].insertStatement())
		}
		return tx.Run(ctx, write...)
	})
	return keys, err
}

var errKeyPending = fault.New(fault.Conflict, "key_pending",
	"A new key of this algorithm waits to be seen in the DNS. Publish its record, or delete the key first.")

// updateKeys changes a domain's keys while its row is locked, so that key changes and DNS checks
// run one after the other.
func (d *Domains) updateKeys(ctx context.Context, account, id db.ID, change func(tx *db.Tx, keys []key) error) error {
	return d.DB.Tx(ctx, func(tx *db.Tx) error {
		if err := db.IfNoRow(tx.One(ctx, lockDomainQuery.With(id, account), new(db.ID)), notFound()); err != nil {
			return err
		}
		keys, err := db.All(ctx, tx, domainKeysQuery.With(id), scanKey)
		if err != nil {
			return err
		}
		tx.AfterCommit(func() { d.notifyChanged(id) })
		return change(tx, keys)
	})
}

// DeleteKey destroys a DKIM key immediately. Its record is no longer expected; once that is
// removed, mail that it signed can't be verified. It returns fault.Conflict for the last active
// key, and for the last active key that was seen in the DNS. It returns fault.NotFound if the
// domain has no such key.
func (d *Domains) DeleteKey(ctx context.Context, account, id, dkim db.ID) error {
	return d.updateKeys(ctx, account, id, func(tx *db.Tx, keys []key) error {
		at := slices.IndexFunc(keys, func(k key) bool { return k.id == dkim })
		if at < 0 {
			return fault.New(fault.NotFound, "not_found", "The domain has no DKIM key with this id.")
		}
		if err := checkDeletable(keys, at); err != nil {
			return err
		}
		return tx.Run(ctx, deleteKeyQuery.With(dkim, id), checkSoonQuery.With(id, db.Micros(d.Now().Add(d.FirstCheckDelay))))
	})
}

// checkDeletable returns a fault if the domain needs the key.
func checkDeletable(keys []key, at int) error {
	k := keys[at]
	if k.state != KeyActive {
		return nil
	}
	others, seen := 0, false
	for i, other := range keys {
		if i != at && other.state == KeyActive {
			others++
			seen = seen || other.seen
		}
	}
	if others == 0 || k.seen && !seen {
		return fault.New(fault.Conflict, "last_key", "Without this DKIM key the domain could not send. Rotate it, or add another, and delete it once that is active.")
	}
	return nil
}
