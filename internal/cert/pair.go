// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// readPair reads a certificate and its key, PEM files of ours. A key that
// others may read is refused.
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

// writePair stores a chain and its key so that a crash leaves no certificate
// without its key, and returns what readPair will.
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
	if err := replace(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return nil, err
	}
	if err := replace(certFile, certs.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return readPair(certFile, keyFile)
}

// replace writes a file whole or not at all, and to disk.
func replace(path string, text []byte, mode os.FileMode) error {
	tmp := path + "." + rand.Text()[:8]
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
