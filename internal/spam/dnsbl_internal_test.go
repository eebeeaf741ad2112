// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// FuzzReversed converts an address to its name in a list, and back (RFC 5782 §2.1, §2.4).
func FuzzReversed(f *testing.F) {
	for _, seed := range []string{"192.0.2.99", "2001:db8:1:2:3:4:567:89ab", "::ffff:192.0.2.1", "::"} {
		f.Add(netip.MustParseAddr(seed).AsSlice())
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		a, ok := netip.AddrFromSlice(octets)
		if !ok {
			return
		}
		name, ok := strings.CutSuffix(reverseName(a), ".")
		parts := strings.Split(name, ".")
		slices.Reverse(parts)
		text := strings.Join(parts, ".")
		if a.Is6() {
			text = ""
			for i := 0; i < len(parts); i += 4 {
				text += ":" + strings.Join(parts[i:min(i+4, len(parts))], "")
			}
			text = text[1:]
		}
		if back, err := netip.ParseAddr(text); err != nil || back != a || !ok {
			t.Fatalf("%v: %q, %v, %v", a, name, back, err)
		}
	})
}
