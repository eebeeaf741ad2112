// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// passedFor parses verified identifiers: "spf:domain" or "dkim:domain", with a question mark at the
// end after a temporary DNS error.
func passedFor(list string) (ids []authIdentifier) {
	for _, one := range strings.Fields(list) {
		kind, domain, _ := strings.Cut(one, ":")
		id := authIdentifier{strings.TrimRight(domain, "?!"), kind == "spf", Pass}
		switch {
		case strings.HasSuffix(domain, "?"):
			id.result = TempError
		case strings.HasSuffix(domain, "!"):
			id.result = Fail
		}
		ids = append(ids, id)
	}
	return ids
}

func TestDMARC(t *testing.T) {
	c := newCourt(t, "there.np.test. A 192.0.2.1", "there.sp.test. A 192.0.2.1", "mx.np.test. MX 10 x.test.", "there.both.test. AAAA 2001:db8::1")
	for domain, text := range map[string]string{
		"plain.test": "v=DMARC1; p=reject", "q.test": "v=DMARC1;p=quarantine;", "none.test": "v=DMARC1; p=none; rua=mailto:a@b.test",
		"strict.test": "v=DMARC1; p=reject; adkim=s; aspf=s", "spf-strict.test": "v=DMARC1; p=reject; aspf=s",
		"sp.test": "v=DMARC1; p=none; sp=quarantine", "np.test": "v=DMARC1; p=none; np=reject", "both.test": "v=DMARC1; p=none; sp=reject; np=quarantine",
		"own.sp.test": "v=DMARC1; p=reject", "testing.test": "v=DMARC1; p=reject; t=y", "testing-q.test": "v=DMARC1; p=quarantine; t=y",
		"pct.test": "v=DMARC1; p=reject; pct=20", "pct100.test": "v=DMARC1; p=reject; pct=100", "pct-t.test": "v=DMARC1; p=reject; pct=0; t=n", "pct-odd.test": "v=DMARC1; p=reject; pct=x",
		"nop.test": "v=DMARC1; adkim=s", "nop-rua.test": "v=DMARC1; rua=mailto:a@b.test", "badp.test": "v=DMARC1; p=discard", "badsp.test": "v=DMARC1; p=reject; sp=maybe; rua=mailto:a@b.test",
		"case.test": "v=DMARC1; P=Reject; ASPF=S", "junk.test": "v=DMARC1; p=reject; =; ;;x; y=; adkim", "late.test": "p=reject; v=DMARC1", "v2.test": "v=DMARC2; p=reject", "lower.test": "v=dmarc1; p=reject",
		"upper.test": "V=DMARC1; P=Reject", "blanks.test": "V = DMARC1 ; p = quarantine", "tight.test": "v=DMARC1;p=REJECT;", "upper-lower.test": "V=dmarc1; p=reject",
		"huge.test": "v=DMARC1; p=reject; x=" + strings.Repeat("y", 20_000),
		// A public suffix with a policy, and organisations below it.
		"bank": "v=DMARC1; psd=y; p=reject; np=quarantine", "one.bank": "v=DMARC1; p=quarantine; sp=none",
		// An organization with its own record, and a domain that is only part of one.
		"uni.test": "v=DMARC1; p=reject", "dept.uni.test": "v=DMARC1; p=quarantine; psd=n",
		// An unreadable policy is neither the organization's nor none.
		"bad.uni.test": "v=DMARC1; p=discard", "bad.test": "v=DMARC1; p=discard", "good.bad.test": "v=DMARC1; p=reject",
		"a.b.c.d.e.f.g.h.deep.test": "v=DMARC1; p=quarantine", "deep.test": "v=DMARC1; p=reject",
	} {
		c.txt("_dmarc."+domain, text)
	}
	c.zone.Add(`_dmarc.two.test. TXT "v=DMARC1; p=reject"`, `_dmarc.two.test. TXT "v=DMARC1; p=none"`,
		`_dmarc.beside.test. TXT "v=spf1 -all"`, `_dmarc.beside.test. TXT "v=DMARC1; p=reject"`,
		"_dmarc.cname.test. CNAME _dmarc.plain.test.", "_dmarc.loop.test. CNAME _dmarc.loop.test.")
	c.zone.ServFail("_dmarc.dead.test")
	c.zone.ServFail("_dmarc.part.test")
	c.zone.ServFail("dead.np.test")
	for _, tt := range []struct{ from, ids, want string }{
		{"plain.test", "", "fail reject"},
		{"plain.test", "spf:plain.test", "pass none"},
		{"plain.test", "dkim:plain.test", "pass none"},
		{"plain.test", "spf:plain.test! dkim:plain.test", "pass none"},
		{"plain.test", "spf:plain.test! dkim:plain.test!", "fail reject"},
		{"plain.test", "spf:mail.plain.test", "pass none"},
		{"plain.test", "dkim:other.test spf:test", "fail reject"},
		{"plain.test", "dkim:notplain.test", "fail reject"},
		{"plain.test", "dkim:plain.test.evil.org", "fail reject"},
		{"mail.plain.test", "dkim:plain.test", "pass none"},
		{"mail.plain.test", "dkim:other.plain.test", "pass none"},
		{"mail.plain.test", "", "fail reject"},
		{"q.test", "", "fail quarantine"},
		{"none.test", "", "fail none"},
		{"nothing.test", "dkim:nothing.test", "none none"},
		{"strict.test", "spf:mail.strict.test dkim:mail.strict.test", "fail reject"},
		{"strict.test", "dkim:strict.test", "pass none"},
		{"spf-strict.test", "spf:mail.spf-strict.test", "fail reject"},
		{"spf-strict.test", "dkim:mail.spf-strict.test", "pass none"},
		{"sp.test", "", "fail none"},
		{"x.sp.test", "", "fail quarantine"},
		{"own.sp.test", "", "fail reject"},
		{"there.np.test", "", "fail none"},
		{"mx.np.test", "", "fail none"},
		{"gone.np.test", "", "fail reject"},
		{"dead.np.test", "", "fail none"},
		{"there.both.test", "", "fail reject"},
		{"gone.both.test", "", "fail quarantine"},
		{"testing.test", "", "fail quarantine"},
		{"testing-q.test", "", "fail none"},
		{"pct.test", "", "fail quarantine"},
		{"pct100.test", "", "fail reject"},
		{"pct-t.test", "", "fail reject"},
		{"pct-odd.test", "", "fail reject"},
		{"nop.test", "", "none none"},
		{"nop-rua.test", "", "fail none"},
		{"badp.test", "", "none none"},
		{"badsp.test", "", "fail none"},
		{"case.test", "spf:x.case.test", "fail reject"},
		{"junk.test", "", "fail reject"},
		{"late.test", "", "none none"},
		{"v2.test", "", "none none"},
		{"lower.test", "", "none none"},
		{"upper.test", "", "fail reject"},
		{"blanks.test", "", "fail quarantine"},
		{"tight.test", "", "fail reject"},
		{"upper-lower.test", "", "none none"},
		{"huge.test", "", "none none"},
		{"two.test", "", "none none"},
		{"beside.test", "", "fail reject"},
		{"cname.test", "", "fail reject"},
		// The tree walk.
		{"one.bank", "", "fail quarantine"},
		{"x.one.bank", "", "fail none"},
		{"two.bank", "", "fail quarantine"}, // the domain doesn't exist
		{"two.bank", "dkim:x.two.bank", "pass none"},
		{"two.bank", "dkim:one.bank dkim:bank", "fail quarantine"},
		{"bank", "dkim:one.bank", "fail reject"},
		{"dept.uni.test", "dkim:uni.test", "fail quarantine"},
		{"x.dept.uni.test", "dkim:y.dept.uni.test", "pass none"},
		{"x.dept.uni.test", "dkim:y.uni.test", "fail quarantine"},
		{"x.uni.test", "dkim:dept.uni.test", "fail reject"},
		{"x.uni.test", "dkim:y.uni.test", "pass none"},
		{"bad.uni.test", "", "none none"},
		{"x.bad.uni.test", "", "fail reject"},
		{"good.bad.test", "dkim:bad.test", "pass none"},
		{"x.bad.test", "", "none none"},
		{"1.2.3.4.5.6.7.8.9.deep.test", "", "fail reject"},
		{"x.a.b.c.d.e.f.g.h.deep.test", "", "fail reject"}, // its parent is not queried: more than 8 labels
		// Temporary errors.
		{"dead.test", "", "temperror none again"},
		{"dead.test", "dkim:other.test", "temperror none again"},
		{"dead.test", "dkim:dead.test", "temperror none"},
		{"x.dead.test", "spf:dead.test", "temperror none"},
		{"dead.test", "spf:test", "temperror none again"},
		{"x.part.test", "", "temperror none again"},
		{"loop.test", "", "temperror none again"},
		{"plain.test", "spf:plain.test?", "temperror none"},
		{"plain.test", "spf:plain.test? dkim:plain.test", "pass none"},
		{"plain.test", "spf:evil.test? dkim:evil.org?", "fail reject"},
		{"plain.test", "dkim:sub.plain.test?", "temperror none"},
		{"strict.test", "dkim:sub.strict.test?", "fail reject"},
	} {
		f := &dmarcFinder{dns: c.DNS, lookups: map[string]*dmarcLookup{}}
		d := f.evaluate(t.Context(), tt.from, passedFor(tt.ids))
		got := fmt.Sprint(d.Result, " ", d.Policy)
		if d.PolicyUnknown {
			got += " again"
		}
		if got != tt.want || d.AuthorDomain != tt.from {
			t.Errorf("%s with %q: %s (%s), want %s", tt.from, tt.ids, got, d.Reason, tt.want)
		}
		if len(f.lookups) > 2*maxTreeWalk {
			t.Errorf("%s with %q: %d questions", tt.from, tt.ids, len(f.lookups))
		}
	}
}

