// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) domains() {
	h.Helper()
	ctx := h.Context()
	d, err := h.c.CreateDomain(ctx, "Bücher.test")
	h.want("adding a domain", err)
	if d.Name != "xn--bcher-kva.test" || d.DisplayName != "bücher.test" || d.Status != "pending" || len(d.Records) < 5 || d.CreatedAt.IsZero() || d.VerifiedAt != nil {
		h.Errorf("added %+v", d)
	}
	_, err = h.c.CreateDomain(ctx, "bücher.test")
	refused(h, "again", err, 409, "domain_exists")
	if !errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrNotFound) || !client.HasCode(err, "x", "domain_exists") || client.HasCode(err, "x") {
		h.Errorf("its kind: %v", err)
	}
	_, err = h.c.CreateDomain(ctx, "co.uk")
	refused(h, "a public suffix", err, 422, "validation_failed", "name public_suffix")

	o, err := h.c.GetDomainVerification(ctx, d.ID)
	h.want("showing the ownership", err)
	if o.OwnershipStatus != "pending" || o.Record.Kind != "OWNERSHIP" || o.ID != d.ID {
		h.Errorf("the ownership is %+v", o)
	}
	if d, err = h.c.VerifyDomain(ctx, d.ID); err != nil || d.OwnershipStatus != "verified" || d.Status != "pending" {
		h.Errorf("verified: %+v, %v", d, err)
	}
	if d, err = h.c.VerifyDomainDNS(ctx, d.ID); err != nil || d.Status != "verified" || d.VerifiedAt == nil || d.LastCheckedAt == nil {
		h.Errorf("verified: %+v, %v", d, err)
	}
	zone, err := h.c.GetDomainZone(ctx, d.ID)
	if err != nil || !strings.Contains(zone, "v=DMARC1; p=none") {
		h.Errorf("the zone is %s, %v", zone, err)
	}
	h.dkim(d.ID)
	if d, err = h.c.GetDomain(ctx, d.ID); err != nil || d.RotationDays != 90 {
		h.Errorf("shown as %+v, %v", d, err)
	}
	shown, err := h.c.GetDomain(ctx, d.ID)
	if err != nil || raw(h.T, shown) != raw(h.T, d) {
		h.Errorf("shown as %+v, %v", shown, err)
	}
	if all := collect(h, h.c.Domains(ctx)); len(all) != 2 || all[0].ID != d.ID || all[1].ID != h.domain {
		h.Errorf("the domains are %+v", all)
	}
	page, err := h.c.ListDomains(ctx, client.Paging{Limit: 1})
	h.want("a page", err)
	rest, err := h.c.ListDomains(ctx, client.Paging{Limit: 1, After: page.NextCursor})
	if err != nil || !page.HasMore || rest.HasMore || len(rest.Data) != 1 || rest.Data[0].ID != h.domain {
		h.Errorf("the second page is %+v, %v", rest, err)
	}
	back, err := h.c.ListDomains(ctx, client.Paging{Before: rest.Data[0].ID})
	if err != nil || len(back.Data) != 1 || back.Data[0].ID != d.ID {
		h.Errorf("the page before is %+v, %v", back, err)
	}
	_, err = h.c.ListDomains(ctx, client.Paging{Limit: 1000, After: "x"})
	refused(h, "a bad page", err, 422, "validation_failed", "limit out_of_range", "after invalid_cursor")
	refused(h, "deleting one with mailboxes", h.c.DeleteDomain(ctx, h.domain), 409, "domain_has_mailboxes")
	h.want("deleting", h.c.DeleteDomain(ctx, d.ID))
	_, err = h.c.GetDomain(ctx, d.ID)
	refused(h, "when gone", err, 404, "not_found")
}

func (h *fixture) dkim(domain string) {
	h.Helper()
	ctx := h.Context()
	made, err := h.c.RotateDKIM(ctx, domain, "ed25519")
	if err != nil || len(made) != 1 || made[0].Status != "pending" || made[0].Record.Note == "" || made[0].ActiveAt != nil {
		h.Fatalf("made %+v, %v", made, err)
	}
	_, err = h.c.RotateDKIM(ctx, domain, "ed25519")
	refused(h, "rotating twice", err, 409, "key_pending")
	_, err = h.c.AddDKIMKey(ctx, domain, client.NewDKIMKey{Selector: "-", PrivateKey: "secret"})
	refused(h, "no key", err, 422, "validation_failed", "selector invalid_selector", "private_key invalid_key")
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	h.want("making a key", err)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	h.want("writing a key", err)
	own, err := h.c.AddDKIMKey(ctx, domain, client.NewDKIMKey{Selector: "own", PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))})
	if err != nil || own.Origin != "own" || own.Algorithm != "rsa" {
		h.Fatalf("brought %+v, %v", own, err)
	}
	_, err = h.c.VerifyDomainDNS(ctx, domain)
	h.want("looking", err)
	retiring := 0
	for _, k := range collect(h, h.c.DKIMKeys(ctx, domain)) {
		if k.Status == "retiring" && k.KeepUntil != nil {
			retiring++
			h.want("deleting", h.c.DeleteDKIMKey(ctx, domain, k.ID))
		}
	}
	if page, err := h.c.ListDKIMKeys(ctx, domain, client.Paging{}); retiring != 2 || err != nil || len(page.Data) != 2 || page.Data[0].ActiveAt == nil {
		h.Errorf("the keys are %+v, %v", page, err)
	}
	if err := h.c.DeleteDKIMKey(ctx, domain, ""); err == nil {
		h.Error("no id is an id")
	}
	if d, err := h.c.UpdateDomain(ctx, domain, client.DomainChange{DKIMRotationDays: new(90), Enforcement: new("junk")}); err != nil || d.RotationDays != 90 || d.Enforcement != "junk" {
		h.Errorf("changed to %+v, %v", d, err)
	}
}
