// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits on the size of imported keys: some receivers no longer accept 1024 bits (RFC 8301 §3.2),
// and none must verify more than 4096 (RFC 6376 §3.3.3).
const (
	MinRSABits = 2048
	MaxRSABits = 4096
	// maxPEM is enough for a 4096-bit RSA key with the text that tools add to it.
	maxPEM = 8 << 10
)

// ParsePEMKey parses a private key in PEM: PKCS #8, or PKCS #1 for RSA. The key must be RSA of 2048
// to 4096 bits, or Ed25519. Anything else is a fault.Invalid, whose text contains nothing of the
// input.
func ParsePEMKey(text string) (crypto.Signer, error) {
	if len(text) > maxPEM {
		return nil, fault.New(fault.Invalid, "key_too_long", "A private key in PEM may have %d bytes here.", maxPEM)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		return nil, fault.New(fault.Invalid, "invalid_key",
			"This is not a private key in PEM: text from -----BEGIN PRIVATE KEY----- to -----END PRIVATE KEY-----.")
	}
	if more, _ := pem.Decode(rest); more != nil {
		return nil, fault.New(fault.Invalid, "invalid_key", "Give one private key, and nothing else.")
	}
	if block.Type == "ENCRYPTED PRIVATE KEY" || strings.Contains(block.Headers["Proc-Type"], "ENCRYPTED") {
		return nil, fault.New(fault.Invalid, "encrypted_key", "The key is protected by a password. Remove it first.")
	}
	var parsed any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, fault.New(fault.Invalid, "invalid_key", "Give a private key as PKCS #8 (BEGIN PRIVATE KEY) or PKCS #1 (BEGIN RSA PRIVATE KEY).")
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "invalid_key", "The key can't be read. It may have been cut off or changed.")
	}
	return checkPrivateKey(parsed)
}

func checkPrivateKey(parsed any) (crypto.Signer, error) {
	switch key := parsed.(type) {
	case ed25519.PrivateKey:
		return key, nil
	case *rsa.PrivateKey:
		if bits := key.N.BitLen(); bits < MinRSABits || bits > MaxRSABits {
			return nil, fault.New(fault.Invalid, "wrong_key_size", "An RSA key must have %d to %d bits.", MinRSABits, MaxRSABits)
		}
		if key.Validate() != nil {
			return nil, fault.New(fault.Invalid, "invalid_key", "The key's parts don't fit together. It may have been changed.")
		}
		return key, nil
	}
	return nil, fault.New(fault.Invalid, "unsupported_key", "DKIM takes RSA and Ed25519 keys only.")
}
