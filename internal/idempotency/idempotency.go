// SPDX-License-Identifier: Apache-2.0

// Package idempotency makes a request that is repeated with the same key take effect once. The
// commit of the request's changes also reserves the key: if two requests race, on any nodes, one
// commits and the other is declined with ErrKeyUsed. The response is stored in the same commit, or
// in one of its own afterwards. Only responses of success are stored.
//
// If a node ends between the two commits, the key stays reserved and its request counts as
// in progress for a while, then as one whose result is unknown.
//
// A key belongs to the principal that used it, for example one API key or one mailbox. The same key
// from another principal of the account is a separate request.
package idempotency

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/secret"
)

const (
	// TTL is how long a response is stored.
	TTL = 24 * time.Hour
	// MaxKeyLength is the maximum length of a key in characters.
	MaxKeyLength = 256
	// MaxResponseBytes is the maximum size of a stored response.
	MaxResponseBytes = 128 << 10

	// pendingTime is how long a request counts as in progress after it reserved its key, if another
	// node can't tell.
	pendingTime    = time.Minute
	sealPurpose    = "idempotency"
	pruneInterval  = 10 * time.Minute
	pruneBatchRows = 500 // rows per transaction
)

// ErrKeyUsed declines a commit because another request with the same key was faster.
var ErrKeyUsed error = inFlight()

func inFlight() *fault.Error {
	f := fault.New(fault.Conflict, "idempotency_in_flight",
		"A request with this idempotency key is being carried out. Repeat this one in a moment to get its answer.")
	f.RetryAfter = time.Second
	return f
}

var errResultUnknown = fault.New(fault.Conflict, "idempotency_result_unknown",
	"A request with this idempotency key was begun, and its answer is not known: the service may have been interrupted. "+
		"Look whether it took effect. If it did not, make the request again with a new key.")

// Keys manages the keys in use on this node, and the stored responses of all nodes.
type Keys struct {
	db  *db.DB
	key *secret.Key // encrypts the responses, which may contain secrets
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

// New returns the Keys of a database. key encrypts the stored responses.
func New(d *db.DB, key *secret.Key, now func() time.Time) *Keys {
	return &Keys{db: d, key: key, now: now, inFlight: map[scope]bool{}}
}

var (
	findQuery = db.SQL(`SELECT sum, response, pending_until FROM idempotency WHERE account = $1 AND path = $2 AND key = $3 AND expires_at > $4`)
	// A request may store its own row again, to add the response.
	storeQuery = db.SQL(`INSERT INTO idempotency (account, path, key, token, sum, response, pending_until, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (account, path, key) DO UPDATE SET token = excluded.token, sum = excluded.sum, response = excluded.response,
			pending_until = excluded.pending_until, expires_at = excluded.expires_at
		WHERE idempotency.expires_at <= $9 OR idempotency.token = excluded.token AND length(idempotency.response) = 0`)
	deleteQuery  = db.SQL(`DELETE FROM idempotency WHERE account = $1 AND path = $2 AND key = $3 AND token = $4`)
	unknownQuery = db.SQL(`UPDATE idempotency SET pending_until = 0 WHERE account = $1 AND path = $2 AND key = $3 AND token = $4 AND length(response) = 0`)
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
	token    int64
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
		return nil, inFlight()
	}
	k.inFlight[s] = true
	return &Claim{keys: k, scope: s, token: rand.Int64()}, nil //nolint:gosec // tells requests apart, and is no secret
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

// StoredResponse is the response to an earlier request with a key.
type StoredResponse struct{ sum, response []byte }

// Load returns what is stored under the key, or nil. A request without a response is a
// fault.Conflict: with the code idempotency_in_flight if it may be in progress on another node,
// and idempotency_result_unknown if it was interrupted.
func (c *Claim) Load(ctx context.Context) (*StoredResponse, error) {
	var s StoredResponse
	var pendingUntil int64
	now := c.keys.now()
	err := c.keys.db.One(ctx, findQuery.With(c.account, c.pathColumn(), c.key, db.Micros(now)), &s.sum, &s.response, &pendingUntil)
	switch {
	case err != nil:
		return nil, db.IfNoRow(err, nil)
	case len(s.response) == 0 && pendingUntil > db.Micros(now):
		return nil, inFlight()
	case len(s.response) == 0:
		return nil, errResultUnknown
	}
	s.response, err = c.keys.key.Open(sealPurpose, s.response)
	return &s, err
}

// Response returns the response if it is for a request with the same content, of which sum is the
// checksum. Otherwise it returns a fault.Invalid with the code idempotency_key_reused.
func (s *StoredResponse) Response(sum [sha256.Size]byte) ([]byte, error) {
	if string(s.sum) != string(sum[:]) {
		return nil, fault.New(fault.Invalid, "idempotency_key_reused",
			"This idempotency key was used with another request. Make a new key for each request.")
	}
	return s.response, nil
}

// LoadResponse is Load and Response: it returns the response stored for a request with this
// checksum, or nil.
func (c *Claim) LoadResponse(ctx context.Context, sum [sha256.Size]byte) ([]byte, error) {
	s, err := c.Load(ctx)
	if s == nil || err != nil {
		return nil, err
	}
	return s.Response(sum)
}

// StoreResponse queues the statement that stores a response, which must not be empty, as a guard.
// It declines the mutation with ErrKeyUsed when the key is used already.
func (c *Claim) StoreResponse(b *db.Batch, sum [sha256.Size]byte, response []byte) {
	b.Queue(c.storeStatement(sum[:], c.keys.key.Seal(sealPurpose, response))).OrFail(ErrKeyUsed)
}

// CommitGuard returns a guard that reserves the key, and declines a commit with ErrKeyUsed when the
// key is used already. sum returns the checksum of the request's content at the time of the commit.
func (c *Claim) CommitGuard(sum func() [sha256.Size]byte) *db.CommitGuard {
	return &db.CommitGuard{
		Statement: func() db.Statement {
			of := sum()
			return c.storeStatement(of[:], nil)
		},
		Declined: ErrKeyUsed,
	}
}

// SaveResponse stores a response in a commit of its own, after the request's changes. It returns
// ErrKeyUsed if the request did not reserve the key and another one did meanwhile.
func (c *Claim) SaveResponse(ctx context.Context, sum [sha256.Size]byte, response []byte) error {
	return c.keys.db.ExecOrFail(ctx, c.storeStatement(sum[:], c.keys.key.Seal(sealPurpose, response)), ErrKeyUsed)
}

// Cancel gives up the reservation of a request that was refused, so that the key can be used again.
func (c *Claim) Cancel(ctx context.Context) error {
	_, err := c.keys.db.Exec(ctx, deleteQuery.With(c.account, c.pathColumn(), c.key, c.token))
	return err
}

// MarkUnknown records that the request has ended, and that its result is not known.
func (c *Claim) MarkUnknown(ctx context.Context) error {
	_, err := c.keys.db.Exec(ctx, unknownQuery.With(c.account, c.pathColumn(), c.key, c.token))
	return err
}

// storeStatement returns the statement that stores the key with a sealed response, or reserves it
// without one.
func (c *Claim) storeStatement(sum, sealed []byte) db.Statement {
	now := c.keys.now()
	if sealed == nil {
		sealed = []byte{}
	}
	return storeQuery.With(c.account, c.pathColumn(), c.key, c.token, sum, sealed,
		db.Micros(now.Add(pendingTime)), db.Micros(now.Add(TTL)), db.Micros(now))
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
