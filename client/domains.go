// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Domain is a name of yours, with the DNS records that it needs.
type Domain struct {
	ID              string     `json:"id"`
	Name            string     `json:"name"`             // in ASCII (A-labels)
	DisplayName     string     `json:"display_name"`     // in Unicode
	Status          string     `json:"status"`           // pending, verified, degraded, failed or suspended
	OwnershipStatus string     `json:"ownership_status"` // pending or verified
	Records         []Record   `json:"records"`
	RotationDays    int        `json:"dkim_rotation_days"` // after which DKIM keys are replaced; 0 for never
	Enforcement     string     `json:"dmarc_enforcement"`  // enforce, junk or off
	Filtering       string     `json:"spam_filtering"`     // likewise, of what the spam filter wants
	STS             string     `json:"mta_sts"`            // none, testing or enforce
	CreatedAt       time.Time  `json:"created_at"`
	VerifiedAt      *time.Time `json:"verified_at"`     // when it last became verified
	LastCheckedAt   *time.Time `json:"last_checked_at"` // when its records were last looked for
	NextCheckAt     *time.Time `json:"next_check_at"`   // when they will be looked for again
}

// Record is a DNS record to publish, and what was seen of it.
type Record struct {
	Kind          string     `json:"kind"` // MX, SPF, DKIM, DMARC, OWNERSHIP, or a recommended one; of the service ADDRESS and REVERSE, too
	Type          string     `json:"type"` // of DNS
	Name          string     `json:"name"`
	Value         string     `json:"value"`
	Priority      *int       `json:"priority"` // of MX and SRV
	TTL           int        `json:"ttl"`      // seconds
	Required      bool       `json:"required"` // whether the domain is verified only with it
	Status        string     `json:"status"`   // pending, verified, failed or temporary_failure
	Observed      []string   `json:"observed"` // what the DNS said
	Error         string     `json:"error"`    // what is wrong, and what to do; "" if nothing is
	Note          string     `json:"note"`     // how long to keep it, of a DKIM key that is new or no longer used; what it is for, of the service
	LastCheckedAt *time.Time `json:"last_checked_at"`
}

// Ownership is the record that proves that a domain is yours.
type Ownership struct {
	ID              string `json:"id"` // of the domain
	Name            string `json:"name"`
	OwnershipStatus string `json:"ownership_status"` // pending or verified
	Record          Record `json:"record"`
}

// CreateDomain adds a domain by its name, in ASCII or Unicode. The answer
// lists the records to publish.
func (c *Client) CreateDomain(ctx context.Context, name string) (*Domain, error) {
	return post[Domain](ctx, c, "/domains", "", map[string]string{"name": name}, false)
}

// ListDomains returns a page of your domains, newest first.
func (c *Client) ListDomains(ctx context.Context, p Paging) (*Page[Domain], error) {
	return list[Domain](ctx, c, "/domains", nil, p)
}

// Domains walks through all your domains, newest first. After an error it
// ends.
func (c *Client) Domains(ctx context.Context) iter.Seq2[Domain, error] {
	return walk(func(p Paging) (*Page[Domain], error) { return c.ListDomains(ctx, p) })
}

// GetDomain shows a domain with its records.
func (c *Client) GetDomain(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodGet, path: "/domains/{id}", id: id})
}

// DeleteDomain deletes a domain: it ceases to send and to receive at once. One
// with mailboxes can't be deleted (ErrConflict).
func (c *Client) DeleteDomain(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/domains/{id}", id: id})
}

// VerifyDomain asks the DNS now for the record that proves that the domain is
// yours.
func (c *Client) VerifyDomain(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodPost, path: "/domains/{id}/verify", id: id, again: true})
}

// GetDomainVerification shows the record that proves that the domain is yours.
func (c *Client) GetDomainVerification(ctx context.Context, id string) (*Ownership, error) {
	return do[Ownership](ctx, c, call{method: http.MethodGet, path: "/domains/{id}/verify", id: id})
}

// VerifyDomainDNS asks the DNS now for all records of a domain.
func (c *Client) VerifyDomainDNS(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodPost, path: "/domains/{id}/verify-dns", id: id, again: true})
}

// GetDomainZone returns the records of a domain as a zone file (RFC 1035
// section 5).
func (c *Client) GetDomainZone(ctx context.Context, id string) (string, error) {
	var zone strings.Builder
	err := c.run(ctx, call{method: http.MethodGet, path: "/domains/{id}/zone", id: id, into: &zone})
	return zone.String(), err
}
