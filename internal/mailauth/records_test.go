// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckKeyRecord(t *testing.T) {
	s, published := signer(t)
	rsaPub, edPub := s.Keys[0].Private.Public(), s.Keys[1].Private.Public()
	rsaTXT, edTXT := published["sel-rsa._domainkey.client.test"], published["sel-ed25519._domainkey.client.test"]
	_, p, _ := strings.Cut(rsaTXT, "p=")
	pkcs1 := base64.StdEncoding.EncodeToString(x509.MarshalPKCS1PublicKey(rsaPub.(*rsa.PublicKey)))
	for name, txts := range map[string][]string{
		"as asked":          {rsaTXT},
		"an unknown V":      {"V=DKIM2; p=" + p}, // tags are case-sensitive in DKIM
		"among others":      {"google-site-verification=x", rsaTXT},
		"no version":        {"k=rsa; p=" + p},
		"no algorithm":      {"v=DKIM1; p=" + p},
		"blanks":            {" v = DKIM1 ;k=rsa;; p=" + p[:60] + " \t" + p[60:] + " ; "},
		"more tags":         {"v=DKIM1; h=sha1:sha256; s=email; t=s; n=hello; p=" + p},
		"another key form":  {"v=DKIM1; p=" + pkcs1},
		"base64 not padded": {"v=DKIM1; p=" + strings.TrimRight(pkcs1, "=")},
	} {
		if ok, problem := CheckKeyRecord(txts, rsaPub); !ok || problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
	if ok, problem := CheckKeyRecord([]string{edTXT}, edPub); !ok {
		t.Errorf("Ed25519: %s", problem)
	}
	for _, tt := range []struct {
		want string
		txts []string
	}{
		{"No TXT record was found", nil},
		{"not a DKIM key", []string{"v=spf1 -all"}},
		{"2 DKIM keys were found", []string{rsaTXT, rsaTXT}},
		{"cut off after 230 of 392", []string{rsaTXT[:230+len("v=DKIM1; k=rsa; p=")]}},
		{"another key", []string{strings.Replace(rsaTXT, p[100:104], "AAAA", 1)}},
		{"not valid base64", []string{"v=DKIM1; p=" + p + "!"}},
		{"quotation marks", []string{"v=DKIM1; p=" + p[:200] + `" "` + p[200:]}},
		{"quotation marks", []string{`"v=DKIM1; k=rsa; p=` + p}},
		{"must begin with v=DKIM1", []string{"k=rsa; v=DKIM1; p=" + p}},
		{"it must be v=DKIM1", []string{"v=DKIM2; p=" + p}},
		{"k=ed25519", []string{edTXT}},
		{"revoked", []string{"v=DKIM1; p="}},
		{"no p=", []string{"v=DKIM1; k=rsa"}},
		{"no p=", []string{"v=DKIM1; k=rsa; P=" + p}},
		{"sha256", []string{"v=DKIM1; h=sha1; p=" + p}},
		{"does not allow mail", []string{"v=DKIM1; s=tlsrpt; p=" + p}},
		{"t=y", []string{"v=DKIM1; t=y; p=" + p}},
		{"p= twice", []string{"v=DKIM1; p=; p=" + p}},
		{"name=value", []string{"v=DKIM1; k; p=" + p}},
	} {
		if ok, problem := CheckKeyRecord(tt.txts, rsaPub); ok || !strings.Contains(problem, tt.want) {
			t.Errorf("%q: %v, %q", tt.want, ok, problem)
		}
	}
}