func TestWalkNames(t *testing.T) {
	for domain, want := range map[string]string{
		"test": "test", "a.test": "a.test test", "a.b.c.d.e.f.test": "a.b.c.d.e.f.test b.c.d.e.f.test c.d.e.f.test d.e.f.test e.f.test f.test test",
		"a.b.c.d.e.f.g.test":         "a.b.c.d.e.f.g.test b.c.d.e.f.g.test c.d.e.f.g.test d.e.f.g.test e.f.g.test f.g.test g.test test",
		"a.b.c.d.e.f.g.h.i.j.k.test": "a.b.c.d.e.f.g.h.i.j.k.test f.g.h.i.j.k.test g.h.i.j.k.test h.i.j.k.test i.j.k.test j.k.test k.test test",
	} {
		if got := treeWalkNames(domain); strings.Join(got, " ") != want || len(got) > maxTreeWalk {
			t.Errorf("%s: %v", domain, got)
		}
	}
}

// Who the author is, and the result if that is unclear.
func TestAuthors(t *testing.T) {
	c := newCourt(t, `_dmarc.bank.test. TXT "v=DMARC1; p=reject"`, `_dmarc.shop.test. TXT "v=DMARC1; p=quarantine"`, `_dmarc.loose.test. TXT "v=DMARC1; p=none"`,
		`_dmarc.xn--bcher-kva.test. TXT "v=DMARC1; p=reject"`, `client.test. TXT "v=spf1 ip4:192.0.2.7 -all"`, `_dmarc.client.test. TXT "v=DMARC1; p=reject"`)
	for header, want := range map[string]string{
		"":                                                "permerror reject  no_from",
		"Sender: a@client.test":                           "permerror reject  no_from",
		"Resent-From: a@client.test":                      "permerror reject  no_from",
		"From: a@bank.test":                               "fail reject bank.test ",
		"From: A <a@Bank.Test>":                           "fail reject bank.test ",
		"from : \"x@loose.test\" <a@bank.test>":           "permerror reject bank.test other_name",
		"From: \"x@bank.test\" <a@client.test>":           "permerror quarantine client.test other_name",
		"From: x@bank.test <a@client.test>":               "permerror reject bank.test unclear_from",
		"From: =?utf-8?q?x=40bank.test?= <a@client.test>": "permerror reject bank.test unclear_from",
		"From: x@bank.test\\<a@client.test>":              "permerror reject bank.test unclear_from",
		"From: Lee, Ann <a@client.test>":                  "pass none client.test ",
		"From: \"a@client.test\" <a@client.test>":         "pass none client.test ",
		"From: a@client.test":                             "pass none client.test ",
		"From: a@bücher.test":                             "fail reject xn--bcher-kva.test ",
		"From: a@client.test, b@client.test":              "pass none client.test ",
		"From: a@client.test, b@loose.test":               "permerror quarantine loose.test many_domains",
		"From: a@client.test, b@shop.test":                "permerror quarantine shop.test many_domains",
		"From: a@shop.test, b@bank.test, c@loose.test":    "permerror reject bank.test many_domains",
		"From: a@client.test\r\nFrom: a@client.test":      "permerror reject client.test many_from",
		"From: a@client.test\r\nFrom: a@bank.test":        "permerror reject bank.test many_from",
		"From: a@client.test\r\nFROM\t: a@client.test":    "permerror reject client.test many_from",
		"From: a@client.test\r\nFrom\r\n : a@client.test": "permerror reject client.test many_from",
		"From: ":                                            "permerror quarantine  no_author",
		"From: a":                                           "permerror quarantine  no_author",
		"From: <>":                                          "permerror quarantine  no_author",
		"From: a@localhost":                                 "permerror quarantine  no_author",
		"From: <a@loose.test> <b@bank.test>":                "permerror reject bank.test unclear_from",
		"From: <a@bank.test> b@loose.test":                  "permerror reject bank.test unclear_from",
		"From: a@bank.test a@client.test":                   "permerror reject bank.test unclear_from",
		"From: a@bank.test (x) @client.test":                "permerror reject bank.test unclear_from",
		"From: a@bank.test:a@client.test;":                  "permerror reject bank.test unclear_from",
		"From: <a@bank.test@client.test>":                   "permerror reject bank.test unclear_from",
		"From: a@bank.test by b@loose.test <a@client.test>": "permerror reject bank.test unclear_from",
		"From: \"a@bank.test\"@client.test":                 "permerror reject bank.test unclear_from",
		"From: a@client.test, nobody":                       "permerror quarantine client.test unclear_from",
		"From: a@client.test\x00":                           "permerror quarantine client.test unclear_from",
		"From: undisclosed:;":                               "permerror quarantine  no_author",
		"From: us: a@client.test;":                          "permerror quarantine client.test unclear_from",
		"From: " + manyAuthors(5):                           "permerror quarantine d0.test many_domains",
		"From: " + manyAuthors(6):                           "permerror reject d0.test many_domains",
		"From: " + manyAuthors(5) + ", a@bank.test":         "permerror reject d0.test many_domains",
		"From: <" + strings.Repeat("a@client.test,", 50) + "a@bank.test>": "permerror reject client.test unclear_from",
		"From: \"" + manyAuthors(5) + " <a@bank.test>\" <a@client.test>":  "permerror reject d0.test unclear_from",
		"From" + strings.Repeat(" ", 300) + ": a@bank.test":               "fail reject bank.test ",
		strings.Repeat("From: a@client.test\r\n", 5000) + "Subject: x":    "permerror reject client.test many_from",
	} {
		d := c.try(header+"\r\n\r\nx\r\n", outside).DMARC
		if got := fmt.Sprint(d.Result, " ", d.Policy, " ", d.AuthorDomain, " ", string(d.AuthorProblem)); got != want {
			t.Errorf("%.60q: %s (%s), want %s", header, got, d.Reason, want)
		}
	}
}

