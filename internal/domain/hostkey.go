// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/secret"
)

// HostDKIMKey is the public part of the DKIM key of the service's own name.
type HostDKIMKey struct{ Selector, Record string }

var (
	// If two nodes generate a key at the same time, the first one wins.
	insertHostKeyQuery = db.SQL(`INSERT INTO host_key (algorithm, selector, private_key, record, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (algorithm) DO NOTHING`)
	hostKeyQuery = db.SQL(`SELECT selector, private_key, record FROM host_key WHERE algorithm = 'rsa'`)
)

// ReadHostDKIMKey reads the DKIM key of the service's own name; nil if none was generated yet.
func ReadHostDKIMKey(ctx context.Context, r db.Reader) (*HostDKIMKey, error) {
	k, err := findHostKey(ctx, r)
	if err != nil || k == nil {
		return nil, err
	}
	return &HostDKIMKey{k.selector, k.record}, nil
}

func findHostKey(ctx context.Context, r db.Reader) (*key, error) {
	return db.Find(ctx, r, hostKeyQuery.With(), nil, func(r db.Row) (*key, error) {
		k := &key{algorithm: string(mailauth.RSA)}
		return k, r.Scan(&k.selector, &k.sealedPrivate, &k.record)
	})
}

// CheckHostDKIMKey reports why the DKIM key of the service's own name, if there is one, can't sign
// with a secret key. broken means that the key can't be opened, or that its private key doesn't
// match its record.
func CheckHostDKIMKey(ctx context.Context, r db.Reader, seal *secret.Key) (broken, err error) {
	k, err := findHostKey(ctx, r)
	if err != nil || k == nil {
		return nil, err
	}
	der, broken := seal.Open(sealPurpose, k.sealedPrivate)
	if broken != nil {
		return broken, nil
	}
	private, broken := mailauth.ParseKey(der)
	if broken != nil {
		return broken, nil
	}
	record, broken := mailauth.KeyRecord(private.Public())
	if broken == nil && record != k.record {
		broken = errors.New("its private half is not that of its record")
	}
	return broken, nil
}

// HostDKIMKey returns the DKIM key of the service's own name. The first call on any node generates
// it.
func (d *Domains) HostDKIMKey(ctx context.Context) (*HostDKIMKey, error) {
	k, err := d.hostKey(ctx)
	if err != nil {
		return nil, err
	}
	return &HostDKIMKey{k.selector, k.record}, nil
}

func (d *Domains) hostKey(ctx context.Context) (*key, error) {
	k, err := findHostKey(ctx, d.DB)
	if err != nil || k != nil {
		return k, err
	}
	made, err := d.generateKeys(ctx, 0, []mailauth.Algorithm{mailauth.RSA})
	if err != nil {
		return nil, err
	}
	err = d.DB.Run(ctx, insertHostKeyQuery.With(made[0].algorithm, made[0].selector, made[0].sealedPrivate, made[0].record, db.Micros(d.Now())))
	if err != nil {
		return nil, err
	}
	if k, err = findHostKey(ctx, d.DB); err == nil && k == nil {
		err = errors.New("the DKIM key of the service's own name is gone again")
	}
	return k, err
}

// HostSigner returns the signer of the service's own name.
func (d *Domains) HostSigner(ctx context.Context) (*mailauth.Signer, error) {
	if s := d.hostSigner.Load(); s != nil {
		return s, nil
	}
	k, err := d.hostKey(ctx)
	if err != nil {
		return nil, err
	}
	s, err := d.unsealSigner(d.Host, []sealedKey{{selector: k.selector, sealedPrivate: k.sealedPrivate}})
	if err == nil {
		d.hostSigner.Store(s)
	}
	return s, err
}
