// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Domain is a domain of yours, with its DNS records.
type Domain struct {
	ID                string     `json:"id"`
	Name              string     `json:"name"`             // in ASCII (A-labels)
	DisplayName       string     `json:"display_name"`     // in Unicode
	Status            string     `json:"status"`           // pending, verified, degraded, failed or suspended
	OwnershipStatus   string     `json:"ownership_status"` // pending or verified
	CanSend           bool       `json:"can_send"`
	CanSendReasons    []Blocker  `json:"can_send_reasons"` // empty if it can
	CanReceive        bool       `json:"can_receive"`
	CanReceiveReasons []Blocker  `json:"can_receive_reasons"` // empty if it can
	Records           []Record   `json:"records"`
	RotationDays      int        `json:"dkim_rotation_days"` // days between rotations of DKIM keys; 0: never
	Enforcement       string     `json:"dmarc_enforcement"`  // enforce, junk or off
	Filtering         string     `json:"spam_filtering"`     // the same, for the spam filter
	STS               string     `json:"mta_sts"`            // none, testing or enforce
	CreatedAt         time.Time  `json:"created_at"`
	VerifiedAt        *time.Time `json:"verified_at"`     // last time it became verified
	LastCheckedAt     *time.Time `json:"last_checked_at"` // last check of its records
	NextCheckAt       *time.Time `json:"next_check_at"`   // next check of its records
}

// Blocker is a reason why a domain can't send or receive.
type Blocker struct {
	Reason string `json:"reason"` // ownership_not_verified, dkim_not_verified, mx_not_verified or suspended
	Detail string `json:"detail"` // for people
}

// Record is a DNS record to publish, and its current state.
type Record struct {
	Kind          string     `json:"kind"` // MX, SPF, DKIM, DMARC, OWNERSHIP, or a recommended one; the service's also ADDRESS and REVERSE
	Type          string     `json:"type"` // DNS record type
	Name          string     `json:"name"`
	Value         string     `json:"value"`
	Priority      *int       `json:"priority"` // for MX and SRV
	TTL           int        `json:"ttl"`      // seconds
	Required      bool       `json:"required"` // whether verification requires it
	Status        string     `json:"status"`   // pending, verified, failed or temporary_failure
	Observed      []string   `json:"observed"` // values in the DNS
	Error         string     `json:"error"`    // what is wrong, and how to fix it; "" if nothing
	Note          string     `json:"note"`     // how long to keep the record of a new or retired DKIM key; purpose of a record of the service
	LastCheckedAt *time.Time `json:"last_checked_at"`
}

// Ownership is the record that proves that you own a domain.
type Ownership struct {
	ID              string `json:"id"` // domain id
	Name            string `json:"name"`
	OwnershipStatus string `json:"ownership_status"` // pending or verified
	Record          Record `json:"record"`
}

// CreateDomain adds a domain by its name, in ASCII or Unicode. The response lists the records to
// publish.
func (c *Client) CreateDomain(ctx context.Context, name string) (*Domain, error) {
	return post[Domain](ctx, c, "/domains", "", map[string]string{"name": name}, false)
}

// ListDomains returns a page of your domains, newest first.
func (c *Client) ListDomains(ctx context.Context, p Paging) (*Page[Domain], error) {
	return list[Domain](ctx, c, "/domains", nil, p)
}

// Domains iterates over all your domains, newest first. It stops after an error.
func (c *Client) Domains(ctx context.Context) iter.Seq2[Domain, error] {
	return walk(func(p Paging) (*Page[Domain], error) { return c.ListDomains(ctx, p) })
}

// GetDomain returns a domain with its records.
func (c *Client) GetDomain(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodGet, path: "/domains/{id}", id: id})
}

// DeleteDomain deletes a domain: it stops sending and receiving at once. It returns ErrConflict if
// the domain has mailboxes.
func (c *Client) DeleteDomain(ctx context.Context, id string) error {
	return c.run(ctx, call{method: http.MethodDelete, path: "/domains/{id}", id: id})
}

// VerifyDomain looks up the record that proves that you own the domain.
func (c *Client) VerifyDomain(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodPost, path: "/domains/{id}/verify", id: id, again: true})
}

// GetDomainVerification returns the record that proves that you own the domain.
func (c *Client) GetDomainVerification(ctx context.Context, id string) (*Ownership, error) {
	return do[Ownership](ctx, c, call{method: http.MethodGet, path: "/domains/{id}/verify", id: id})
}

// VerifyDomainDNS looks up all records of a domain.
func (c *Client) VerifyDomainDNS(ctx context.Context, id string) (*Domain, error) {
	return do[Domain](ctx, c, call{method: http.MethodPost, path: "/domains/{id}/verify-dns", id: id, again: true})
}

// GetDomainZone returns the records of a domain as a zone file (RFC 1035 section 5).
func (c *Client) GetDomainZone(ctx context.Context, id string) (string, error) {
	var zone strings.Builder
	err := c.run(ctx, call{method: http.MethodGet, path: "/domains/{id}/zone", id: id, into: &zone})
	return zone.String(), err
}
