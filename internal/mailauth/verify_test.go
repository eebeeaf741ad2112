// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
)

// court is a Verifier with a DNS zone.
type court struct {
	*Verifier
	t    testing.TB
	zone *dnstest.Zone
}

// at is when the tests' messages arrive.
var at = time.Unix(1_700_000_100, 0)

func newCourt(t testing.TB, records ...string) *court {
	t.Helper()
	addr, zone := dnstest.Start(t, records...)
	return &court{&Verifier{DNS: dnstest.Resolver(t, addr), Now: func() time.Time { return at }}, t, zone}
}

// txt publishes a text of any length.
func (c *court) txt(name, text string) { c.zone.Publish("TXT", name, text, nil) }

var outside = ClientIdentity{IP: netip.MustParseAddr("192.0.2.7"), Helo: "mx.client.test", From: "a@client.test"}

// try verifies a whole message twice: cached DNS answers don't change the result.
func (c *court) try(msg string, from ClientIdentity) *Results {
	c.t.Helper()
	first := c.once(msg, from)
	if asked, known := first.told(), c.once(msg, from).told(); asked != known {
		c.t.Errorf("at first it is\n%s\nwhen the DNS is known it is\n%s", asked, known)
	}
	return first
}

// told returns all results as text.
func (j *Results) told() string {
	return fmt.Sprintf("%+v, SPF %s %s %q, DKIM %s, ARC %s %q %v, DMARC %+v\n%s",
		j.IPRev, j.SPF.Result, j.SPF.Domain, j.SPF.Reason, j.results(), j.ARC.Result, j.ARC.Reason, j.ARC.Sealers, j.DMARC, j.AppendField(nil, "mx.test"))
}

func (c *court) once(msg string, from ClientIdentity) *Results {
	header, body := splitHeader([]byte(msg))
	trial := c.Begin(header)
	for b := body; len(b) > 0; { // in pieces, as it arrives
		n := min(len(b), 7)
		_, _ = trial.Write(b[:n])
		b = b[n:]
	}
	return trial.Verify(c.t.Context(), from)
}

// signed prepends the signatures of the test's signer to a message.
func signed(t testing.TB, s *Signer, msg string) string {
	t.Helper()
	sig, err := s.Sign([]byte(msg))
	if err != nil {
		t.Fatal(err)
	}
	return string(sig) + msg
}

// results lists the results of the signatures.
func (j *Results) results() string {
	var all []string
	for _, d := range j.DKIM {
		one := string(d.Result)
		if d.Reason != "" {
			one += " (" + d.Reason + ")"
		}
		all = append(all, one)
	}
	return strings.Join(all, "; ")
}

// Our signatures verify in all forms, and nothing else does in their place.
func TestOwnSignaturesVerify(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	for name, msg := range messages() {
		whole := signed(t, s, msg)
		j := c.try(whole, outside)
		if got := j.results(); got != "pass; pass" || j.DKIMResult() != Pass {
			t.Errorf("%s: %s", name, got)
		}
		changed := whole + "x"
		if !strings.Contains(msg, "\r\n\r\n") {
			changed = strings.Replace(whole, "Subject: x", "Subject: y", 1)
		}
		if got := c.try(changed, outside).results(); strings.Contains(got, "pass") {
			t.Errorf("%s, changed: %s", name, got)
		}
		if got := c.try("From: b@client.test\r\n"+whole, outside).results(); strings.Contains(got, "pass") {
			t.Errorf("%s, with one From more: %s", name, got)
		}
	}
}

