// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/domain"
)

// The message for each mistake.
func TestWords(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	apex := func(lines ...string) []string {
		return append([]string{`TXT "v=spf1 include:spf.mail.service.test ~all"`}, lines...)
	}
	withMX := func(lines ...string) []string { return append([]string{"MX 10 mail.service.test."}, lines...) }
	rsa := record(t, dom, domain.KindDKIM)
	token := record(t, dom, domain.KindOwnership).Value
	cases := []struct {
		name, kind, at string
		lines          []string
		ok             bool
		words          string // part of the message; "" for none
	}{
		{"ours alone", domain.KindMX, "shop.test", apex("MX 10 mail.service.test."), true, ""},
		{"ours and a backup", domain.KindMX, "shop.test", apex("MX 10 mail.service.test.", "MX 20 backup.test."), true, ""},
		{"other number", domain.KindMX, "shop.test", apex("MX 0 MAIL.service.test."), true, ""},
		{"no MX", domain.KindMX, "shop.test", apex(), false, "No MX record was found at shop.test. Publish: shop.test MX 10 mail.service.test"},
		{"no such name", domain.KindMX, "shop.test", nil, false, "No MX record was found"},
		{"elsewhere", domain.KindMX, "shop.test", apex("MX 5 mx.old.test."), false, "Mail for shop.test goes to mx.old.test, not to us. Publish MX 10 mail.service.test"},
		{"another first", domain.KindMX, "shop.test", apex("MX 10 mail.service.test.", "MX 5 mx.old.test."), false, "Mail goes to mx.old.test first (preference 5; ours is 10)"},
		{"a tie", domain.KindMX, "shop.test", apex("MX 10 mail.service.test.", "MX 10 mx.old.test."), false, "mx.old.test has the same preference (10)"},
		{"null MX", domain.KindMX, "shop.test", apex("MX 0 ."), false, "takes no mail at all. Replace it with: 10 mail.service.test"},

		{"other words around", domain.KindSPF, "shop.test", withMX(`TXT "v=spf1 ip4:192.0.2.1 include:spf.mail.service.test -all"`, `TXT "google-site=x"`), true, ""},
		{"no SPF", domain.KindSPF, "shop.test", withMX(), false, "v=spf1 include:spf.mail.service.test ~all"},
		{"lacks us", domain.KindSPF, "shop.test", withMX(`TXT "v=spf1 include:_spf.old.test -all"`), false, "v=spf1 include:_spf.old.test include:spf.mail.service.test -all"},
		{"two records", domain.KindSPF, "shop.test", withMX(`TXT "v=spf1 include:spf.mail.service.test ~all"`, `TXT "v=spf1 -all"`), false, "2 SPF records"},

		{"key in pieces", domain.KindDKIM, rsa.Name, []string{`TXT "` + rsa.Value[:100] + `" "` + rsa.Value[100:300] + `" "` + rsa.Value[300:] + `"`}, true, ""},
		{"no key", domain.KindDKIM, rsa.Name, nil, false, "No TXT record was found at " + rsa.Name},
		{"key cut off", domain.KindDKIM, rsa.Name, []string{`TXT "` + rsa.Value[:200] + `"`}, false, "cut off"},
		{"another key", domain.KindDKIM, rsa.Name, []string{`TXT "v=DKIM1; k=rsa; p=MCowBQYDK2VwAyEA"`}, false, "another key"},
		{"revoked", domain.KindDKIM, rsa.Name, []string{`TXT "v=DKIM1; p="`}, false, "revoked"},

		{"their own policy", domain.KindDMARC, "_dmarc.shop.test", []string{`TXT "v=DMARC1; p=reject; rua=mailto:d@old.test"`}, true, ""},
		{"no DMARC", domain.KindDMARC, "_dmarc.shop.test", nil, false, "No TXT record was found at _dmarc.shop.test. Publish: _dmarc.shop.test TXT v=DMARC1; p=none"},
		{"bad policy", domain.KindDMARC, "_dmarc.shop.test", []string{`TXT "v=DMARC1; p=maybe"`}, false, "p=maybe"},
		{"domain twice", domain.KindDMARC, "_dmarc.shop.test.shop.test", []string{`TXT "v=DMARC1; p=none"`}, false, "Enter the name as _dmarc only"},

		{"quotes typed in", domain.KindOwnership, "_mailstead.shop.test", []string{`TXT "\"` + token + `\""`}, true, ""},
		{"capitals", domain.KindOwnership, "_mailstead.shop.test", []string{`TXT "` + strings.ToUpper(token) + `"`}, true, ""},
		{"gone", domain.KindOwnership, "_mailstead.shop.test", nil, true, "put the record back"},
		{"of another service", domain.KindOwnership, "_mailstead.shop.test", []string{`TXT "x"`}, true, "put the record back"},

		{"elsewhere", domain.KindAutoconfig, "autoconfig.shop.test", []string{"CNAME old.test."}, false, "autoconfig.shop.test points to old.test. Make it a CNAME to mail.service.test."},
		{"an address", domain.KindAutoconfig, "autoconfig.shop.test", []string{"A 192.0.2.1"}, false, "No CNAME record was found at autoconfig.shop.test"},

		{"heavier", domain.KindSRV, "_imaps._tcp.shop.test", []string{"SRV 5 9 10993 mail.service.test."}, true, ""},
		{"wrong port", domain.KindSRV, "_imaps._tcp.shop.test", []string{"SRV 0 1 143 mail.service.test."}, false, "port 143 of mail.service.test, but the service is on port 10993"},
		{"another host", domain.KindSRV, "_imaps._tcp.shop.test", []string{"SRV 0 1 993 old.test.", "SRV 9 1 10993 mail.service.test."}, false, "points to old.test. Replace it with: 0 1 10993 mail.service.test"},
		{"no service", domain.KindSRV, "_imaps._tcp.shop.test", []string{"SRV 0 0 0 ."}, false, "no such service"},

		{"their own id", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1;id=20260101"`}, true, ""},
		{"bad id", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1; id=2026-01-01"`}, false, "id= must be"},
		{"no id", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1"`}, false, "lacks id="},
		{"blanks around =", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1; id = 1"`}, false, "lacks id="},
		{"a capital tag", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1; ID=1"`}, false, "lacks id="},
		{"a capital version", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "V=STSv1; id=1"`}, false, "in just these letters"},
		{"two", domain.KindMTASTS, "_mta-sts.shop.test", []string{`TXT "v=STSv1; id=1"`, `TXT "v=STSv1; id=2"`}, false, "more than one"},
		{"bad version", domain.KindTLSRPT, "_smtp._tls.shop.test", []string{`TXT "v=TLSRPT1; rua=mailto:a@old.test"`}, false, "v=TLSRPTv1"},
		{"reports elsewhere", domain.KindTLSRPT, "_smtp._tls.shop.test", []string{`TXT "v=TLSRPTv1; rua=https://old.test/"`}, true, ""},
		{"a scheme in capitals", domain.KindTLSRPT, "_smtp._tls.shop.test", []string{`TXT "v=TLSRPTv1; rua=MAILTO:a@old.test"`}, true, ""},
		{"blanks around =", domain.KindTLSRPT, "_smtp._tls.shop.test", []string{`TXT "v=TLSRPTv1; rua =mailto:a@old.test"`}, false, "lacks rua="},
		{"bad address", domain.KindTLSRPT, "_smtp._tls.shop.test", []string{`TXT "v=TLSRPTv1; rua=old@old.test"`}, false, "rua= must be"},
	}
	w.publish(dom)
	w.check(dom)
	for _, c := range cases {
		t.Run(c.kind+" "+c.name, func(t *testing.T) {
			w := *w
			w.t = t
			place := record(t, dom, c.kind).Name
			w.zone.Set(place)
			w.zone.Set(c.at, c.lines...)
			got := record(t, w.check(dom), c.kind)
			want := domain.RecordFailed
			if c.ok {
				want = domain.RecordVerified
			}
			if got.Status != want || !strings.Contains(got.Error, c.words) || (got.Error == "") != (c.words == "") {
				t.Errorf("%s: %s\nwant %s: %s", got.Status, got.Error, want, c.words)
			}
			w.zone.Set(c.at)
		})
	}
}

// A subdomain follows the policy of its registered domain.
func TestPolicyFromAbove(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "mail.eu.shop.test")
	dmarc := func() domain.Record { return record(t, w.check(dom), domain.KindDMARC) }
	if r := dmarc(); r.Status != domain.RecordFailed {
		t.Errorf("none: %+v", r)
	}
	w.zone.Set("_dmarc.test", `TXT "v=DMARC1; p=reject"`)
	if r := dmarc(); r.Status != domain.RecordFailed {
		t.Errorf("the public suffix's: %+v", r)
	}
	w.zone.Set("_dmarc.shop.test", `TXT "v=DMARC1; p=quarantine"`)
	if r := dmarc(); r.Status != domain.RecordVerified || r.Observed[0] != "v=DMARC1; p=quarantine" {
		t.Errorf("the registered name's: %+v", r)
	}
	w.zone.ServFail("_dmarc.eu.shop.test")
	if r := dmarc(); r.Status != domain.RecordTemporaryFailure {
		t.Errorf("no answer on the way: %+v", r)
	}
	w.zone.Set("_dmarc.mail.eu.shop.test", `TXT "v=DMARC1; p=perhaps"`)
	if r := dmarc(); r.Status != domain.RecordFailed {
		t.Errorf("its own, which is wrong: %+v", r)
	}
}

func TestWordsForAnUnregisteredName(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "typo.test")
	w.zone.NXDomain("typo.test")
	got := w.check(dom)
	if r := record(t, got, domain.KindMX); !strings.Contains(r.Error, "typo.test does not exist") {
		t.Error(r.Error)
	}
	if r := record(t, got, domain.KindOwnership); r.Status != domain.RecordFailed || !strings.Contains(r.Error, "Publish: _mailstead.typo.test TXT mailstead-verification=") {
		t.Error(r.Status, r.Error)
	}
}

// Hostile octets are stored and returned in a form that the database and the API accept.
func TestHostileText(t *testing.T) {
	w := open(t, dbOf(t))
	dom := w.create(w.ann, "shop.test")
	w.zone.Set("_dmarc.shop.test", `TXT "v=DMARC1; p=\000\255\010<script>"`)
	w.zone.Set("_mailstead.shop.test", `TXT "`+strings.Repeat("y", 255)+`" "`+strings.Repeat("y", 255)+`" "`+
		strings.Repeat("y", 255)+`" "`+strings.Repeat("y", 255)+`" "`+strings.Repeat("y", 255)+`"`)
	got := w.check(dom)
	if r := record(t, got, domain.KindDMARC); strings.ContainsAny(r.Observed[0]+r.Error, "\x00\n") || !utf8.ValidString(r.Observed[0]+r.Error) {
		t.Errorf("%q %q", r.Observed, r.Error)
	}
	if r := record(t, got, domain.KindOwnership); len(r.Observed[0]) > 1100 {
		t.Errorf("%d octets kept", len(r.Observed[0]))
	}
}
