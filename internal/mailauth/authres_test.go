// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// spelled returns a parsed field as text.
func spelled(r ResultsField) string {
	out := r.AuthServID
	for _, m := range r.Methods {
		out += fmt.Sprintf("; %s=%s%v", m.Name, m.Result, m.Properties)
	}
	return out
}

func TestParseResults(t *testing.T) {
	for value, want := range map[string]string{
		"mx.test; none":       "mx.test",
		"mx.test 1; spf=pass": "mx.test; spf=pass[]",
		" (a (b) \\) c) mx.test (x) ; (y) DKIM (z) = (q) Pass header.d=a.test (k)  header.i=@a.test": "mx.test; dkim=pass[[header.d a.test] [header.i @a.test]]",
		`mx.test; spf=fail reason="no; (really) \"not\"" smtp.mailfrom="a b"@c.test`:                 "not whole",
		`mx.test; spf=fail reason="no; (really) \"not\""; dkim/1=none`:                               `mx.test; spf=fail[[reason no; (really) "not"]]; dkim=none[]`,
		"\"mx.test\";\r\n\tspf=pass\r\n\tsmtp.mailfrom=x@y.test;\r\n arc=pass":                       "mx.test; spf=pass[[smtp.mailfrom x@y.test]]; arc=pass[]",
		"mx.test":             "mx.test",
		"":                    "not whole",
		"; spf=pass":          "not whole",
		"mx.test; spf":        "not whole",
		"mx.test; spf=pass x": "not whole",
		"mx.test; spf=":       "not whole",
		"mx.test; =pass":      "not whole",
		"mx.test; spf=\"pass": "not whole",
		"mx.test (; spf=pass": "mx.test",
		"mx.test; " + strings.Repeat("spf=pass;", 200) + "x=y": "not whole",
		strings.Repeat("x", 40_000):                            "not whole",
	} {
		r, ok := ParseResultsField(value)
		got := spelled(r)
		if !ok {
			got = "not whole"
		}
		if got != want {
			t.Errorf("%.60q: %s, want %s", value, got, want)
		}
	}
}

// hostileJudgement returns results with everything that senders control.
func hostileJudgement(text string) *Results {
	return &Results{
		IPRev: IPRev{Result: Pass, Addr: netip.MustParseAddr("2001:db8::1"), Name: text},
		SPF:   SPF{Result: PermError, Domain: text, Reason: text, FromHelo: true},
		DKIM:  []*DKIM{{Result: Pass, Domain: text, Selector: text, Algorithm: text, SignaturePrefix: text}, {Result: Fail, Reason: text}},
		ARC:   ARC{Result: Fail, Reason: text},
		DMARC: DMARC{Result: Fail, AuthorDomain: text, Policy: PolicyReject},
	}
}

// A field that we write parses to the same results, for any input of the sender.
func TestResultsSurvive(t *testing.T) {
	for _, text := range []string{"a.test", "a b", "x\"; dmarc=pass header.from=bank.test (", "\r\nX: y", "ü\x00\\", strings.Repeat("x", 500)} {
		checkWritten(t, text)
	}
	j := &Results{
		IPRev: IPRev{Result: Pass, Addr: netip.MustParseAddr("192.0.2.1"), Name: "mx.a.test"}, SPF: SPF{Result: Pass, Domain: "a.test"},
		DKIM: []*DKIM{{Result: Pass, Domain: "a.test", Selector: "s1", Algorithm: "rsa-sha256", SignaturePrefix: "ab/+cd12"}}, ARC: ARC{Result: None}, DMARC: DMARC{Result: Pass, AuthorDomain: "a.test", Policy: PolicyNone},
	}
	want := "Authentication-Results: mx.test;\r\n\tiprev=pass policy.iprev=192.0.2.1 (mx.a.test);\r\n\tspf=pass smtp.mailfrom=a.test;\r\n" +
		"\tdkim=pass header.d=a.test header.s=s1 header.a=rsa-sha256 header.b=\"ab/+cd12\";\r\n\tdmarc=pass header.from=a.test\r\n"
	if got := string(j.AppendField(nil, "mx.test")); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

func checkWritten(t *testing.T, text string) {
	t.Helper()
	field := string(hostileJudgement(text).AppendField(nil, "mx.test"))
	value, ok := strings.CutPrefix(field, "Authentication-Results: ")
	if !ok || !strings.HasSuffix(value, "\r\n") || strings.Count(value, "\r\n") != strings.Count(value, "\r\n\t")+1 {
		t.Fatalf("%q", field)
	}
	r, ok := ParseResultsField(strings.TrimSuffix(value, "\r\n"))
	var methods []string
	for _, m := range r.Methods {
		methods = append(methods, m.Name+"="+string(m.Result))
	}
	if want := "iprev=pass spf=permerror dkim=pass dkim=fail arc=fail dmarc=fail"; !ok || r.AuthServID != "mx.test" || strings.Join(methods, " ") != want {
		t.Fatalf("%q is read as %v", field, methods)
	}
	for line := range strings.SplitSeq(field, "\r\n") {
		if len(line) > 998 {
			t.Fatalf("a line of %d", len(line))
		}
	}
}

func FuzzAuthenticationResults(f *testing.F) {
	for _, value := range []string{"mx.test; spf=pass smtp.mailfrom=a@b.test; dkim=fail reason=\"x\" header.d=y (z)", "a;b=c/d e.f=g", "(((", "\"", "x 1;;;none"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		r, _ := ParseResultsField(value)
		if len(r.Methods) > maxMethods {
			t.Fatalf("%d methods", len(r.Methods))
		}
		for _, m := range r.Methods {
			if len(m.Properties) > maxProperties {
				t.Fatalf("%d properties", len(m.Properties))
			}
		}
		checkWritten(t, value)
	})
}

