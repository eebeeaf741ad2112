// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// APIKey is what an application signs in with.
type APIKey struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint"`        // how the key begins
	Key        string     `json:"key"`         // the key itself, in the answer that made it
	Scopes     []string   `json:"scopes"`      // what it may do; * is everything
	Domain     string     `json:"domain"`      // the only domain it may act for; "" for all
	AllowedIPs []string   `json:"allowed_ips"` // where it may be used from; none for everywhere
	Limits     *KeyLimits `json:"limits"`      // of its own; nil for none
	ExpiresAt  *time.Time `json:"expires_at"`  // nil for never
	LastUsedAt *time.Time `json:"last_used_at"`
	ExposedAt  *time.Time `json:"exposed_at"` // when it was last sent without TLS; nil for never
	CreatedAt  time.Time  `json:"created_at"`
}

// NewAPIKey describes a key to be made. It can't be allowed more than the key
// that makes it.
type NewAPIKey struct {
	Name       string     `json:"name"`                  // what it is for
	Scopes     []string   `json:"scopes,omitempty"`      // RESOURCE.read, RESOURCE.write, outbound.send; as much as the maker if empty
	Domain     string     `json:"domain,omitempty"`      // the only domain it may act for
	AllowedIPs []string   `json:"allowed_ips,omitempty"` // addresses and networks it may be used from
	Limits     *KeyLimits `json:"limits,omitempty"`      // of its own, no higher than the account's
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
}

// CreateAPIKey makes a key, which this answer alone shows.
func (c *Client) CreateAPIKey(ctx context.Context, k NewAPIKey) (*APIKey, error) {
	return post[APIKey](ctx, c, "/api-keys", "", k, false)
}

// ListAPIKeys returns a page of keys, newest first.
func (c *Client) ListAPIKeys(ctx context.Context, p Paging) (*Page[APIKey], error) {
	return list[APIKey](ctx, c, "/api-keys", nil, p)
}

// APIKeys walks through all keys, newest first. After an error it ends.
func (c *Client) APIKeys(ctx context.Context) iter.Seq2[APIKey, error] {
	return walk(func(p Paging) (*Page[APIKey], error) { return c.ListAPIKeys(ctx, p) })
}

// DeleteAPIKey deletes a key, which stops working at once.
func (c *Client) DeleteAPIKey(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/api-keys/{id}", id: id})
}
