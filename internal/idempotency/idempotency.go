// SPDX-License-Identifier: Apache-2.0

// Package idempotency makes a request that is repeated with the same key take effect once. A guard
// stores the response in the same commit as the request's changes. If two requests race, on any
// nodes, one commits and the other finds its response. Only responses of success are stored.
//
// A key belongs to the principal that used it, for example one API key or one mailbox. The same key
// from another principal of the account is a separate request.
package idempotency

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

const (
	// TTL is how long a response is stored.
	TTL = 24 * time.Hour
	// MaxKeyLength is the maximum length of a key in characters.
	MaxKeyLength = 256

	pruneInterval  = 10 * time.Minute
	pruneBatchRows = 500 // rows per transaction
)

// ErrKeyUsed declines a commit because another request with the same key was faster, and has stored
// its response.
var ErrKeyUsed = errors.New("the idempotency key was used meanwhile")

// Keys manages the keys in use on this node, and the stored responses of all nodes.
type Keys struct {
	db  *db.DB
	now func() time.Time

	mu       sync.Mutex
	inFlight map[scope]bool
}

// scope is a key with the account, principal and path that it is valid for.
type scope struct {
	account   db.ID
	principal string
	path, key string
}

// APIKeyPrincipal returns the principal of an API key.
func APIKeyPrincipal(id db.ID) string { return "api-key:" + id.String() }

// pathColumn returns the principal and the path as the table stores them.
func (s scope) pathColumn() string { return s.principal + " " + s.path }

// New returns the Keys of a database.
func New(d *db.DB, now func() time.Time) *Keys {
	return &Keys{db: d, now: now, inFlight: map[scope]bool{}}
}

var (
	findQuery  = db.SQL(`SELECT sum, response FROM idempotency WHERE account = $1 AND path = $2 AND key = $3 AND expires_at > $4`)
	storeQuery = db.SQL(`INSERT INTO idempotency (account, path, key, sum, response, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (account, path, key) DO UPDATE SET sum = excluded.sum, response = excluded.response, expires_at = excluded.expires_at
		WHERE idempotency.expires_at <= $7`)
	// If a row was changed meanwhile, PostgreSQL only rechecks the outer condition. With
	// it, a key that is used again keeps its response. The + 0 prevents an index scan of
	// all expired rows for it.
	pruneQuery = db.SQL(`DELETE FROM idempotency WHERE expires_at + 0 <= $1 AND (account, path, key) IN
		(SELECT account, path, key FROM idempotency WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`)
)

// Claim is a key whose request is in progress.
type Claim struct {
	keys *Keys
	scope
	released bool
}

// Claim claims a key for a request of a principal of an account. path names the requested
// operation: the same key with another path or principal is a different one. principal is a word
// without blanks. A key that is not 1 to MaxKeyLength printable characters is a fault.Invalid. A
// key whose request is in progress on this node is a fault.Conflict with the code
// idempotency_in_flight. The caller must call Release.
func (k *Keys) Claim(account db.ID, principal, path, key string) (*Claim, error) {
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) }
	if key == "" || !utf8.ValidString(key) || utf8.RuneCountInString(key) > MaxKeyLength || strings.ContainsFunc(key, unprintable) {
		return nil, fault.New(fault.Invalid, "invalid_idempotency_key", "An idempotency key is 1 to %d printable characters.", MaxKeyLength)
	}
	s := scope{account, principal, path, key}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inFlight[s] {
		f := fault.New(fault.Conflict, "idempotency_in_flight",
			"A request with this idempotency key is being carried out. Repeat this one in a moment to get its answer.")
		f.RetryAfter = time.Second
		return nil, f
	}
	k.inFlight[s] = true
	return &Claim{keys: k, scope: s}, nil
}

// Release releases the key. It may be called on nil, and more than once.
func (c *Claim) Release() {
	if c == nil || c.released {
		return
	}
	c.released = true
	c.keys.mu.Lock()
	defer c.keys.mu.Unlock()
	delete(c.keys.inFlight, c.scope)
}

// LoadResponse returns the response that is stored under the key, or nil. sum is the checksum of
// the request's body. If the response is for another body, it returns a fault.Invalid with the code
// idempotency_key_reused.
func (c *Claim) LoadResponse(ctx context.Context, sum [sha256.Size]byte) ([]byte, error) {
	var of, response []byte
	err := c.keys.db.One(ctx, findQuery.With(c.account, c.pathColumn(), c.key, db.Micros(c.keys.now())), &of, &response)
	switch {
	case err != nil:
		return nil, db.IfNoRow(err, nil)
	case string(of) != string(sum[:]):
		return nil, fault.New(fault.Invalid, "idempotency_key_reused",
			"This idempotency key was used with another request. Make a new key for each request.")
	}
	return response, nil
}

// StoreResponse queues the statement that stores a response, which must not be empty, as a guard.
// It declines the mutation with ErrKeyUsed when the key has a response already.
func (c *Claim) StoreResponse(b *db.Batch, sum [sha256.Size]byte, answer []byte) {
	now := c.keys.now()
	b.Queue(storeQuery.With(c.account, c.pathColumn(), c.key, sum[:], answer, db.Micros(now.Add(TTL)), db.Micros(now))).OrFail(ErrKeyUsed)
}

// Prune deletes expired responses, and returns how many.
func (k *Keys) Prune(ctx context.Context) (deleted int64, err error) {
	for {
		n, err := k.db.Exec(ctx, pruneQuery.With(db.Micros(k.now()), pruneBatchRows))
		deleted += n
		if err != nil || n < pruneBatchRows {
			return deleted, err
		}
	}
}

// Run prunes until ctx ends.
func (k *Keys) Run(ctx context.Context, log *slog.Logger) error {
	notify.Repeat(ctx, nil, func(ctx context.Context) (time.Duration, error) {
		_, err := k.Prune(ctx)
		return pruneInterval, err
	}, func(err error) { log.Error("pruning idempotency keys failed", "error", err) })
	return nil
}