func manyAuthors(n int) string {
	var list []string
	for i := range n {
		list = append(list, "a@d"+strconv.Itoa(i)+".test")
	}
	return strings.Join(list, ", ")
}

// DMARC makes no unnecessary queries.
func TestFewQuestions(t *testing.T) {
	c := newCourt(t, `client.test. TXT "v=spf1 ip4:192.0.2.7 -all"`, `_dmarc.client.test. TXT "v=DMARC1; p=reject"`)
	if d := c.try("From: a@client.test\r\n\r\nx", outside).DMARC; d.Result != Pass {
		t.Fatalf("%+v", d)
	}
	for name, want := range map[string]int{"_dmarc.client.test": 1, "_dmarc.test": 0, "client.test": 1} {
		if n := c.zone.QueryCount(name); n != want {
			t.Errorf("%d questions about %s", n, name)
		}
	}
}

// The timeout ends all checks with a temporary error.
func TestDeadline(t *testing.T) {
	c := newCourt(t)
	for _, name := range []string{"client.test", "_dmarc.client.test", "7.2.0.192.in-addr.arpa", "s._domainkey.client.test"} {
		c.zone.Drop(name)
	}
	c.Timeout = 100_000_000 // 0.1 s
	s, _ := signer(t)
	s.Keys[0].Selector, s.Keys[1].Selector = "s", "s"
	j := c.try(signed(t, s, "From: a@client.test\r\n\r\nx\r\n"), outside)
	if j.SPF.Result != TempError || j.DKIMResult() != TempError || j.DMARC.Result != TempError || !j.DMARC.PolicyUnknown || j.IPRev.Result != TempError {
		t.Errorf("%+v %s %+v %+v", j.SPF.Result, j.results(), j.DMARC, j.IPRev)
	}
}

func FuzzDMARC(f *testing.F) {
	for _, text := range []string{"v=DMARC1; p=reject", "v=DMARC1;p=none;rua=mailto:a@b.test;pct=3;t=y;psd=n;np=x", "v=DMARC1", "v = DMARC1 ; =;;"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := parseDMARC("x.test", []string{text})
		if r == nil {
			return
		}
		valid := []Policy{PolicyNone, PolicyQuarantine, PolicyReject}
		if !slices.Contains(valid, r.p) || !slices.Contains(append(valid, ""), r.sp) || !slices.Contains(append(valid, ""), r.np) {
			t.Fatalf("%+v", r)
		}
		if f := (&dmarcFinder{}); r.testing && f.requestedPolicy(t.Context(), &dmarcRecord{domain: "x", p: r.p, testing: true}, "x") == PolicyReject {
			t.Fatal("a test that rejects")
		}
	})
}
