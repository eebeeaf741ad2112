// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
)

// peerProgram returns the path of a peer's program. Both peers change users, so they need root.
func peerProgram(name string) (string, error) {
	if os.Getuid() != 0 {
		return "", errors.New("not measured: it starts as root only")
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("not measured: not installed")
}

// waitTLS waits until a server sends its greeting over TLS.
func waitTLS(ctx context.Context, p *process, addr string) error {
	return p.waitReady(ctx, func() bool {
		c, err := imap.Dial(addr, "", clientTLS())
		if err == nil {
			err = c.Close()
		}
		return err == nil
	})
}

// writePeerCertificate writes a certificate for the peers.
func writePeerCertificate(dir string) (certFile, keyFile string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{serviceHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	return certFile, keyFile, errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644), //nolint:gosec // public
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
