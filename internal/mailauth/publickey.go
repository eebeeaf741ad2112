// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/dns"
)

// Sizes of RSA keys that are verified: smaller keys must not be (RFC 8301 §3.2), and larger ones
// only cost time.
const (
	minVerifyBits = 1024
	maxVerifyBits = 8192
)

// publicKey is a key from DNS.
type publicKey struct {
	key          crypto.PublicKey
	testMode     bool // t=y
	noSubdomains bool // t=s: i= must not be a subdomain
}

// findKey looks up the key of a signature. Without a key it returns the signature's result and the
// reason.
func (j *Verifier) findKey(ctx context.Context, r *dns.Resolver, s *signature) (publicKey, Result, string) {
	answer, err := r.TXT(ctx, s.selector+"._domainkey."+s.domain)
	switch {
	case errors.Is(err, dns.ErrTemporary):
		return publicKey{}, TempError, "no answer about the key"
	case err != nil:
		return publicKey{}, PermError, "there is no key"
	}
	problem := "there is no key"
	for _, txt := range limitRecords(answer.Records) {
		if k, ok := j.keys.get(txt, s.algorithm); ok {
			return k, "", ""
		}
		if !isKeyRecord(txt) {
			continue
		}
		k, bad := parseKeyRecord(txt, s.algorithm)
		if bad == "" {
			j.keys.put(txt, s.algorithm, k)
			return k, "", ""
		}
		problem = bad
	}
	return publicKey{}, PermError, problem
}

// parseKeyRecord parses a record for a signature with the given algorithm (RFC 6376 §3.6.1).
func parseKeyRecord(txt, algorithm string) (k publicKey, bad string) {
	list, problem := parseTags(txt)
	if problem != "" {
		return k, "the key's record can't be read"
	}
	if v, ok := list.get("v"); ok && (v != "DKIM1" || list[0].name != "v") {
		return k, "the key's record is of another version"
	}
	if h, ok := list.get("h"); ok && !listContains(h, "sha256") {
		return k, "the key does not allow sha256"
	}
	if s, ok := list.get("s"); ok && !listContains(s, "*") && !listContains(s, "email") {
		return k, "the key is not for mail"
	}
	if t, ok := list.get("t"); ok {
		k.testMode, k.noSubdomains = listContains(t, "y"), listContains(t, "s")
	}
	kind, ok := list.get("k")
	if !ok {
		kind = string(RSA)
	}
	if kind = strings.ToLower(kind); kind+"-sha256" != algorithm {
		return k, "the key is of another kind"
	}
	p, _ := list.get("p")
	p = strings.TrimRight(strings.Join(strings.Fields(p), ""), "=")
	if p == "" {
		return k, "the key is revoked"
	}
	der, err := base64.RawStdEncoding.DecodeString(p)
	if err != nil {
		return k, "the key is not base64"
	}
	k.key, bad = parsePublicKey(Algorithm(kind), der)
	return k, bad
}

func parsePublicKey(kind Algorithm, der []byte) (crypto.PublicKey, string) {
	if kind == Ed25519 {
		if len(der) != ed25519.PublicKeySize {
			return nil, "the key has a wrong size"
		}
		return ed25519.PublicKey(der), ""
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil { // erratum 3017 of RFC 6376
		parsed, err = x509.ParsePKCS1PublicKey(der)
	}
	key, ok := parsed.(*rsa.PublicKey)
	switch {
	case err != nil || !ok:
		return nil, "the key can't be read"
	case key.N.BitLen() < minVerifyBits:
		return nil, fmt.Sprintf("the key has only %d bits", key.N.BitLen())
	case key.N.BitLen() > maxVerifyBits:
		return nil, fmt.Sprintf("the key has %d bits", key.N.BitLen())
	}
	return key, ""
}

// verifies reports whether value is a signature of a SHA-256 digest.
func (k *publicKey) verifies(digest, value []byte) bool {
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest, value) == nil
	case ed25519.PublicKey:
		return ed25519.Verify(key, digest, value)
	}
	return false
}