func FuzzSignatures(f *testing.F) {
	for _, header := range []string{
		"DKIM-Signature: v=1; a=ed25519-sha256; c=relaxed/simple; d=a.test; s=s; h=from:to; l=3; bh=AAAA; b=AAAA\r\nFrom: a@a.test\r\n",
		"ARC-Seal: i=1; a=rsa-sha256; cv=none; d=a.test; s=s; b=AAAA\r\nARC-Message-Signature: i=1; a=rsa-sha256; d=a.test; s=s; h=from; bh=AAAA; b=AAAA\r\n" +
			"ARC-Authentication-Results: i=1; a.test; dmarc=pass header.from=b.test\r\nFrom: a@b.test\r\n",
		"dkim-signature : b=;\r\n\tb", "ARC-Seal:\r\nARC-Message-Signature:\r\nARC-Authentication-Results:\r\n",
	} {
		f.Add(header, "body\r\n\r\n")
	}
	f.Fuzz(func(t *testing.T, header, body string) {
		trial := (&Verifier{}).Begin([]byte(header))
		_, _ = trial.Write([]byte(body))
		if len(trial.signatures) > maxSignatures || len(trial.arcSets) > maxARCSets || len(trial.bodyHashes) > maxSignatures+1 || len(trial.authors.domains) > maxAuthorDomains {
			t.Fatal("too much")
		}
		for _, d := range trial.signatures {
			if d.Result == "" {
				_, _ = d.bodyHasher.finish()
				_ = trial.header.digest(&d.signature, &d.signedContent)
			}
		}
	})
}

func FuzzPublicKey(f *testing.F) {
	f.Add("v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=", "ed25519-sha256")
	f.Add("p=MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBANmBe10IgY+u7h3enWTukkqtUD5PR52Tb/mPfjC0QJTocVBq6Za/PlzfV+Py92VaCak19F4WrbVTK5Gg5tW220MCAwEAAQ==", "rsa-sha256")
	f.Fuzz(func(t *testing.T, txt, algorithm string) {
		if k, bad := parseKeyRecord(txt, algorithm); bad == "" && k.key == nil {
			t.Fatal("neither a key nor a fault")
		} else if bad == "" {
			_ = k.verifies(make([]byte, 32), []byte(txt))
		}
	})
}

func FuzzSPFRecord(f *testing.F) {
	for _, text := range []string{"v=spf1 a mx:b.test/24//64 ip4:1.2.3.4/8 ip6:::/0 exists:%{ir}.%{l1r-+}.x.test include:y.test ~all exp=z.test redirect=%{d}", "v=spf1 ip4:::1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, bad := parseSPF(text)
		if bad != "" {
			return
		}
		s := &spfEvaluation{ip: netip.MustParseAddr("192.0.2.1"), localPart: "a", senderDomain: "b.test", helo: "c.test", namesKnown: true}
		for _, d := range r.directives {
			if d.kind == "ip4" || d.kind == "ip6" {
				_ = d.network.Contains(s.ip)
			}
			if name, ok := s.expandDomain(t.Context(), d.domain, "d.test"); ok && len(name) > 253 {
				t.Fatalf("a name of %d", len(name))
			}
		}
	})
}
