// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/domain"
)

// TestDNS prints the records of the service before and after they are published, and doctor warns
// until they are.
func TestDNS(t *testing.T) {
	dbtest.EachEmptyURL(t, func(t *testing.T, url string) {
		// The test machine doesn't have the address, as behind NAT.
		resolver, zone := dnstest.Start(t, doctorHost+". A 9.9.9.9")
		settings := []string{"--data", t.TempDir(), "--host", doctorHost, "--tls", "self-signed", "--resolver", resolver}
		if strings.HasPrefix(url, "postgres") {
			settings = append(settings, "--database", url)
		}
		const noKey = "The DKIM key is generated when the service first starts."
		status, out, stderr := run(t, nil, append([]string{"dns"}, settings...)...)
		if status != 1 || !strings.Contains(out, noKey) || stderr != "mailstead: 6 required records missing or wrong\n" {
			t.Errorf("before the first start: %d %s%s", status, out, stderr)
		}
		if status, text, stderr := run(t, nil, append([]string{"dns", "--zone"}, settings...)...); status != 0 || !strings.Contains(text, noKey) || stderr != "" {
			t.Errorf("its zone: %d %s%s", status, text, stderr)
		}
		serve(t, nil, settings...).stop()

		status, out, stderr = run(t, nil, append([]string{"dns"}, settings...)...)
		if status != 1 || stderr != "mailstead: 7 required records missing or wrong\n" {
			t.Errorf("%d %q", status, stderr)
		}
		for _, want := range []string{
			doctorHost + " A 9.9.9.9\n  verified.",
			"9.9.9.9.in-addr.arpa PTR " + doctorHost + "\n  failed.",
			"spf." + doctorHost + " TXT v=spf1 ip4:9.9.9.9 -all\n  failed.",
			"bounces." + doctorHost + " MX 10 " + doctorHost + "\n  failed.",
			"._domainkey." + doctorHost + " TXT v=DKIM1; k=rsa; p=",
			doctorHost + " MX 10 " + doctorHost + "\n  failed, optional.",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("lacks %q:\n%s", want, out)
			}
		}
		examine(t, nil, append([]string{"--bind", "127.0.0.1"}, settings...)...).
			expect(t, "DNS records", "warning", "No SPF record was found at spf."+doctorHost+", and every domain's SPF record includes it")

		status, text, stderr := run(t, nil, append([]string{"dns", "--zone"}, settings...)...)
		if status != 0 || stderr != "" {
			t.Errorf("%d %q", status, stderr)
		}
		for line := range strings.SplitSeq(text, "\n") {
			if line != "" && line[0] != ';' {
				zone.Add(line)
			}
		}
		zone.Set("9.9.9.9.in-addr.arpa", "PTR "+doctorHost+".")
		status, out, stderr = run(t, nil, append([]string{"dns", "--json"}, settings...)...)
		var all struct {
			Host    string
			Records []domain.Record
			Failed  int
		}
		if err := json.Unmarshal([]byte(out), &all); err != nil || status != 0 || stderr != "" || all.Host != doctorHost || all.Failed != 0 || len(all.Records) != 9 {
			t.Errorf("%d %q %v %s", status, stderr, err, out)
		}
		for _, r := range all.Records {
			if r.Status != domain.RecordVerified {
				t.Errorf("%+v", r)
			}
		}
		examine(t, nil, append([]string{"--bind", "127.0.0.1"}, settings...)...).expect(t, "DNS records", "ok", "6 records of "+doctorHost)

		zone.Set("spf."+doctorHost, `TXT "v=spf1 -all"`)
		examine(t, nil, append([]string{"--bind", "127.0.0.1"}, settings...)...).
			expect(t, "DNS records", "warning", "The SPF record does not allow 9.9.9.9")
		if status, _, stderr := run(t, nil, append([]string{"dns"}, settings...)...); status != 1 || !strings.Contains(stderr, "3 required records") {
			t.Errorf("%d %q", status, stderr)
		}
	})
}
