// SPDX-License-Identifier: Apache-2.0

// Package mailauthtest provides tests with DKIM keys.
package mailauthtest

import (
	"crypto"
	"sync"

	"github.com/mailstead/mailstead/internal/mailauth"
)

var rsaKeys struct {
	sync.Mutex
	keys []crypto.Signer
	next int
}

// rsaKeyCount is the number of different RSA keys of a process. A domain has fewer at a time.
const rsaKeyCount = 6

// GenerateKey is mailauth.GenerateKey, but an RSA key returns after rsaKeyCount calls: generating
// one takes a tenth of a second.
func GenerateKey(a mailauth.Algorithm) (crypto.Signer, error) {
	if a != mailauth.RSA {
		return mailauth.GenerateKey(a)
	}
	r := &rsaKeys
	r.Lock()
	defer r.Unlock()
	if len(r.keys) < rsaKeyCount {
		k, err := mailauth.GenerateKey(a)
		if err != nil {
			return nil, err
		}
		r.keys = append(r.keys, k)
		return k, nil
	}
	r.next++
	return r.keys[r.next%rsaKeyCount], nil
}
