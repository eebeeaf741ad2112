// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func allowDemo(_ context.Context, name string) error {
	if strings.HasSuffix(name, ".demo.test") {
		return nil
	}
	return errors.New("not ours")
}

func openLocal(t *testing.T, dir string, now *time.Time) *Source {
	t.Helper()
	s, err := NewSelfSigned(SelfSignedOptions{Dir: dir, Host: "mail.host.test", AllowName: allowDemo, Now: func() time.Time { return *now }})
	if err != nil {
		t.Fatal(err)
	}
	if pair, err := s.SigningCertificate(t.Context(), "mail.demo.test"); err != nil || pair != nil {
		t.Errorf("what nobody can check is not signed: %v, %v", pair, err)
	}
	return s
}

func TestSelfSigned(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := openLocal(t, dir, &now)
	roots := trust(t, CAFile(dir))
	for _, name := range []string{"mail.host.test", "localhost", "127.0.0.1", "::1", "autoconfig.demo.test", "MX.demo.test"} {
		if _, err := handshake(t, s.TLSConfig(), &tls.Config{ServerName: name, RootCAs: roots}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := leaf(t, s, "stranger.test"); got.VerifyHostname("mail.host.test") != nil || got.VerifyHostname("stranger.test") == nil {
		t.Errorf("a name that is not ours gets a certificate for %v", got.DNSNames)
	}
	if !leaf(t, s, "a.demo.test").Equal(leaf(t, s, "a.demo.test")) {
		t.Error("a certificate is not kept")
	}
	for file, want := range map[string]os.FileMode{"ca.pem": 0o644, "ca.key": 0o600, "host.pem": 0o644, "host.key": 0o600} {
		info, err := os.Stat(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", file, info.Mode().Perm(), want)
		}
	}
}

func TestSelfSignedSurvivesARestart(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	before := openLocal(t, dir, &now)
	roots, own := trust(t, CAFile(dir)), leaf(t, before, "")
	after := openLocal(t, dir, &now)
	if !leaf(t, after, "").Equal(own) {
		t.Error("the host has another certificate")
	}
	if _, err := handshake(t, after.TLSConfig(), &tls.Config{ServerName: "a.demo.test", RootCAs: roots}); err != nil {
		t.Error("who trusted the authority before:", err)
	}
	renamed, err := NewSelfSigned(SelfSignedOptions{Dir: dir, Host: "other.host.test"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := handshake(t, renamed.TLSConfig(), &tls.Config{ServerName: "other.host.test", RootCAs: roots}); err != nil {
		t.Error("after the host was renamed:", err)
	}
	if leaf(t, renamed, "a.demo.test").VerifyHostname("other.host.test") != nil {
		t.Error("without Allow, a further name gets a certificate")
	}
}

func TestSelfSignedRenews(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := openLocal(t, dir, &now)
	for _, name := range []string{"", "a.demo.test"} {
		first := leaf(t, s, name)
		now = first.NotAfter.Add(-renewBefore - time.Minute)
		if !leaf(t, s, name).Equal(first) {
			t.Errorf("%q: renewed too early", name)
		}
		now = first.NotAfter.Add(-renewBefore + time.Minute)
		second := leaf(t, s, name)
		if !second.NotAfter.After(first.NotAfter) {
			t.Errorf("%q: not renewed", name)
		}
	}
	now = now.Add(caLifetime - 3*leafLifetime)
	for last := leaf(t, s, ""); ; {
		now = last.NotAfter.Add(-time.Hour)
		next := leaf(t, s, "")
		if next.NotAfter.Equal(last.NotAfter) {
			break // it lives as long as the authority
		}
		last = next
	}
	if !leaf(t, s, "").Equal(leaf(t, s, "")) {
		t.Error("near the authority's end each handshake makes a new certificate")
	}
	now = now.Add(caLifetime)
	if _, err := NewSelfSigned(SelfSignedOptions{Dir: dir, Host: "mail.host.test", Now: func() time.Time { return now }}); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an authority that has expired: %v", err)
	}
}

// A certificate that can't be renewed stays in use until it expires: a full disk does not stop the
// servers a month early.
func TestSelfSignedCannotRenew(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := openLocal(t, dir, &now)
	first := leaf(t, s, "")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	now = first.NotAfter.Add(-renewBefore + time.Minute)
	if !leaf(t, s, "").Equal(first) {
		t.Error("another certificate")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if !leaf(t, s, "").NotAfter.After(first.NotAfter) {
		t.Error("not renewed when it could be")
	}
}

func TestSelfSignedRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		spoil      func(dir string) error
	}{
		{"key gone", "restore the key", func(dir string) error { return os.Remove(filepath.Join(dir, "ca.key")) }},
		{"key readable", "chmod 600", func(dir string) error { return os.Chmod(filepath.Join(dir, "ca.key"), 0o644) }},
		{"not an authority", "not one of ours", func(dir string) error {
			for _, end := range []string{"pem", "key"} {
				if err := os.Rename(filepath.Join(dir, "host."+end), filepath.Join(dir, "ca."+end)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"rubbish", "certificate authority", func(dir string) error { return os.WriteFile(CAFile(dir), []byte("rubbish"), 0o644) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, now := t.TempDir(), time.Now()
			openLocal(t, dir, &now)
			if err := c.spoil(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := NewSelfSigned(SelfSignedOptions{Dir: dir, Host: "mail.host.test"}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one with %q", err, c.want)
			}
		})
	}
	if _, err := NewSelfSigned(SelfSignedOptions{Dir: filepath.Join(t.TempDir(), "none"), Host: "mail.host.test"}); err == nil {
		t.Error("a missing folder was taken")
	}
}

// A crash after the key was written and before the certificate was: no client can trust that
// authority yet, so a new one is created.
func TestSelfSignedAfterHalfAStart(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	openLocal(t, dir, &now)
	for _, file := range []string{"ca.pem", "host.pem"} {
		if err := os.Remove(filepath.Join(dir, file)); err != nil {
			t.Fatal(err)
		}
	}
	s := openLocal(t, dir, &now)
	if _, err := handshake(t, s.TLSConfig(), &tls.Config{ServerName: "localhost", RootCAs: trust(t, CAFile(dir))}); err != nil {
		t.Error(err)
	}
}

func TestSelfSignedManyNames(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	s := openLocal(t, dir, &now)
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for i := range 20 {
				hello := &tls.ClientHelloInfo{ServerName: fmt.Sprintf("n%d.demo.test", (i+n)%20)}
				if c, err := s.getCertificate(hello); err != nil || c.Leaf.VerifyHostname(hello.ServerName) != nil {
					t.Error(hello.ServerName, err)
				}
			}
		})
	}
	wg.Wait()
}
