// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
)

// sealer is a forwarder that adds an ARC set.
type sealer struct {
	t        testing.TB
	domain   string
	selector string
	key      crypto.Signer
}

func (s *sealer) sign(digest []byte) string {
	_, opts, err := algorithmOf(s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	sig, err := s.key.Sign(rand.Reader, digest, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(sig)
}

// seal puts set n on top of a message, with found as its authentication results.
func (s *sealer) seal(n int, found, msg string) string {
	s.t.Helper()
	header, body := splitHeader([]byte(msg))
	cv := "pass"
	if n == 1 {
		cv = "none"
	}
	h := indexHeader(header, "from", "subject", "arc-seal", "arc-message-signature", "arc-authentication-results")
	results := fmt.Sprintf("ARC-Authentication-Results: i=%d; %s; %s\r\n", n, s.domain, found)
	sum := newBodyHasher(false, -1)
	sum.write(body)
	digest, _ := sum.finish()
	kind, _, err := algorithmOf(s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	message := fmt.Sprintf("ARC-Message-Signature: i=%d; a=%s-sha256; c=relaxed/relaxed; d=%s; s=%s;\r\n\th=from:subject; bh=%s; b=",
		n, kind, s.domain, s.selector, base64.StdEncoding.EncodeToString(digest))
	message += s.sign(h.digest(&signature{raw: []byte(message)}, &signedContent{signedNames: []string{"from", "subject"}})) + "\r\n"
	all := sha256.New()
	for k := range n - 1 {
		for _, name := range []string{"arc-authentication-results", "arc-message-signature", "arc-seal"} {
			fields := h.fields[name]
			hashField(all, fields[len(fields)-1-k], false)
		}
	}
	seal := fmt.Sprintf("ARC-Seal: i=%d; a=%s-sha256; cv=%s; d=%s; s=%s; b=", n, kind, cv, s.domain, s.selector)
	hashField(all, []byte(results), false)
	hashField(all, []byte(message), false)
	_, _ = all.Write(bytes.TrimSuffix(appendRelaxed(nil, []byte(seal)), []byte("\r\n")))
	return seal + s.sign(all.Sum(nil)) + "\r\n" + message + results + msg
}

// sealers publishes the keys of forwarders.
func (c *court) sealers(domains ...string) (all []*sealer) {
	c.t.Helper()
	for _, domain := range domains {
		key, err := GenerateKey(Ed25519)
		if err != nil {
			c.t.Fatal(err)
		}
		text, err := KeyRecord(key.Public())
		if err != nil {
			c.t.Fatal(err)
		}
		c.txt("arc._domainkey."+domain, text)
		all = append(all, &sealer{c.t, domain, "arc", key})
	}
	return all
}

func TestARC(t *testing.T) {
	c := newCourt(t)
	s := c.sealers("one.test", "two.test", "three.test")
	const msg = "From: a@bank.test\r\nSubject: x\r\n\r\nHi\r\n"
	one := s[0].seal(1, "dmarc=pass header.from=bank.test", msg)
	two := s[1].seal(2, "dmarc=fail header.from=bank.test", one)
	listed := strings.Replace(two, "Subject: x", "Subject: [list] x", 1)
	three := s[2].seal(3, "dmarc=fail", "X-List: y\r\n"+listed)
	var long = msg
	for n := range 51 {
		long = s[n%3].seal(n+1, "none", long)
	}
	fifty, _, _ := strings.Cut(long, "\r\n\r\n")
	_, fifty, _ = strings.Cut(fifty, "ARC-Seal: i=50")
	swap := strings.NewReplacer("i=1;", "i=2;", "i=2;", "i=1;")
	for _, tt := range []struct{ name, msg, want string }{
		{"none", msg, "none"},
		{"one", one, "pass"},
		{"two", two, "pass"},
		{"three, changed in between", three, "pass"},
		{"fifty", "ARC-Seal: i=50" + fifty + "\r\n\r\nHi\r\n", "pass"},
		{"fifty-one", long, "fail (it has not one of each field per forwarder)"},
		{"changed after the last", listed, "fail (forwarder 2: it does not verify)"},
		{"another body", three + "x", "fail (the body was changed)"},
		{"other results", strings.Replace(one, "dmarc=pass", "dmarc=fail", 1), "fail (forwarder 1: it does not verify)"},
		{"other results of the first", strings.Replace(two, "dmarc=pass", "dmarc=fail", 1), "fail (forwarder 1: it does not verify)"},
		{"no results", strings.Replace(one, "ARC-Authentication-Results", "X", 1), "fail (it has not one of each field per forwarder)"},
		{"results alone", "ARC-Authentication-Results: i=1; x; none\r\n" + msg, "fail (it has not one of each field per forwarder)"},
		{"without the first", strings.Replace(strings.Replace(strings.Replace(two, "ARC-Seal: i=1", "X: ", 1), "ARC-Message-Signature: i=1", "X: ", 1), "ARC-Authentication-Results: i=1", "X:", 1), "fail (its results are not numbered from 1)"},
		{"the same number twice", strings.ReplaceAll(two, "i=2;", "i=1;"), "fail (its results are not numbered from 1)"},
		{"numbers changed", swap.Replace(two), "fail (forwarder 1 says that it was broken)"},
		{"broken before", strings.Replace(one, "cv=none", "cv=fail", 1), "fail (forwarder 1 says that it was broken)"},
		{"h= in a seal", strings.Replace(one, "cv=none;", "cv=none; h=from;", 1), "fail (a seal has h=)"},
		{"a seal signed", strings.Replace(one, "h=from:subject", "h=from:arc-seal", 1), "fail (the newest signature: it signs a seal)"},
		{"no base64", strings.Replace(one, "cv=none; d=one.test; s=arc; b=", "cv=none; d=one.test; s=arc; b=!", 1), "fail (its b= is not base64)"},
		{"another algorithm", strings.Replace(one, "ed25519-sha256", "rsa-sha1", 1), "fail (its algorithm is not known)"},
		{"another's key", strings.Replace(one, "cv=none; d=one.test", "cv=none; d=two.test", 1), "fail (forwarder 1: it does not verify)"},
		{"no key", strings.Replace(one, "cv=none; d=one.test", "cv=none; d=four.test", 1), "fail (forwarder 1: there is no key)"},
	} {
		a := c.try(tt.msg, outside).ARC
		got := string(a.Result)
		if a.Reason != "" {
			got += " (" + a.Reason + ")"
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if len(a.Sealers) > 0 != (a.Result == Pass) {
			t.Errorf("%s: sealed by %v", tt.name, a.Sealers)
		}
	}
	c.zone.ServFail("arc._domainkey.dead.test")
	if a := c.try(strings.Replace(one, "cv=none; d=one.test", "cv=none; d=dead.test", 1), outside).ARC; a.Result != TempError {
		t.Errorf("without DNS: %+v", a)
	}
}

// A forwarder's results count if it is trusted and no untrusted one came after it.
func TestTrustedForwarder(t *testing.T) {
	c := newCourt(t, `_dmarc.bank.test. TXT "v=DMARC1; p=reject"`)
	s := c.sealers("list.test", "strange.test", "relay.test")
	const msg = "From: a@bank.test\r\nSubject: x\r\n\r\nHi\r\n"
	const saw = "spf=pass smtp.mailfrom=bank.test; dmarc=pass (p=reject) header.from=bank.test"
	listed := s[0].seal(1, saw, msg)
	for _, tt := range []struct {
		name, msg string
		trusted   string
		want      string
	}{
		{"trusted", listed, "list.test", "fail none list.test"},
		{"by nobody", listed, "", "fail reject "},
		{"another", listed, "relay.test", "fail reject "},
		{"by way of a trusted one", s[2].seal(2, "arc=pass; dmarc=fail header.from=bank.test", listed), "relay.test list.test", "fail none list.test"},
		{"by way of a stranger", s[1].seal(2, "dmarc=fail", listed), "list.test", "fail reject "},
		{"after a stranger", s[0].seal(2, "dmarc=fail header.from=bank.test", s[1].seal(1, saw, msg)), "list.test", "fail reject "},
		{"did not pass there", s[0].seal(1, "dmarc=fail header.from=bank.test", msg), "list.test", "fail reject "},
		{"in a comment", s[0].seal(1, "spf=pass (dmarc=pass header.from=bank.test)", msg), "list.test", "fail reject "},
		{"of another author", s[0].seal(1, "dmarc=pass header.from=other.test", msg), "list.test", "fail reject "},
		{"of no author", s[0].seal(1, "dmarc=pass", msg), "list.test", "fail reject "},
		{"broken", strings.Replace(listed, "Hi", "Ho", 1), "list.test", "fail reject "},
		{"two From", "From: b@bank.test\r\n" + listed, "list.test", "permerror reject "},
	} {
		c.TrustedSealers = strings.Fields(tt.trusted)
		d := c.try(tt.msg, outside).DMARC
		if got := fmt.Sprint(d.Result, " ", d.Policy, " ", d.TrustedSealer); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Signatures and seals of python3-dkim verify here.
func TestPythonSigns(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	rsaKey, err := MarshalKey(s.Keys[0].Private)
	if err != nil {
		t.Fatal(err)
	}
	edKey, err := MarshalKey(s.Keys[1].Private)
	if err != nil {
		t.Fatal(err)
	}
	pem := "-----BEGIN PRIVATE KEY-----\n" + base64.StdEncoding.EncodeToString(rsaKey) + "\n-----END PRIVATE KEY-----\n"
	seed := base64.StdEncoding.EncodeToString(edKey[len(edKey)-32:])
	script := fmt.Sprintf(`
import sys, dkim
msg = sys.stdin.buffer.read()
for head in (b"simple", b"relaxed"):
    for body in (b"simple", b"relaxed"):
        msg = dkim.sign(msg, b"sel-rsa", b"client.test", b"""%s""", canonicalize=(head, body)) + msg
        msg = dkim.sign(msg, b"sel-ed25519", b"client.test", b"%s", canonicalize=(head, body), signature_algorithm=b"ed25519-sha256") + msg
sys.stdout.buffer.write(msg)
`, pem, seed)
	for name, msg := range messages() {
		if name == "blank before colon" || name == "colon-less line" || !strings.Contains(msg, "\r\n\r\n") {
			continue // python3-dkim rejects obsolete and malformed messages
		}
		whole := python(t, script, msg)
		if got := c.try(whole, outside).results(); got != strings.Repeat("pass; ", 7)+"pass" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The chains of these tests verify with python3-dkim, and a chain of python3-dkim's own tests
// verifies here.
func TestPythonChains(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	whole := "From: a@client.test\r\nTo: b@mx.test\r\nSubject:  x\r\n\ty\r\nMessage-ID: <1@x>\r\n\r\nHi \r\n\r\n"
	forwarder := sealer{t, "client.test", "sel-rsa", s.Keys[0].Private}
	for n := range 3 {
		whole = forwarder.seal(n+1, "dmarc=pass header.from=client.test", whole)
	}
	script := fmt.Sprintf(`
import sys, dkim
text = b"%s"
cv, _, why = dkim.arc_verify(sys.stdin.buffer.read(), dnsfunc=lambda name, timeout=5: text, minkey=1024)
print(cv.decode(), why)
`, published["sel-rsa._domainkey.client.test"])
	if said := python(t, script, whole); !strings.HasPrefix(said, "pass") {
		t.Errorf("python3-dkim says %s", said)
	}
	if a := c.try(whole, outside).ARC; a.Result != Pass || len(a.Sealers) != 3 || a.TrustedSealer("client.test", []string{"client.test"}) != "client.test" {
		t.Errorf("%+v\n%s", a, whole)
	}
	theirs, err := os.ReadFile("testdata/dkim/arc.eml")
	if err != nil {
		t.Fatal(err)
	}
	c.txt("test._domainkey.example.com", "v=DKIM1; g=*; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDkHlOQoBTzWRiGs5V6NpP3idY6Wk08a5qhdR6wy5bdOKb2jLQiY/J16JYi0Qvx/b"+
		"yYzCNb3W91y3FutACDfzwQ/BC/e/8uBsCR+yz1Lxj+PL6lHvqMKrM3rG4hstT5QjvHO9PzoxZyVYLzBfO2EeC3Ip3G+2kryOTIKT+l/K4w3QIDAQAB")
	if a := c.try(string(theirs), outside).ARC; a.Result != Pass || len(a.Sealers) != 1 || a.Sealers[0] != "example.com" {
		t.Errorf("python3-dkim's own: %+v", a)
	}
}

// python runs a program of python3 with the dkim module.
func python(t testing.TB, script, in string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), needtest.Python(t, "dkim", "nacl"), "-c", script)
	cmd.Stdin = strings.NewReader(in)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	return string(out)
}
