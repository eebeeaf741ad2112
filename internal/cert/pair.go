// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"

	"github.com/mailstead/mailstead/internal/durable"
)

// readPair reads a certificate and its key from our own PEM files. It rejects a key file that
// others can access.
func readPair(certFile, keyFile string) (*tls.Certificate, error) {
	info, err := os.Stat(keyFile)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("%s: others may read it (mode %04o); run chmod 600 on it", keyFile, mode)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, err
	}
	return &pair, nil
}

// writePair stores a chain and its key, in an order in which a crash leaves no certificate without
// its key. It returns the same as readPair.
func writePair(certFile, keyFile string, chain [][]byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var certs bytes.Buffer
	for _, c := range chain {
		if err := pem.Encode(&certs, &pem.Block{Type: "CERTIFICATE", Bytes: c}); err != nil {
			return nil, err
		}
	}
	if err := durable.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	if err := durable.WriteFile(certFile, certs.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return readPair(certFile, keyFile)
}
