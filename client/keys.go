// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"time"
)

// APIKey is a key that an application authenticates with.
type APIKey struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint"`        // first characters of the key
	Key        string     `json:"key"`         // the key itself; only in the response that created it
	Scopes     []string   `json:"scopes"`      // permissions; * is everything
	Domain     string     `json:"domain"`      // only this domain; "" for all
	AllowedIPs []string   `json:"allowed_ips"` // permitted client addresses; none: all
	Limits     *KeyLimits `json:"limits"`      // the key's own; nil for none
	ExpiresAt  *time.Time `json:"expires_at"`  // nil: never
	LastUsedAt *time.Time `json:"last_used_at"`
	ExposedAt  *time.Time `json:"exposed_at"` // last time it was sent without TLS; nil: never
	CreatedAt  time.Time  `json:"created_at"`
}

// NewAPIKey is an API key to create. It can't have more permissions than the key that creates it.
type NewAPIKey struct {
	Name       string     `json:"name"`                  // purpose
	Scopes     []string   `json:"scopes,omitempty"`      // RESOURCE.read, RESOURCE.write, outbound.send; empty: those of the creating key
	Domain     string     `json:"domain,omitempty"`      // only this domain
	AllowedIPs []string   `json:"allowed_ips,omitempty"` // permitted client addresses and networks
	Limits     *KeyLimits `json:"limits,omitempty"`      // the key's own, no higher than the account's
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
}

// CreateAPIKey creates a key. The key itself is only in this response.
func (c *Client) CreateAPIKey(ctx context.Context, k NewAPIKey) (*APIKey, error) {
	return post[APIKey](ctx, c, "/api-keys", "", k, false)
}

// ListAPIKeys returns a page of keys, newest first.
func (c *Client) ListAPIKeys(ctx context.Context, p Paging) (*Page[APIKey], error) {
	return list[APIKey](ctx, c, "/api-keys", nil, p)
}

// APIKeys iterates over all keys, newest first. It stops after an error.
func (c *Client) APIKeys(ctx context.Context) iter.Seq2[APIKey, error] {
	return walk(func(p Paging) (*Page[APIKey], error) { return c.ListAPIKeys(ctx, p) })
}

// DeleteAPIKey deletes a key; it stops working at once.
func (c *Client) DeleteAPIKey(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/api-keys/{id}", id: id})
}
