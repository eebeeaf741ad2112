// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func testKey(t testing.TB, fill byte) *Key {
	t.Helper()
	k, err := newKey(bytes.Repeat([]byte{fill}, keySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestLoadMakesAKeyOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.key")
	keys := make([]*Key, 8)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			k, err := LoadOrCreateKey(path)
			if err != nil {
				t.Error(err)
			}
			keys[i] = k
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, k := range keys {
		if k.raw != keys[0].raw {
			t.Fatal("starters at the same time got different keys")
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %o, want 600", info.Mode().Perm())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestLoadRefuses(t *testing.T) {
	good := strings.Repeat("0f", keySize)
	for _, c := range []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"readable by the group", good, 0o640, "chmod 600"},
		{"readable by the world", good, 0o604, "chmod 600"},
		{"empty", "", 0o600, "32 bytes"},
		{"short", good[:62], 0o600, "32 bytes"},
		{"huge", strings.Repeat("a", 1<<20), 0o600, "32 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret.key")
			if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, c.mode); err != nil {
				t.Fatal(err)
			}
			_, err := LoadOrCreateKey(path)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want one with %q", err, c.want)
			}
			if strings.Contains(err.Error(), "0f0f") {
				t.Error("the error shows the key")
			}
		})
	}
	if _, err := LoadOrCreateKey(filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("a missing folder was taken")
	}
}

func TestParse(t *testing.T) {
	raw := make([]byte, keySize)
	for i := range raw {
		raw[i] = byte(250 + i*7)
	}
	for _, s := range []string{
		fmt.Sprintf("%x", raw), fmt.Sprintf(" %X\n", raw),
		base64.StdEncoding.EncodeToString(raw), base64.RawStdEncoding.EncodeToString(raw),
		base64.URLEncoding.EncodeToString(raw), base64.RawURLEncoding.EncodeToString(raw),
	} {
		k, err := ParseKey(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if !bytes.Equal(k.raw[:], raw) {
			t.Errorf("%q: another key", s)
		}
	}
	if _, err := ParseKey("not a key"); err == nil {
		t.Error("nonsense was taken")
	}
}

func TestKeyDoesNotShow(t *testing.T) {
	k := testKey(t, 'x')
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		if got := fmt.Sprintf(verb, k); got != "[secret key]" {
			t.Errorf("%s shows %s", verb, got)
		}
	}
}

func TestSubKeysDiffer(t *testing.T) {
	k := testKey(t, 1)
	if bytes.Equal(k.Subkey("a"), k.Subkey("b")) || !bytes.Equal(k.Subkey("a"), k.Subkey("a")) {
		t.Error("a sub-key must depend on its purpose, and on nothing else")
	}
	if k.Fingerprint() == testKey(t, 2).Fingerprint() || len(k.Fingerprint()) != 16 {
		t.Error("fingerprints do not tell keys apart")
	}
}

func TestSeal(t *testing.T) {
	k := testKey(t, 1)
	for _, text := range []string{"", "x", strings.Repeat("long ", 1000)} {
		sealed := k.Seal("dkim", []byte(text))
		if len(sealed) != len(text)+29 {
			t.Errorf("sealed length %d for %d", len(sealed), len(text))
		}
		if bytes.Equal(sealed, k.Seal("dkim", []byte(text))) {
			t.Error("the same secret sealed twice looks the same")
		}
		got, err := k.Open("dkim", sealed)
		if err != nil || string(got) != text {
			t.Fatalf("opened %q, %v", got, err)
		}
		if _, err := k.Open("webhook", sealed); !errors.Is(err, ErrUnseal) {
			t.Errorf("another purpose: %v", err)
		}
		if _, err := testKey(t, 2).Open("dkim", sealed); !errors.Is(err, ErrUnseal) {
			t.Errorf("another key: %v", err)
		}
		for i := range min(len(sealed), 40) {
			bad := bytes.Clone(sealed)
			bad[i] ^= 1
			if _, err := k.Open("dkim", bad); !errors.Is(err, ErrUnseal) {
				t.Fatalf("byte %d altered: %v", i, err)
			}
			if _, err := k.Open("dkim", sealed[:i]); !errors.Is(err, ErrUnseal) {
				t.Fatalf("cut to %d: %v", i, err)
			}
		}
	}
}
