// SPDX-License-Identifier: Apache-2.0

package egress_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/mailstead/mailstead/internal/egress"
)

func TestPublic(t *testing.T) {
	public := []string{"1.1.1.1", "9.255.255.255", "172.32.0.1", "192.167.255.255", "2606:4700::1111", "2a00::1",
		"::ffff:1.1.1.1", "64:ff9b::101:101", "2002:101:101::1"}
	private := []string{"0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "169.254.169.254",
		"172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
		"fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fd00:ec2::254", "fec0::1", "ff02::1", "100::1", "2001::1", "2001:db8::1", "3fff::1",
		"64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::1", "2002:a00:1::1", "5f00::1"}
	for _, s := range slices.Concat(public, private) {
		if want := slices.Contains(public, s); egress.IsPublic(netip.MustParseAddr(s)) != want {
			t.Errorf("Public(%s) is not %v", s, want)
		}
	}
	if egress.IsPublic(netip.Addr{}) {
		t.Error("no address is public")
	}
}