func TestCheckSPF(t *testing.T) {
	const ours = "spf.mail.test"
	for _, txt := range []string{
		"v=spf1 include:spf.mail.test ~all",
		"V=SPF1 a mx/24 a:x.test/24//64 mx//64 ip4:192.0.2.0/24 ip6:2001:db8::/32 +INCLUDE:SPF.Mail.Test. exists:%{i}.x.test ptr -all",
		"v=spf1 include:spf.mail.test +all", "v=spf1 include:spf.mail.test ?all", "v=spf1 include:spf.mail.test",
		"v=spf1  include:spf.mail.test  redirect=x.test exp=e.x.test unknown=yes",
	} {
		if ok, problem := CheckSPFRecord([]string{"other", txt}, ours); !ok || problem != "" {
			t.Errorf("%s: %s", txt, problem)
		}
	}
	for _, tt := range []struct {
		want string
		txts []string
	}{
		{"No SPF record was found. Publish: v=spf1 include:spf.mail.test ~all", nil},
		{"No SPF record was found", []string{"v=spf10 -all", "x"}},
		{"begins with ““v=spf1 -a”. Publish", []string{"“v=spf1 -all"}},
		{"must begin with exactly", []string{`"v=spf1 include:spf.mail.test -all"`}},
		{"2 SPF records were found, and receivers then ignore them all. Replace them with this one: v=spf1 mx include:x.test a include:spf.mail.test -all",
			[]string{"v=spf1 mx include:x.test -all", "v=spf1 a include:spf.mail.test mx ~all"}},
		{"lacks include:spf.mail.test. Publish this instead: v=spf1 mx include:x.test include:spf.mail.test -all", []string{"v=spf1 mx include:x.test -all"}},
		{"Publish this instead: v=spf1 include:spf.mail.test redirect=x.test", []string{"v=spf1 redirect=x.test"}},
		{"Publish this instead: v=spf1 include:spf.mail.test ~all", []string{"v=spf1"}},
		{"stands behind “all”, where receivers do not read it. Publish this instead: v=spf1 a include:spf.mail.test -all", []string{"v=spf1 a -all include:spf.mail.test"}},
		{"has a “?” before it", []string{"v=spf1 ?include:spf.mail.test -all"}},
		{"“ip4:300.1.1.1” of the SPF record has an address that is not valid", []string{"v=spf1 ip4:300.1.1.1 include:spf.mail.test"}},
		{"not IPv4", []string{"v=spf1 ip4:2001:db8::1"}},
		{"not IPv6", []string{"v=spf1 ip6:192.0.2.1"}},
		{"is not known to SPF", []string{"v=spf1 includ" + ":spf.mail.test -all"}},
		{"where a colon belongs", []string{"v=spf1 include=spf.mail.test -all"}},
		{"lacks a domain", []string{"v=spf1 include: spf.mail.test"}},
		{"network length", []string{"v=spf1 a/33"}},
		{"network length", []string{"v=spf1 mx/24//129"}},
		{"network length", []string{"v=spf1 a:x.test/"}},
		{"characters that are not allowed", []string{"v=spf1 include:spf.mail.test\u00a0-all"}},
		{"ask the DNS 11 times", []string{"v=spf1 include:spf.mail.test" + strings.Repeat(" a", 10)}},
	} {
		if ok, problem := CheckSPFRecord(tt.txts, ours); ok || !strings.Contains(problem, tt.want) {
			t.Errorf("%q: %v, %q", tt.want, ok, problem)
		}
	}
}

