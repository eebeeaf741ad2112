// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
)

const sealHost = "mx.client.test"

// passOn forwards a message as a host does: it verifies the message, adds the results, and seals
// them.
func (c *court) passOn(s *Signer, msg string) string {
	c.t.Helper()
	noted := string(c.try(msg, outside).AppendField([]byte("Received: from x\r\n"), sealHost)) + msg
	set, err := s.Seal(strings.NewReader(noted), sealHost)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(set) + noted
}

// arcSays returns python3-dkim's result for a chain.
func arcSays(t *testing.T, published map[string]string, msg string) string {
	t.Helper()
	names := ""
	for name, text := range published {
		names += fmt.Sprintf("b%q: b%q, ", name+".", text)
	}
	return strings.TrimSpace(python(t, `
import sys, dkim
keys = {`+names+`}
cv, _, why = dkim.arc_verify(sys.stdin.buffer.read(), dnsfunc=lambda name, timeout=5: keys.get(name if isinstance(name, bytes) else name.encode()), minkey=1024)
print((cv or b"no chain").decode(), why)
`, msg))
}

// Chains that Seal adds verify here and with python3-dkim, set by set.
func TestSeal(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	for name, msg := range messages() {
		own, err := s.Sign([]byte(msg))
		if err != nil {
			t.Fatal(err)
		}
		msg = string(own) + msg
		for n := range 3 {
			msg = c.passOn(s, msg)
			a := c.try(msg, outside).ARC
			if a.Result != Pass || len(a.Sealers) != n+1 {
				t.Fatalf("%s: %s (%s)\n%s", name, a.Result, a.Reason, msg)
			}
			if n == 2 && name != "colon-less line" && name != "no empty line" && name != "blank before colon" { // python3-dkim rejects those
				if said := arcSays(t, published, msg); !strings.HasPrefix(said, "pass") {
					t.Errorf("%s: python3-dkim says %s of\n%s", name, said, msg)
				}
			}
		}
		if a := c.try(msg+"-- \r\nthe list\r\n", outside).ARC; a.Result != Fail && name != "no empty line" {
			t.Errorf("%s: changed, the newest signature still verifies", name)
		}
	}
}

// The first set has the results, and they count if the forwarder is trusted.
func TestSealTells(t *testing.T) {
	c := newCourt(t, `_dmarc.client.test. TXT "v=DMARC1; p=reject"`)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	msg := messages()["plain"]
	own, err := s.Sign([]byte(msg))
	if err != nil {
		t.Fatal(err)
	}
	sealed := c.passOn(s, string(own)+msg)
	for line := range strings.SplitSeq(sealed, "\r\n") {
		if len(line) > 78 && !strings.Contains(line, "c=relaxed") {
			t.Errorf("a line of %d characters: %s", len(line), line)
		}
	}
	if !strings.Contains(sealed, "ARC-Authentication-Results: i=1; "+sealHost+";\r\n\tiprev=") {
		t.Errorf("it begins with\n%s", sealed)
	}
	if a := c.try(sealed, outside).ARC; a.TrustedSealer("client.test", []string{"client.test"}) != "client.test" {
		t.Errorf("not believed: %+v", a)
	}
	// The author's signature is signed as well, so that its removal is noticed.
	_, after, _ := strings.Cut(sealed, "DKIM-Signature: ")
	if a := c.try(strings.Replace(sealed, "DKIM-Signature: "+after, "X: "+after, 1), outside).ARC; a.Result != Fail {
		t.Errorf("without the author's signature: %+v", a)
	}
}

