// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/notify"
)

// sealPurpose is the purpose under which private keys are sealed.
const sealPurpose = "dkim"

// generateKeys generates DKIM keys for a domain. Selectors have a random part: the claims of two
// accounts, or of one that deletes a domain and adds it again, must not use the same name for
// different keys.
func (d *Domains) generateKeys(ctx context.Context, domain db.ID, algorithms []mailauth.Algorithm) (keys []key, err error) {
	suffix := strings.ToLower(rand.Text()[:8])
	for _, a := range algorithms {
		private, err := d.takePrivateKey(ctx, a)
		if err != nil {
			return nil, err
		}
		k, err := d.sealKey(domain, "ms1"+string(a[0])+"-"+suffix, private)
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// sealKey returns the row of a key; the caller sets its state.
func (d *Domains) sealKey(domain db.ID, selector string, private crypto.Signer) (key, error) {
	der, err := mailauth.MarshalKey(private)
	if err != nil {
		return key{}, err
	}
	record, err := mailauth.KeyRecord(private.Public())
	if err != nil {
		return key{}, err
	}
	algorithm := mailauth.RSA
	if _, ok := private.Public().(ed25519.PublicKey); ok {
		algorithm = mailauth.Ed25519
	}
	return key{
		id: d.DB.NewID(), domain: domain, selector: selector, algorithm: string(algorithm), record: record,
		sealedPrivate: d.Key.Seal(sealPurpose, der),
	}, nil
}

// takePrivateKey takes an RSA key from those generated in advance, if there is one.
func (d *Domains) takePrivateKey(ctx context.Context, a mailauth.Algorithm) (crypto.Signer, error) {
	if a == mailauth.RSA {
		select {
		case k := <-d.spareKeys:
			return k, nil
		default:
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.generateKey(a)
}

// generateKey runs as low-priority work.
func (d *Domains) generateKey(a mailauth.Algorithm) (k crypto.Signer, err error) {
	notify.RunLowPriority(func() { k, err = d.GenerateKey(a) })
	return k, err
}

// keepSpareKey maintains one spare RSA key: generating one takes a tenth of a second or more, which
// nobody should wait for.
func (d *Domains) keepSpareKey(ctx context.Context) error {
	for {
		k, err := d.generateKey(mailauth.RSA)
		if err != nil {
			return err
		}
		select {
		case d.spareKeys <- k:
		case <-ctx.Done():
			return nil
		}
	}
}

// publicKey reads the key from the expected record.
func (k *key) publicKey() (crypto.PublicKey, error) {
	_, p, _ := strings.Cut(k.record, "p=")
	der, err := base64.StdEncoding.DecodeString(p)
	if err != nil {
		return nil, fmt.Errorf("reading the record of DKIM key %d: %w", k.id, err)
	}
	if mailauth.Algorithm(k.algorithm) == mailauth.Ed25519 {
		return ed25519.PublicKey(der), nil
	}
	return x509.ParsePKIXPublicKey(der)
}

// unsealSigner unseals the keys.
func (d *Domains) unsealSigner(name string, keys []sealedKey) (*mailauth.Signer, error) {
	s := &mailauth.Signer{Domain: name, Now: d.Now}
	for _, k := range keys {
		der, err := d.Key.Open(sealPurpose, k.sealedPrivate)
		if err != nil {
			return nil, fmt.Errorf("opening DKIM key %d: %w", k.id, err)
		}
		private, err := mailauth.ParseKey(der)
		if err != nil {
			return nil, fmt.Errorf("DKIM key %d: %w", k.id, err)
		}
		s.Keys = append(s.Keys, mailauth.Key{Selector: k.selector, Private: private})
	}
	return s, nil
}
