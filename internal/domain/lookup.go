// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/notify"
)

// SendingDomain is a domain that an account may send from, with its signer.
type SendingDomain struct {
	Domain db.ID
	Name   string
	Signer *mailauth.Signer
	// Aligned means that the domain's MX and SPF name us, so that it can be its own return path.
	Aligned bool
}

// HostedDomain is a domain that an account here owns.
type HostedDomain struct {
	Domain, Account db.ID
	Name            string
	Receives        bool // its MX record was seen to be ours
	Suspended       bool // by an operator
}

type senderCacheKey struct {
	account db.ID
	name    string
}

var (
	senderByNameQuery = db.SQL(`SELECT id, name, aligned FROM domain
		WHERE account = $1 AND name = $2 AND owned AND sends AND suspended_at = 0`)
	senderByIDQuery   = db.SQL(`SELECT id, name, aligned AND owned FROM domain WHERE id = $1`)
	hostedByNameQuery = db.SQL(`SELECT id, account, name, receives, suspended_at > 0 FROM domain WHERE name = $1 AND owned`)
	claimantsQuery    = db.SQL(`SELECT id, account FROM domain WHERE name = $1 ORDER BY owned DESC, id LIMIT 100`)
	signingKeysQuery  = db.SQL(`SELECT id, selector, private_key, seen, state FROM dkim_key
		WHERE domain = $1 AND state IN ('active', 'retiring') ORDER BY id`)
)

// SendingDomain finds the domain that an account sends from, by its name in A-labels. It returns
// fault.Denied with the code sender_not_allowed unless the account owns it, a DKIM key of it was
// seen, and it is not suspended.
func (d *Domains) SendingDomain(ctx context.Context, account db.ID, name string) (SendingDomain, error) {
	return lookUp(&d.sendersByName, senderCacheKey{account, name}, d.Now(), func() (SendingDomain, error) {
		return d.loadSendingDomain(ctx, senderByNameQuery.With(account, name), fault.New(fault.Denied, "sender_not_allowed",
			"The sender is not on a domain of yours whose OWNERSHIP record and a DKIM record are verified."))
	})
}

// SendingDomainByID finds the domain that signs a queued message. It returns fault.NotFound after
// the domain was deleted.
func (d *Domains) SendingDomainByID(ctx context.Context, domain db.ID) (SendingDomain, error) {
	return lookUp(&d.sendersByID, domain, d.Now(), func() (SendingDomain, error) {
		return d.loadSendingDomain(ctx, senderByIDQuery.With(domain), fault.New(fault.NotFound, "not_found", "The domain of this message was deleted."))
	})
}

func (d *Domains) loadSendingDomain(ctx context.Context, q db.Statement, none error) (s SendingDomain, err error) {
	if err = d.DB.One(ctx, q, &s.Domain, &s.Name, &s.Aligned); err == nil {
		s.Signer, err = d.signer(ctx, s.Domain, s.Name)
	}
	return s, db.IfNoRow(err, none)
}

// CheckServedName returns nil for the names that mail clients and senders use for a hosted domain:
// they need a certificate.
func (d *Domains) CheckServedName(ctx context.Context, name string) error {
	for _, prefix := range []string{"autoconfig.", "autodiscover.", "mta-sts."} {
		domain, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		if h, ok, err := d.FindHosted(ctx, domain); ok && !h.Suspended || err != nil {
			return err
		}
	}
	return errors.New("this name is not served here")
}

// FindHosted finds the domain that an account here owns under a name in A-labels.
func (d *Domains) FindHosted(ctx context.Context, name string) (HostedDomain, bool, error) {
	h, err := lookUp(&d.hostedByName, name, d.Now(), func() (HostedDomain, error) {
		h, _, err := FindHosted(ctx, d.DB, name)
		return h, err
	})
	return h, h.Domain != 0, err
}

// Claims lists the claims on a name in A-labels, including those of former owners. The current
// owner comes first.
func (d *Domains) Claims(ctx context.Context, name string) ([]HostedDomain, error) {
	return db.All(ctx, d.DB, claimantsQuery.With(name), func(r db.Row) (h HostedDomain, err error) {
		h.Name = name
		return h, r.Scan(&h.Domain, &h.Account)
	})
}

// Invalidate drops the cached data of a domain. This node does so itself; Run does it when another
// node sends a notification.
func (d *Domains) Invalidate(db.ID) {
	// A change of owner affects several keys, also cached absences. Changes are rare, so everything
	// is dropped.
	d.sendersByName.clear()
	d.sendersByID.clear()
	d.hostedByName.clear()
	d.enforcements.clear()
}

// notifyChanged is called after a commit.
func (d *Domains) notifyChanged(id db.ID) {
	d.Invalidate(id)
	d.Hub.Wake(notify.Key{Kind: notify.Domain, ID: int64(id)})
	d.Hub.Wake(anyDomainKey)
}

// anyDomainKey is woken by every change of a domain.
var anyDomainKey = notify.Key{Kind: notify.Domain}

// sealedKey is a DKIM key with its sealed private key.
type sealedKey struct {
	id            db.ID
	selector      string
	sealedPrivate []byte
	seen          bool
	state         string
}

// cachedSigner is a signer with the keys that it was created from.
type cachedSigner struct {
	keys   []db.ID
	signer *mailauth.Signer
}

// signer returns the signer of a domain, with the keys that signingKeys selects. It is cached until
// the keys change, because parsing an RSA key costs more than a signature.
func (d *Domains) signer(ctx context.Context, domain db.ID, name string) (*mailauth.Signer, error) {
	rows, err := db.All(ctx, d.DB, signingKeysQuery.With(domain), func(r db.Row) (sealedKey, error) {
		var k sealedKey
		err := r.Scan(&k.id, &k.selector, &k.sealedPrivate, &k.seen, &k.state)
		return k, err
	})
	if err != nil {
		return nil, err
	}
	rows = signingKeys(rows)
	var ids []db.ID
	for _, k := range rows {
		ids = append(ids, k.id)
	}
	old, mark, ok := d.signers.get(domain)
	if ok && slices.Equal(old.keys, ids) {
		return old.signer, nil
	}
	s, err := d.unsealSigner(name, rows)
	if err != nil {
		return nil, err
	}
	d.signers.put(domain, cachedSigner{ids, s}, mark)
	return s, nil
}

// signingKeys selects the keys to sign with: the active ones that were seen in the DNS. If there
// are none, for example after an old zone file was restored, it selects retiring keys that were
// seen. If no key was seen at all, it selects all active ones.
func signingKeys(keys []sealedKey) []sealedKey {
	for _, fit := range []func(sealedKey) bool{
		func(k sealedKey) bool { return k.seen && k.state == KeyActive },
		func(k sealedKey) bool { return k.seen },
		func(k sealedKey) bool { return k.state == KeyActive },
	} {
		var all []sealedKey
		for _, k := range keys {
			if fit(k) {
				all = append(all, k)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}
