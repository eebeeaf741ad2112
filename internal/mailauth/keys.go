// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
)

// Algorithm is a kind of DKIM key, as in k=.
type Algorithm string

// The algorithms: RSA, which every receiver verifies, and Ed25519, which is small and fast (RFC
// 8301, RFC 8463).
const (
	RSA     Algorithm = "rsa"
	Ed25519 Algorithm = "ed25519"
)

// GenerateKey generates a key: RSA of 2048 bits, or Ed25519.
func GenerateKey(a Algorithm) (crypto.Signer, error) {
	switch a {
	case RSA:
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, fmt.Errorf("making an RSA key: %w", err)
		}
		return key, nil
	case Ed25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making an Ed25519 key: %w", err)
		}
		return key, nil
	}
	return nil, errors.New("mailauth: there is no such algorithm")
}

// MarshalKey returns a private key as PKCS #8 in DER, unencrypted.
func MarshalKey(key crypto.Signer) ([]byte, error) {
	if _, _, err := algorithmOf(key); err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("marshalling a DKIM key: %w", err)
	}
	return der, nil
}

// ParseKey parses the output of MarshalKey.
func ParseKey(der []byte) (crypto.Signer, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("reading a DKIM key: %w", err)
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("mailauth: a key of type %T cannot sign mail", parsed)
	}
	if _, _, err := algorithmOf(key); err != nil {
		return nil, err
	}
	return key, nil
}

// KeyRecord returns the TXT value to publish for a public key, at
// <selector>._domainkey.<domain>.
func KeyRecord(pub crypto.PublicKey) (string, error) {
	switch k := pub.(type) {
	case *rsa.PublicKey:
		der, err := x509.MarshalPKIXPublicKey(k)
		if err != nil {
			return "", fmt.Errorf("marshalling a public key: %w", err)
		}
		return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der), nil
	case ed25519.PublicKey:
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(k), nil
	}
	return "", fmt.Errorf("mailauth: a key of type %T cannot be published", pub)
}

// SplitTXT splits a TXT value into the strings of at most 255 bytes that DNS carries (RFC 1035
// section 3.3.14). Receivers join them without a space.
func SplitTXT(value string) []string {
	var parts []string
	for len(value) > 255 {
		parts = append(parts, value[:255])
		value = value[255:]
	}
	return append(parts, value)
}