// A broken chain is sealed once, as broken; a chain with an unknown result is not sealed.
func TestSealBroken(t *testing.T) {
	c := newCourt(t)
	s, published := signer(t)
	for name, text := range published {
		c.txt(name, text)
	}
	whole := c.passOn(s, messages()["plain"])
	broken := strings.Replace(whole, "there.", "here.", 1)
	marked := c.passOn(s, broken)
	if !strings.HasPrefix(marked, "ARC-Seal: i=2; a=rsa-sha256; cv=fail;") {
		t.Fatalf("a broken chain is marked\n%s", marked)
	}
	// The seal covers its own set alone (RFC 8617 §5.1.2).
	head := indexHeader([]byte(marked), "arc-seal", "arc-message-signature", "arc-authentication-results")
	seal, bad := parseSignature(head.fields["arc-seal"][0])
	if bad != "" {
		t.Fatal(bad)
	}
	sum := sha256.New()
	hashField(sum, head.fields["arc-authentication-results"][0], false)
	hashField(sum, head.fields["arc-message-signature"][0], false)
	_, _ = sum.Write(bytes.TrimSuffix(appendRelaxed(nil, seal.withoutValue()), []byte("\r\n")))
	if err := rsa.VerifyPKCS1v15(&s.Keys[0].Private.(*rsa.PrivateKey).PublicKey, crypto.SHA256, sum.Sum(nil), seal.value); err != nil {
		t.Errorf("the seal of a broken chain: %v", err)
	}
	if said := arcSays(t, published, marked); strings.HasPrefix(said, "pass") {
		t.Errorf("python3-dkim says %s", said)
	}
	if again := c.passOn(s, marked); strings.HasPrefix(again, "ARC-") {
		t.Errorf("a chain that ended goes on:\n%s", again)
	}
	long := messages()["plain"]
	for range maxARCSets {
		long = c.passOn(s, long)
	}
	if a := c.try(long, outside).ARC; a.Result != Pass || len(a.Sealers) != maxARCSets {
		t.Errorf("50 links: %s (%s)", a.Result, a.Reason)
	}
	if again := c.passOn(s, long); strings.HasPrefix(again, "ARC-") {
		t.Error("a chain of 51 links")
	}
	deaf := newCourt(t)
	deaf.zone.ServFail("sel-rsa._domainkey.client.test")
	if again := deaf.passOn(s, whole); strings.HasPrefix(again, "ARC-") {
		t.Errorf("sealed without DNS:\n%.300s", again)
	}
	none := "Authentication-Results: " + sealHost + "; spf=none\r\n"
	for name, msg := range map[string]string{
		"not judged":              messages()["plain"],
		"judged by another":       "Authentication-Results: other.test; spf=none\r\n" + none + messages()["plain"],
		"a chain nobody found":    none + whole,
		"no chain where one was":  "Authentication-Results: " + sealHost + "; arc=pass\r\n" + messages()["plain"],
		"numbers that can't be":   "Authentication-Results: " + sealHost + "; arc=fail\r\nARC-Seal: i=99; cv=none\r\n" + messages()["plain"],
		"no number at all":        "Authentication-Results: " + sealHost + "; arc=fail\r\nARC-Seal: x\r\n" + messages()["plain"],
		"a pass that is none now": "Authentication-Results: " + sealHost + "; arc=pass\r\nARC-Seal: i=1; cv=none\r\n" + messages()["plain"],
		"a large header":          none + "X: " + strings.Repeat("x", 2<<20),
		"more than one signs":     none + strings.Repeat("To: a@b.test\r\n", 2001) + messages()["plain"],
	} {
		if set, err := s.Seal(strings.NewReader(msg), sealHost); len(set) > 0 || err != nil {
			t.Errorf("%s: %s%v", name, set, err)
		}
	}
	if set, err := (&Signer{Domain: "client.test", Keys: s.Keys[1:]}).Seal(strings.NewReader(none+messages()["plain"]), sealHost); len(set) > 0 || err != nil {
		t.Errorf("without an RSA key: %s%v", set, err)
	}
}

// For any input, a first set or a sealed pass is a valid chain.
func FuzzSeal(f *testing.F) {
	c := newCourt(f)
	s, published := signer(f)
	for name, text := range published {
		c.txt(name, text)
	}
	once := c.passOn(s, messages()["plain"])
	f.Add(messages()["plain"])
	f.Add(once)
	f.Add(c.passOn(s, once))
	f.Add(c.passOn(s, strings.Replace(once, "there.", "here.", 1)))
	public := &s.Keys[0].Private.(*rsa.PrivateKey).PublicKey
	f.Fuzz(func(t *testing.T, msg string) {
		for _, cv := range []Result{None, Pass, Fail} {
			noted := "Authentication-Results: " + sealHost + "; arc=" + string(cv) + "\r\n" + msg
			set, err := s.Seal(strings.NewReader(noted), sealHost)
			if err != nil {
				t.Fatal(err)
			}
			if len(set) == 0 {
				continue
			}
			header, body := splitHeader([]byte(string(set) + noted))
			trial := c.Begin(header)
			_, _ = trial.Write(body)
			if cv == Fail {
				continue // no receiver parses such a header
			}
			if len(trial.arcSets) == 0 || trial.arc.Result != "" {
				t.Fatalf("%s: no chain (%s)\n%q", cv, trial.arc.Reason, noted)
			}
			newest := &trial.arcSets[len(trial.arcSets)-1]
			digest, _ := trial.arcContent.bodyHasher.finish()
			if !bytes.Equal(digest, trial.arcContent.bodyHash) {
				t.Errorf("another body: %q", noted)
			}
			for what, err := range map[string]error{
				"message": rsa.VerifyPKCS1v15(public, crypto.SHA256, trial.header.digest(&newest.messageSignature, &trial.arcContent), newest.messageSignature.value),
				"seal":    rsa.VerifyPKCS1v15(public, crypto.SHA256, newest.sealDigest, newest.seal.value),
			} {
				if err != nil {
					t.Errorf("%s, %s: %v\n%q", cv, what, err, noted)
				}
			}
		}
	})
}