func TestCheckDMARC(t *testing.T) {
	for _, txt := range []string{
		"V=DMARC1; P=none", "V = DMARC1 ; P = REJECT; RUA=MAILTO:a@x.test; ADKIM=S", "v=DMARC1; p=none", "v=DMARC1;p=reject;", "v = DMARC1 ; p = Quarantine ; sp=none; np=reject; pct=50; adkim=s; aspf=r; fo=1:d; rf=afrf; ri=86400; unknown=x",
		"v=DMARC1; p=none; rua=mailto:a@x.test!10m, mailto:b@y.test; ruf=mailto:c@x.test; t=y; psd=u", "v=DMARC1; rua=mailto:a@x.test",
	} {
		if ok, problem := CheckDMARCRecord([]string{"other", txt}); !ok || problem != "" {
			t.Errorf("%s: %s", txt, problem)
		}
	}
	for _, tt := range []struct {
		want string
		txts []string
	}{
		{"No DMARC record was found. Publish at least: v=DMARC1; p=none", nil},
		{"2 DMARC records", []string{"v=DMARC1; p=none", "v=DMARC1; p=none"}},
		{"in capitals", []string{"v=dmarc1; p=none"}},
		{"must begin with exactly", []string{`"v=DMARC1; p=none"`}},
		{"must begin with exactly", []string{"v=DMARC1, p=none"}},
		{"no policy", []string{"v=DMARC1;"}},
		{"p=rejct, which is not valid. Use none, quarantine or reject", []string{"v=DMARC1; p=rejct"}},
		{"pct=", []string{"v=DMARC1; p=none; pct=101"}},
		{"adkim=relaxed", []string{"v=DMARC1; p=none; adkim=relaxed"}},
		{"mailto:name@domain", []string{"v=DMARC1; p=none; rua=a@x.test"}},
		{"p= twice", []string{"v=DMARC1; p=none; p=reject"}},
		{"p= twice", []string{"v=DMARC1; p=none; P=reject"}},
		{"must begin with exactly", []string{"V=dmarc1; p=none"}},
		{"2 DMARC records", []string{"v=DMARC1; p=none", "V=DMARC1; p=none"}},
		{"name=value", []string{"v=DMARC1; p none"}},
	} {
		if ok, problem := CheckDMARCRecord(tt.txts); ok || !strings.Contains(problem, tt.want) {
			t.Errorf("%q: %v, %q", tt.want, ok, problem)
		}
	}
}

// sound checks the properties of every answer, for any published records.
func sound(t *testing.T, in string, ok bool, problem string) {
	t.Helper()
	if ok != (problem == "") || utf8.ValidString(in) && !utf8.ValidString(problem) {
		t.Errorf("%q: %v, %q", in, ok, problem)
	}
}

func FuzzKeyRecord(f *testing.F) {
	s, published := signer(f)
	for _, txt := range published {
		f.Add(txt)
	}
	for _, txt := range []string{"v=DKIM1; p=", "k=rsa;;;p=\"", "v=DKIM1; h=:sha256: ; t=s:y; p=MIIB", "p==; = ;"} {
		f.Add(txt)
	}
	f.Fuzz(func(t *testing.T, txt string) {
		for _, k := range s.Keys {
			ok, problem := CheckKeyRecord([]string{txt}, k.Private.Public())
			sound(t, txt, ok, problem)
			if !utf8.ValidString(problem) || len(problem) > 1000 {
				t.Errorf("%q: %q", txt, problem)
			}
		}
	})
}

func FuzzSPFText(f *testing.F) {
	for _, txt := range []string{"v=spf1 a/24//64 mx:x/0 ip4:1.2.3.4/32 ip6:::/0 include:spf.mail.test -all", "v=spf1 =x a=b +redirect=x a:", "v=spf1 ip6:fe80::1%eth0", "v=spf1 /// a// a/+1 -"} {
		f.Add(txt, "v=spf1 mx")
	}
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, txts := range [][]string{{one}, {one, two}} {
			ok, problem := CheckSPFRecord(txts, "spf.mail.test")
			sound(t, one+two, ok, problem)
			_, advice, found := strings.Cut(problem, "Publish this instead: ")
			if !found {
				continue
			}
			if again, more := CheckSPFRecord([]string{advice}, "spf.mail.test"); !again && !strings.Contains(more, "ask the DNS") {
				t.Errorf("%q: advised %q, of which it says %q", txts, advice, more)
			}
		}
	})
}

func FuzzDMARCText(f *testing.F) {
	for _, txt := range []string{"v=DMARC1; p=none; rua=mailto:a@x,https://x; pct=1", "v=DMARC1;p=;sp=;", "v=dmarc1", "'v=DMARC1;\x00"} {
		f.Add(txt)
	}
	f.Fuzz(func(t *testing.T, txt string) {
		ok, problem := CheckDMARCRecord([]string{txt})
		sound(t, txt, ok, problem)
		if ok && !isDMARC(txt) {
			t.Errorf("%q is taken", txt)
		}
	})
}