// The examples of the standards.
func TestVectors(t *testing.T) {
	c := newCourt(t)
	const brisbane = "v=DKIM1; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDwIRP/UC3SBsEmGqZ9ZJW3/DkMoGeLnQg1fWn7/zYt" +
		"IxN2SnFCjxOCKG9v3b4jYfcTNh5ijSsq631uBItLa7od+v/RtdC2UzJ1lWT947qR+Rcac2gbto/NMqJ0fzfVjH4OuKhitdY9tf6mcwGjaNBcWToIMmPSPDdQPNUYckcQ2QIDAQAB"
	c.txt("brisbane._domainkey.example.com", brisbane)
	c.txt("test._domainkey.football.example.com", "v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/b"+
		"yYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB")
	c.txt("brisbane._domainkey.football.example.com", "v=DKIM1; k=ed25519; p=11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=")
	for file, want := range map[string]string{"rfc6376": "pass", "rfc8463": "pass; pass"} {
		msg, err := os.ReadFile("testdata/dkim/" + file + ".eml")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.try(string(msg), outside).results(); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
}

// signWith returns a DKIM-Signature of any form: tags are all but bh= and b=.
func signWith(t testing.TB, key crypto.Signer, tags, msg string) string {
	t.Helper()
	trial := (&Verifier{}).Begin(nil)
	header, body := splitHeader([]byte(msg))
	raw := "DKIM-Signature: " + tags + "; bh=AAAA; b=AAAA\r\n"
	s, bad := parseSignature([]byte(raw))
	if bad != "" {
		t.Fatal(bad)
	}
	c, bad := s.parseContent(trial.bodyHashFor)
	if bad != "" {
		t.Fatal(bad)
	}
	_, _ = trial.Write(body)
	digest, _ := c.bodyHasher.finish()
	raw = "DKIM-Signature: " + tags + "; bh=" + base64.StdEncoding.EncodeToString(digest) + "; b=AAAA\r\n"
	s.raw = []byte(raw)
	_, opts, err := algorithmOf(key)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := key.Sign(rand.Reader, indexHeader(header, c.signedNames...).digest(&s, &c), opts)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(raw, "b=AAAA", "b="+base64.StdEncoding.EncodeToString(sig), 1) + msg
}

func TestSignatures(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	rsaText, edText := published["sel-rsa._domainkey.client.test"], published["sel-ed25519._domainkey.client.test"]
	ours, ed := s.Keys[0].Private, s.Keys[1].Private
	for name, text := range map[string]string{
		"test": rsaText + "; t=y", "strict": rsaText + "; t=s", "sha1": strings.Replace(rsaText, "; k", "; h=sha1; k", 1),
		"web": strings.Replace(rsaText, "; k", "; s=tlsrpt; k", 1), "revoked": "v=DKIM1; p=", "v2": strings.Replace(rsaText, "DKIM1", "DKIM2", 1),
		"bare": strings.TrimPrefix(rsaText, "v=DKIM1; k=rsa; "), "notes": rsaText + "; n=a note; g=*; x=unknown", "junk": "v=DKIM1; p=!!!",
		"long": "v=DKIM1; n=" + strings.Repeat("x", 20_000) + "; " + edText, "folded": strings.Replace(edText, "p=", "p= ", 1),
	} {
		c.txt(name+"._domainkey.client.test", text)
	}
	c.txt("idn._domainkey.xn--bcher-kva.test", edText)
	c.txt("strict._domainkey.xn--bcher-kva.test", edText+"; t=s")
	c.txt("other._domainkey.client.test", "hello")
	c.txt("two._domainkey.client.test", "something else")
	c.txt("two._domainkey.client.test", edText)
	c.zone.ServFail("dead._domainkey.client.test")
	c.zone.Add("loop._domainkey.client.test. CNAME loop2._domainkey.client.test.", "loop2._domainkey.client.test. CNAME loop._domainkey.client.test.",
		"cname._domainkey.client.test. CNAME sel-ed25519._domainkey.client.test.")
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&small.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	c.txt("small._domainkey.client.test", "p="+base64.StdEncoding.EncodeToString(der))
	c.txt("tiny._domainkey.client.test", "p=MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBANmBe10IgY+u7h3enWTukkqtUD5PR52Tb/mPfjC0QJTocVBq6Za/PlzfV+Py92VaCak19F4WrbVTK5Gg5tW220MCAwEAAQ==")
	const msg = "From: A <a@client.test>\r\nTo: b@mx.test\r\nSubject:  hello \r\n\r\nHi,\r\n\r\nthere.  \r\n\r\n"
	const edTags, rsaTags = "v=1; a=ed25519-sha256; d=client.test; h=from:to:subject", "v=1; a=rsa-sha256; d=client.test; h=from"
	for _, tt := range []struct {
		name string
		key  crypto.Signer
		tags string
		want string
	}{
		{"simple", ed, edTags + "; s=sel-ed25519", "pass"},
		{"simple/simple", ed, edTags + "; c=simple/simple; s=sel-ed25519", "pass"},
		{"relaxed", ed, edTags + "; c=relaxed; s=sel-ed25519", "pass"},
		{"simple/relaxed", ed, edTags + "; c=simple/relaxed; s=sel-ed25519", "pass"},
		{"relaxed/relaxed", ours, rsaTags + "; c=relaxed/relaxed; s=sel-rsa", "pass"},
		{"folded", ed, "v=1; a=ed25519-sha256;\r\n\td=client.test;\r\n\th=from :\r\n\t To: subject; s=sel-ed25519", "pass"},
		{"another canon", ed, edTags + "; c=nofws; s=sel-ed25519", "permerror (its c= is not known)"},
		{"its user", ed, edTags + "; i=x@sub.client.test; s=sel-ed25519", "pass"},
		{"another user", ed, edTags + "; i=x@notclient.test; s=sel-ed25519", "permerror (its i= is not of its domain)"},
		{"strict", ours, rsaTags + "; i=x@sub.client.test; s=strict", "permerror (its i= is of a sub-domain, which the key does not allow)"},
		{"strict enough", ours, rsaTags + "; i=x@Client.test; s=strict", "pass"},
		{"in Unicode", ed, "v=1; a=ed25519-sha256; d=bücher.test; i=x@Mail.bücher.test; h=from; s=idn", "pass"},
		{"half in Unicode", ed, "v=1; a=ed25519-sha256; d=xn--bcher-kva.test; i=@bücher.test; h=from; s=strict", "pass"},
		{"of others, in Unicode", ed, "v=1; a=ed25519-sha256; d=bücher.test; i=@büchen.test; h=from; s=idn", "permerror (its i= is not of its domain)"},
		{"testing", ours, rsaTags + "; s=test", "pass"},
		{"testing, wrong", small, rsaTags + "; s=test", "neutral (it does not verify, but its key is being tested)"},
		{"another key", small, rsaTags + "; s=sel-rsa", "fail (it does not verify)"},
		{"1024 bits", small, rsaTags + "; s=small", "pass"},
		{"512 bits", small, rsaTags + "; s=tiny", "permerror (the key has only 512 bits)"},
		{"SHA-1", ours, strings.Replace(rsaTags, "sha256", "sha1", 1) + "; s=sel-rsa", "permerror (SHA-1 proves nothing any more)"},
		{"unknown algorithm", ours, strings.Replace(rsaTags, "sha256", "sha512", 1) + "; s=sel-rsa", "permerror (its algorithm is not known)"},
		{"only for SHA-1", ours, rsaTags + "; s=sha1", "permerror (the key does not allow sha256)"},
		{"not for mail", ours, rsaTags + "; s=web", "permerror (the key is not for mail)"},
		{"another kind", ours, rsaTags + "; s=sel-ed25519", "permerror (the key is of another kind)"},
		{"no key", ours, rsaTags + "; s=absent", "permerror (there is no key)"},
		{"another text", ours, rsaTags + "; s=other", "permerror (there is no key)"},
		{"two texts", ed, edTags + "; s=two", "pass"},
		{"revoked", ours, rsaTags + "; s=revoked", "permerror (the key is revoked)"},
		{"version 2", ours, rsaTags + "; s=v2", "permerror (the key's record is of another version)"},
		{"no tags but p=", ours, rsaTags + "; s=bare", "pass"},
		{"more tags", ours, rsaTags + "; s=notes", "pass"},
		{"no base64", ours, rsaTags + "; s=junk", "permerror (the key is not base64)"},
		{"huge", ed, edTags + "; s=long", "permerror (the key's record can't be read)"},
		{"blanks", ed, edTags + "; s=folded", "pass"},
		{"by CNAME", ed, edTags + "; s=cname", "pass"},
		{"in a circle", ed, edTags + "; s=loop", "temperror (no answer about the key)"},
		{"dead", ed, edTags + "; s=dead", "temperror (no answer about the key)"},
		{"without From", ed, "v=1; a=ed25519-sha256; d=client.test; h=to:from; s=sel-ed25519", "pass"},
		{"of no domain", ed, strings.Replace(edTags, "client.test", "test", 1) + "; s=sel-ed25519", "permerror (its domain is none)"},
		{"strange selector", ed, edTags + "; s=a b", "permerror (its selector is none)"},
		{"another query", ed, edTags + "; q=http; s=sel-ed25519", "permerror (its key is not in the DNS)"},
		{"the usual query", ed, edTags + "; q=http:dns/txt; s=sel-ed25519", "pass"},
		{"expired", ed, edTags + "; t=1; x=1700000000; s=sel-ed25519", "fail (it has expired)"},
		{"not yet", ed, edTags + "; t=1700000000; x=1700000100; s=sel-ed25519", "pass"},
		{"backwards", ed, edTags + "; t=1700000000; x=1600000000; s=sel-ed25519", "permerror (it expires before it was made)"},
		{"no time", ed, edTags + "; t=soon; s=sel-ed25519", "permerror (its t= is no number)"},
		{"a part", ed, edTags + "; l=2; s=sel-ed25519", "policy (it signs only a part of the body)"},
		{"nothing", ed, edTags + "; l=0; s=sel-ed25519", "policy (it signs only a part of the body)"},
		{"just all", ed, edTags + "; l=17; s=sel-ed25519", "pass"},
		{"more than all", ed, edTags + "; l=18; s=sel-ed25519", "fail (the body was changed)"},
	} {
		var whole string
		switch tt.want {
		case "permerror (its c= is not known)", "permerror (its domain is none)", "permerror (its selector is none)":
			whole = "DKIM-Signature: " + tt.tags + "; bh=AAAA; b=AAAA\r\n" + msg
		default:
			whole = signWith(t, tt.key, tt.tags, msg)
		}
		if got := c.try(whole, outside).results(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	for field, want := range map[string]string{
		"":                      "it can't be read",
		" v=1; v=1":             "it can't be read",
		" v=1; a=x; d=x.y; s=z": "it has no b=",
		" v=2; a=ed25519-sha256; d=x.y; s=z; b=AAAA; bh=AAAA; h=from":                                   "it is of another version",
		" v=1; a=ed25519-sha256; d=x.y; s=z; b=AAAA; bh=AAAA; h=to":                                     "it does not sign From",
		" v=1; a=ed25519-sha256; d=x.y; s=z; b=AAAA; bh=AAAA; h=" + strings.Repeat("a:", 3000) + "from": "its h= can't be read",
		" v=1; a=ed25519-sha256; d=x.y; s=z; b=%; bh=AAAA; h=from":                                      "its b= is not base64",
		" v=1; a=ed25519-sha256; d=x.y; s=z; b=AAAA; bh=; h=from":                                       "its bh= is not base64",
		" v=1; a=ed25519-sha256; d=x.y; s=z; b=AAAA; bh=AAAA; h=from; l=-1":                             "its l= is no number",
		strings.Repeat("x", 20_000):                                                                     "it can't be read",
	} {
		if got := c.try("DKIM-Signature:"+field+"\r\n"+msg, outside).results(); got != "permerror ("+want+")" && (want != "it can't be read" || !strings.Contains(got, "permerror (it has no a=)")) {
			t.Errorf("%.80q: %s, want %s", field, got, want)
		}
	}
}

// A signature that covers DKIM-Signature covers the other ones, wherever it is among them.
func TestSignedSignatures(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	const other, msg = "DKIM-Signature: v=1; by=another\r\n", "From: a@client.test\r\nSubject: x\r\n\r\nx\r\n"
	for _, h := range []string{"from", "from:dkim-signature", "from:dkim-signature:dkim-signature", "from:dkim-signature:dkim-signature:dkim-signature"} {
		whole := signWith(t, s.Keys[1].Private, "v=1; a=ed25519-sha256; d=client.test; s=sel-ed25519; h="+h, other+msg)
		own := strings.TrimSuffix(whole, other+msg)
		for where, text := range map[string]string{"above": whole, "below": other + own + msg} {
			if got := c.try(text, outside).results(); strings.Count(got, "pass") != 1 {
				t.Errorf("h=%s, %s: %s", h, where, got)
			}
		}
		if got := c.try(other+whole, outside).results(); strings.Contains(got, "pass") != (strings.Count(h, "dkim") < 2) {
			t.Errorf("h=%s, with one more: %s", h, got)
		}
	}
}

// Only a few of many signatures are verified.
func TestManySignatures(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	const msg = "From: a@client.test\r\nSubject: x\r\n\r\nx\r\n"
	var many strings.Builder
	for n := range 10_000 {
		fmt.Fprintf(&many, "DKIM-Signature: v=1; a=ed25519-sha256; d=client.test; s=s%d; l=%d; h=from; bh=AAAA; b=AAAA\r\n", n, n)
	}
	j := c.try(many.String()+msg, outside)
	if len(j.DKIM) != maxSignatures || j.DKIMResult() != Fail {
		t.Errorf("%d signatures: %s", len(j.DKIM), j.results())
	}
	if j = c.try(signed(t, s, many.String()+msg), outside); j.DKIMResult() != Pass {
		t.Errorf("with ours on top: %s", j.results())
	}
	if n := c.zone.QueryCount("s1._domainkey.client.test"); n != 0 {
		t.Errorf("%d questions about keys of bodies that were changed", n)
	}
}

// The evaluation of an SPF record that includes itself, or ever more records, ends.
func TestSPFIsBounded(t *testing.T) {
	c := newCourt(t, `client.test. TXT "v=spf1 include:client.test -all"`)
	for n := range 40 {
		c.txt("c"+strconv.Itoa(n)+".test", fmt.Sprintf("v=spf1 include:c%d.test include:c%d.test -all", n+1, n+1))
	}
	c.txt("mx.test", "v=spf1"+strings.Repeat(" mx:many.test", 10)+" -all")
	c.txt("ptr.test", "v=spf1 ptr -all")
	c.zone.Add("alias.test. CNAME alias2.test.", "alias2.test. CNAME alias.test.")
	for n := range 11 {
		c.zone.Add(fmt.Sprintf("many.test. MX 10 h%d.many.test.", n))
	}
	for n := range 50 {
		c.zone.Add(fmt.Sprintf("7.2.0.192.in-addr.arpa. PTR h%d.evil.test.", n))
	}
	for from, want := range map[string]Result{"a@client.test": PermError, "a@c0.test": PermError, "a@mx.test": PermError, "a@alias.test": TempError, "postmaster": None, "@ptr.test": Fail, "a@": None, "a@ptr.test": Fail} {
		got := VerifySPF(t.Context(), c.DNS, ClientIdentity{IP: outside.IP, Helo: "x.test", From: from})
		if got.Result != want {
			t.Errorf("%s: %s (%s), want %s", from, got.Result, got.Reason, want)
		}
	}
	asked := 0
	for n := range 50 {
		asked += c.zone.QueryCount(fmt.Sprintf("h%d.evil.test", n))
	}
	if asked != maxPTRNames {
		t.Errorf("%d names of the client were asked for", asked)
	}
}

func TestIPRev(t *testing.T) {
	c := newCourt(t, "7.2.0.192.in-addr.arpa. PTR other.test.", "7.2.0.192.in-addr.arpa. PTR mx.client.test.", "other.test. A 192.0.2.9", "mx.client.test. A 192.0.2.7",
		"8.2.0.192.in-addr.arpa. PTR mx.client.test.", "10.2.0.192.in-addr.arpa. PTR dead.test.",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. PTR six.test.", "six.test. AAAA 2001:db8::1")
	c.zone.ServFail("11.2.0.192.in-addr.arpa")
	c.zone.ServFail("dead.test")
	for ip, want := range map[string]string{
		"192.0.2.7": "pass mx.client.test", "::ffff:192.0.2.7": "pass mx.client.test", "192.0.2.8": "fail ", "192.0.2.9": "permerror ",
		"192.0.2.10": "temperror ", "192.0.2.11": "temperror ", "2001:db8::1": "pass six.test",
	} {
		if got := VerifyIPRev(t.Context(), c.DNS, netip.MustParseAddr(ip)); string(got.Result)+" "+got.Name != want {
			t.Errorf("%s: %s %s, want %s", ip, got.Result, got.Name, want)
		}
	}
}
