// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/cert"
	"github.com/mailstead/mailstead/internal/cert/certtest"
	"github.com/mailstead/mailstead/internal/doctor"
)

// pair writes a certificate of an authority for a name, which is valid for the given time.
func pair(t *testing.T, a *certtest.CA, name string, left time.Duration) cert.FilePair {
	t.Helper()
	leaf, key := a.Issue(&x509.Certificate{DNSNames: []string{name}, NotBefore: time.Now().Add(-1000 * time.Hour), NotAfter: time.Now().Add(left)})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p := cert.FilePair{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	for path, block := range map[string]*pem.Block{p.CertFile: {Type: "CERTIFICATE", Bytes: leaf.Raw}, p.KeyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func TestCertificate(t *testing.T) {
	const day = 24 * time.Hour
	known, unknown := certtest.New(t, "known"), certtest.New(t, "unknown")
	good := pair(t, known, host, 90*day)
	mixed := cert.FilePair{CertFile: good.CertFile, KeyFile: pair(t, known, host, 90*day).KeyFile}
	none := cert.FilePair{CertFile: filepath.Join(t.TempDir(), "cert.pem"), KeyFile: "key.pem"}
	for _, c := range []struct {
		kind   string
		pair   cert.FilePair
		since  time.Duration // how long ago; 0: stopped
		status doctor.Status
		says   string
	}{
		{"files", good, 0, doctor.OK, "for " + host + " until"},
		{"files", pair(t, unknown, host, 90*day), 0, doctor.Warning, "who doesn't know its authority"},
		{"files", pair(t, known, host, 13*day), 0, doctor.Warning, "in 12 days"},
		{"files", pair(t, known, host, -time.Hour), 0, doctor.Error, "it expired at"},
		{"files", pair(t, known, "other.example.com", 90*day), 0, doctor.Error, "it is not for " + host},
		{"files", mixed, 0, doctor.Error, "private key does not match"},
		{"files", none, 0, doctor.Error, "there is none"},
		{"acme", pair(t, known, host, 13*day), day, doctor.Warning, "in 12 days"},
		{"acme", none, 0, doctor.Warning, "there is none for " + host + " yet"},
		{"acme", none, time.Minute, doctor.Warning, "yet"},
		{"acme", none, time.Hour, doctor.Error, "there is none for " + host},
		{"self-signed", none, 0, doctor.Warning, "not there yet"},
		{"self-signed", none, time.Minute, doctor.Error, "there is none"},
		{"self-signed", pair(t, known, host, -time.Hour), 0, doctor.Warning, "will make a new one"},
		{"self-signed", pair(t, unknown, host, 90*day), day, doctor.Warning, "mail programs and browsers refuse it"},
		{"self-signed", pair(t, known, host, -time.Hour), day, doctor.Error, "it expired at"},
	} {
		check := doctor.Certificate{Kind: c.kind, Pair: c.pair, Host: host, Roots: known.Pool(), Now: time.Now}
		if c.since > 0 {
			check.RunningSince = time.Now().Add(-c.since)
		}
		expect(t, check.Check, c.status, c.says)
	}
	early := doctor.Certificate{Kind: "files", Pair: good, Host: host, Roots: known.Pool(), Now: func() time.Time { return time.Now().Add(-2000 * time.Hour) }}
	if found := look(t, early.Check); found[0].Status != doctor.Error {
		t.Errorf("a clock that is behind: %+v", found)
	}
}
