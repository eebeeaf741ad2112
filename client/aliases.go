// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Alias is an address whose mail goes to other addresses.
type Alias struct {
	ID        string    `json:"id"`
	DomainID  string    `json:"domain_id"`
	Address   string    `json:"address"` // *@example.com is a catch-all
	Targets   []string  `json:"targets"` // addresses of mailboxes or elsewhere
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// CreateAlias creates an alias for an address on a domain of yours. Its targets are ids or
// addresses of mailboxes, or addresses elsewhere, at most 100. If the address is in use, it returns
// ErrConflict.
func (c *Client) CreateAlias(ctx context.Context, address string, targets ...string) (*Alias, error) {
	return post[Alias](ctx, c, "/aliases", "", struct {
		Address string   `json:"address"`
		Targets []string `json:"targets"`
	}{address, targets}, false)
}

// ListAliases returns a page of aliases, newest first; domainID "" means all domains.
func (c *Client) ListAliases(ctx context.Context, domainID string, p Paging) (*Page[Alias], error) {
	q := url.Values{}
	set(q, "domain_id", domainID)
	return list[Alias](ctx, c, "/aliases", q, p)
}

// Aliases iterates over all aliases, newest first; domainID "" means all domains. It stops after an
// error.
func (c *Client) Aliases(ctx context.Context, domainID string) iter.Seq2[Alias, error] {
	return walk(func(p Paging) (*Page[Alias], error) { return c.ListAliases(ctx, domainID, p) })
}

// GetAlias returns an alias.
func (c *Client) GetAlias(ctx context.Context, id string) (*Alias, error) {
	return do[Alias](ctx, c, call{method: http.MethodGet, path: "/aliases/{id}", id: id})
}

// UpdateAlias replaces the targets of an alias.
func (c *Client) UpdateAlias(ctx context.Context, id string, targets ...string) (*Alias, error) {
	b, err := jsonBody(struct {
		Targets []string `json:"targets"`
	}{targets})
	if err != nil {
		return nil, err
	}
	return do[Alias](ctx, c, call{method: http.MethodPatch, path: "/aliases/{id}", id: id, body: b, again: true})
}

// DeleteAlias deletes an alias; its address can be used again.
func (c *Client) DeleteAlias(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/aliases/{id}", id: id})
}
