// SPDX-License-Identifier: Apache-2.0

package mailauth_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
)

func inPEM(t testing.TB, kind string, der []byte, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func pkcs8(t testing.TB, key any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	return inPEM(t, "PRIVATE KEY", der, err)
}

func rsaKey(t testing.TB, bits int) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestReadKey(t *testing.T) {
	r := rsaKey(t, 2048)
	_, e, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := inPEM(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(r), nil)
	for what, c := range map[string]struct {
		text string
		key  crypto.Signer
	}{
		"RSA, PKCS #8":   {pkcs8(t, r), r},
		"RSA, PKCS #1":   {pkcs1, r},
		"RSA, 4096":      {pkcs8(t, rsaKey(t, 4096)), nil},
		"Ed25519":        {pkcs8(t, e), e},
		"CRLF":           {strings.ReplaceAll(pkcs8(t, r), "\n", "\r\n"), r},
		"words around":   {"Bag Attributes\n    localKeyID: 01\n" + pkcs8(t, e) + "\n\n", e},
		"no last return": {strings.TrimSpace(pkcs8(t, e)), e},
	} {
		got, err := mailauth.ParsePEMKey(c.text)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if same, ok := c.key.(interface{ Equal(crypto.PrivateKey) bool }); ok && !same.Equal(got) {
			t.Errorf("%s: another key", what)
		}
		if _, err := mailauth.KeyRecord(got.Public()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	broken := rsaKey(t, 2048)
	broken.D.Add(broken.D, broken.D)
	public, err := x509.MarshalPKIXPublicKey(r.Public())
	certificate := inPEM(t, "PUBLIC KEY", public, err)
	for what, c := range map[string]struct{ text, code string }{
		"nothing":        {"", "invalid_key"},
		"no PEM":         {"secret", "invalid_key"},
		"a public key":   {certificate, "invalid_key"},
		"two":            {pkcs8(t, r) + pkcs8(t, e), "invalid_key"},
		"cut off":        {inPEM(t, "PRIVATE KEY", []byte("secret"), nil), "invalid_key"},
		"of broken RSA":  {inPEM(t, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(broken), nil), "invalid_key"},
		"1024 bits":      {pkcs8(t, rsaKey(t, 1024)), "wrong_key_size"},
		"a curve":        {pkcs8(t, curve), "unsupported_key"},
		"encrypted":      {inPEM(t, "ENCRYPTED PRIVATE KEY", []byte("secret"), nil), "encrypted_key"},
		"encrypted, old": {strings.Replace(pkcs1, "KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\n", 1), "encrypted_key"},
		"long":           {pkcs8(t, r) + strings.Repeat("\n", 8<<10), "key_too_long"},
	} {
		_, err := mailauth.ParsePEMKey(c.text)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Code != c.code {
			t.Errorf("%s: %v, want %s", what, err, c.code)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s is repeated: %v", what, err)
		}
	}
}

func FuzzReadKey(f *testing.F) {
	_, e, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(pkcs8(f, e))
	f.Add(inPEM(f, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey(f, 2048)), nil))
	f.Add("-----BEGIN PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END PRIVATE KEY-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := mailauth.ParsePEMKey(text)
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
			return
		}
		s := &mailauth.Signer{Domain: "x.test", Keys: []mailauth.Key{{Selector: "s", Private: key}}}
		if _, err := s.Sign([]byte("From: a@x.test\r\n\r\n")); err != nil {
			t.Errorf("a key that was taken does not sign: %v", err)
		}
	})
}
