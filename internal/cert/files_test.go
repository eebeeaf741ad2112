// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"bytes"
	"crypto/tls"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// place writes a certificate for names and its key to files.
func place(t *testing.T, ca *localCA, dir, file string, names ...string) FilePair {
	t.Helper()
	chain, key, err := ca.issue(time.Now(), nil, names...)
	if err != nil {
		t.Fatal(err)
	}
	pair := FilePair{filepath.Join(dir, file+".pem"), filepath.Join(dir, file+".key")}
	if _, err := writePair(pair.CertFile, pair.KeyFile, chain, key); err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	ca, err := openLocalCA(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	one, two := place(t, ca, dir, "one", "mail.demo.test"), place(t, ca, dir, "two", "a.test", "*.b.test")
	s, err := NewFiles(FileOptions{Pairs: []FilePair{one, two}, Log: slog.New(slog.NewTextHandler(&log, nil)), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	roots := trust(t, CAFile(dir))
	for _, name := range []string{"mail.demo.test", "a.test", "x.b.test"} {
		if _, err := handshake(t, s.TLSConfig(), &tls.Config{ServerName: name, RootCAs: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "stranger.test"} {
		if err := leaf(t, s, name).VerifyHostname("mail.demo.test"); err != nil {
			t.Errorf("%q does not get the first: %v", name, err)
		}
	}

	if pair, err := s.SigningCertificate(t.Context(), "a.test"); err != nil || pair == nil || !pair.Leaf.Equal(leaf(t, s, "a.test")) || pair.PrivateKey == nil {
		t.Errorf("to sign with: %v, %v", pair, err)
	}

	first := leaf(t, s, "a.test")
	place(t, ca, dir, "two", "a.test")
	if !leaf(t, s, "a.test").Equal(first) {
		t.Error("files are looked at for each handshake")
	}
	now = now.Add(checkInterval)
	second := leaf(t, s, "a.test")
	if second.Equal(first) {
		t.Error("changed files were not read")
	}
	if log.Len() != 0 {
		t.Errorf("logged %s", &log)
	}

	// A new certificate without its new key, and a missing file.
	if err := os.WriteFile(two.CertFile, []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(one.KeyFile); err != nil {
		t.Fatal(err)
	}
	now = now.Add(checkInterval)
	if !leaf(t, s, "a.test").Equal(second) {
		t.Error("the certificate before does not stay in use")
	}
	if !bytes.Contains(log.Bytes(), []byte(two.CertFile)) || !bytes.Contains(log.Bytes(), []byte(one.CertFile)) {
		t.Errorf("logged %s", &log)
	}
	place(t, ca, dir, "two", "a.test")
	now = now.Add(checkInterval)
	if leaf(t, s, "a.test").Equal(second) {
		t.Error("mended files were not read")
	}
}

func TestFilesRefuses(t *testing.T) {
	dir := t.TempDir()
	ca, err := openLocalCA(dir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	one, two := place(t, ca, dir, "one", "a.test"), place(t, ca, dir, "two", "b.test")
	for name, pairs := range map[string][]FilePair{
		"none": nil, "no file": {{"/no/such.pem", "/no/such.key"}}, "another's key": {one, {one.CertFile, two.KeyFile}},
	} {
		if _, err := NewFiles(FileOptions{Pairs: pairs}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
