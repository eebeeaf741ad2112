// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/mailstead/mailstead/internal/dns"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// Results of a real validating resolver: signed, unsigned and bogus.
func TestUnboundsResults(t *testing.T) {
	addr, z := dnstest.StartSigned(t,
		"signed.test. MX 10 mx.signed.test.", "mx.signed.test. A 127.0.0.1", "alias.signed.test. CNAME mx.signed.test.",
		"out.signed.test. CNAME mx.plain.test.", "plain.test. MX 10 mx.plain.test.", "mx.plain.test. A 127.0.0.1",
		"_25._tcp.mx.signed.test. TLSA 3 1 1 00ff", "_25._tcp.mx.plain.test. TLSA 3 1 1 00ff",
		"bad.signed.test. TLSA 3 1 1 00ff", "half.signed.test. A 127.0.0.1", "half.signed.test. AAAA ::1")
	z.CorruptSignature("bad.signed.test", "TLSA")
	z.CorruptSignature("half.signed.test", "AAAA")
	r := dnstest.Resolver(t, addr)
	ctx := t.Context()
	for name, want := range map[string]bool{"signed.test": true, "plain.test": false} {
		if got, err := r.MX(ctx, name); err != nil || got.Authentic != want {
			t.Errorf("MX of %s: %+v, %v", name, got, err)
		}
	}
	for name, want := range map[string]bool{"mx.signed.test": true, "mx.plain.test": false, "alias.signed.test": true, "out.signed.test": false, "half.signed.test": true} {
		if got, err := r.Addrs(ctx, name); err != nil || got.Authentic != want || len(got.Records) != 1 {
			t.Errorf("addresses of %s: %+v, %v", name, got, err)
		}
	}
	if got, err := r.CNAME(ctx, "out.signed.test"); err != nil || !got.Authentic {
		t.Errorf("CNAME: %+v, %v", got, err)
	}
	for name, want := range map[string]bool{"_25._tcp.mx.signed.test": true, "_25._tcp.mx.plain.test": false} {
		got, err := r.TLSA(ctx, name)
		if err != nil || got.Authentic != want || len(got.Records) != 1 || hex.EncodeToString(got.Records[0].Data) != "00ff" || got.Records[0].Usage != 3 {
			t.Errorf("TLSA of %s: %+v, %v", name, got, err)
		}
	}
	if got, err := r.TLSA(ctx, "_25._tcp.alias.signed.test"); !errors.Is(err, dns.ErrNoData) && !errors.Is(err, dns.ErrNotFound) || !got.Authentic {
		t.Errorf("none there: %+v, %v", got, err)
	}
	if got, err := r.TLSA(ctx, "bad.signed.test"); !errors.Is(err, dns.ErrTemporary) {
		t.Errorf("bogus: %+v, %v", got, err)
	}
}
