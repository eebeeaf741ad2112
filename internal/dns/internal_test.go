// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestSystemServers(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string][]string{
		"nameserver 192.0.2.1\nnameserver 2001:db8::1\n": {"192.0.2.1:53", "[2001:db8::1]:53"},
		"# none\n": {"127.0.0.1:53"},
		"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n": {"192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53"},
	} {
		file := filepath.Join(dir, "resolv.conf")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := systemServers(file); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	if got, err := systemServers(filepath.Join(dir, "missing")); err != nil || !slices.Equal(got, []string{"127.0.0.1:53"}) {
		t.Errorf("without the file: %v, %v", got, err)
	}
	if _, err := systemServers(dir); err == nil {
		t.Error("an unreadable file is no error")
	}
}

func TestTrustNeedsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:53": true, "127.0.0.53:53": true, "[::1]:53": true, "[::ffff:127.0.0.1]:53": true,
		"192.0.2.1:53": false, "localhost:53": false, "[2001:db8::1]:53": false,
	} {
		s, err := newUpstream(addr, true)
		if err != nil || s.trusted != want {
			t.Errorf("%s: trusted %v, %v", addr, s.trusted, err)
		}
		if s, _ := newUpstream(addr, false); s.trusted {
			t.Errorf("%s: trusted unasked", addr)
		}
	}
}

func TestJoinText(t *testing.T) {
	for in, want := range map[string]string{`a\\b`: `a\b`, `\"`: `"`, `\065`: "A", `\256`: "256", `\06`: "06", `a\`: `a\`, `\é`: "é"} {
		if got := joinTXT([]string{in}); got != want {
			t.Errorf("joinText(%q) = %q, want %q", in, got, want)
		}
	}
}
