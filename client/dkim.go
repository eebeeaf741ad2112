// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// DKIMKey is a DKIM key of a domain. The private key is never returned.
type DKIMKey struct {
	ID        string     `json:"id"`
	Selector  string     `json:"selector"`
	Algorithm string     `json:"algorithm"` // rsa or ed25519
	Status    string     `json:"status"`    // pending until its record is found, then active; retiring after another replaces it, then retired
	Origin    string     `json:"origin"`    // service or own
	Record    Record     `json:"record"`    // publish it; remove it once the key is retired
	CreatedAt time.Time  `json:"created_at"`
	ActiveAt  *time.Time `json:"active_at"`  // since when it signs
	KeepUntil *time.Time `json:"keep_until"` // until when to keep the record of a retiring key
	RetiredAt *time.Time `json:"retired_at"`
}

// NewDKIMKey is a key of your own.
type NewDKIMKey struct {
	Selector   string `json:"selector"`
	PrivateKey string `json:"private_key"` // PEM: PKCS #8, or PKCS #1 for RSA
}

// DomainChange are changes to a domain; nil leaves a field unchanged.
type DomainChange struct {
	// DKIMRotationDays is the time between rotations of DKIM keys, at least 7 days; 0: never.
	DKIMRotationDays *int `json:"dkim_rotation_days,omitempty"`
	// Enforcement is the action for mail to the domain that fails the DMARC policy of its author's
	// domain: enforce, junk or off.
	Enforcement *string `json:"dmarc_enforcement,omitempty"`
	// Filtering is the action for mail to the domain that the spam filter rejects: enforce, junk or
	// off.
	Filtering *string `json:"spam_filtering,omitempty"`
	// STS is the mode of the domain's MTA-STS policy: none, testing or enforce.
	STS *string `json:"mta_sts,omitempty"`
}

// UpdateDomain changes a domain's settings.
func (c *Client) UpdateDomain(ctx context.Context, id string, change DomainChange) (*Domain, error) {
	b, err := jsonBody(change)
	if err != nil {
		return nil, err
	}
	return do[Domain](ctx, c, call{method: http.MethodPatch, path: "/domains/{id}", id: id, body: b, again: true})
}

// ListDKIMKeys returns a page of a domain's DKIM keys, newest first.
func (c *Client) ListDKIMKeys(ctx context.Context, domain string, p Paging) (*Page[DKIMKey], error) {
	return do[Page[DKIMKey]](ctx, c, call{method: http.MethodGet, path: "/domains/{id}/dkim", id: domain, query: p.into(nil)})
}

// DKIMKeys iterates over all DKIM keys of a domain, newest first. It stops after an error.
func (c *Client) DKIMKeys(ctx context.Context, domain string) iter.Seq2[DKIMKey, error] {
	return walk(func(p Paging) (*Page[DKIMKey], error) { return c.ListDKIMKeys(ctx, domain, p) })
}

// AddDKIMKey adds a key of your own. It signs once its record is found in the DNS. If the domain
// has used the selector before, it returns ErrConflict.
func (c *Client) AddDKIMKey(ctx context.Context, domain string, k NewDKIMKey) (*DKIMKey, error) {
	return post[DKIMKey](ctx, c, "/domains/{id}/dkim", domain, k, false)
}

// RotateDKIM creates new keys for those in use, or for one algorithm (rsa or ed25519). They sign
// once their records are found in the DNS. While one is pending, another rotation returns
// ErrConflict.
func (c *Client) RotateDKIM(ctx context.Context, domain, algorithm string) ([]DKIMKey, error) {
	in := call{method: http.MethodPost, path: "/domains/{id}/dkim/rotate", id: domain}
	if algorithm != "" {
		var err error
		if in.body, err = jsonBody(map[string]string{"algorithm": algorithm}); err != nil {
			return nil, err
		}
	}
	page, err := do[Page[DKIMKey]](ctx, c, in)
	if err != nil {
		return nil, err
	}
	return page.Data, nil
}

// DeleteDKIMKey deletes a key at once. It returns ErrConflict for the last key that the domain can
// sign with.
func (c *Client) DeleteDKIMKey(ctx context.Context, domain, key string) error {
	if key == "" || key == "." || key == ".." {
		return errors.New("mailstead: the id of the DKIM key is missing")
	}
	return c.run(ctx, call{method: http.MethodDelete, path: "/domains/{id}/dkim/" + url.PathEscape(key), id: domain})
}
