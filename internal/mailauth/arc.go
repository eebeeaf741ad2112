// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// maxARCSets is how long a chain may be (RFC 8617 §5.2).
const maxARCSets = 50

// concurrentSeals is how many seals of a message are tested at a time.
const concurrentSeals = 8

// ARC is what the chain of forwarders of a message is worth (RFC 8617).
type ARC struct {
	Result  Result // none, pass, fail or temperror
	Reason  string
	Sealers []string // their domains, the first forwarder first; only of a pass

	authResults []string // what each forwarder found, in the same order
}

// arcSet is what one forwarder added.
type arcSet struct {
	results                []byte // the whole ARC-Authentication-Results
	messageSignature, seal signature
	sealDigest             []byte // what seal signs
}

// readARC reads the chain. What is wrong with its form ends it.
func (t *Verification) readARC() {
	seals := t.header.fields["arc-seal"]
	messages, results := t.header.fields["arc-message-signature"], t.header.fields["arc-authentication-results"]
	n := len(seals)
	if n+len(messages)+len(results) == 0 {
		t.arc.Result = None
		return
	}
	if n > maxARCSets || len(messages) != n || len(results) != n {
		t.arc.Result, t.arc.Reason = Fail, "it has not one of each field per forwarder"
		return
	}
	t.arcSets = make([]arcSet, n)
	for _, bad := range []string{t.addARCResults(results), t.addARCSignatures(messages, false), t.addARCSignatures(seals, true)} {
		if bad != "" {
			t.arc.Result, t.arc.Reason = Fail, bad
			return
		}
	}
	last := &t.arcSets[n-1]
	var bad string
	if t.arcContent, bad = last.messageSignature.parseContent(t.bodyHashFor); bad == "" && slices.Contains(t.arcContent.signedNames, "arc-seal") {
		bad = "it signs a seal"
	}
	if bad != "" {
		t.arc.Result, t.arc.Reason = Fail, "the newest signature: "+bad
	}
	t.hashSeals()
}

// addARCResults puts the ARC-Authentication-Results in their places.
func (t *Verification) addARCResults(fields [][]byte) (bad string) {
	for _, f := range fields {
		text, _, _ := strings.Cut(string(f[bytes.IndexByte(f, ':')+1:]), ";")
		name, number, _ := strings.Cut(text, "=")
		set := t.arcSetAt(strings.TrimSpace(number))
		if strings.TrimSpace(name) != "i" || set == nil || set.results != nil {
			return "its results are not numbered from 1"
		}
		set.results = f
	}
	return ""
}

// addARCSignatures puts signatures or seals in their places.
func (t *Verification) addARCSignatures(fields [][]byte, seals bool) (bad string) {
	for _, f := range fields {
		s, bad := parseSignature(f)
		if bad != "" {
			return bad
		}
		if s.algorithm != "rsa-sha256" && s.algorithm != "ed25519-sha256" {
			return "its algorithm is not known"
		}
		number, _ := s.tags.get("i")
		set := t.arcSetAt(number)
		if set == nil {
			return "it is not numbered from 1"
		}
		at := &set.messageSignature
		if seals {
			at = &set.seal
			want := "pass"
			if number == "1" {
				want = "none"
			}
			if cv, _ := s.tags.get("cv"); strings.ToLower(cv) != want {
				return "forwarder " + number + " says that it was broken"
			}
			if _, has := s.tags.get("h"); has {
				return "a seal has h="
			}
		}
		if at.raw != nil {
			return "it is not numbered from 1"
		}
		*at = s
	}
	return ""
}

// arcSetAt is the set of a number, nil if there is none.
func (t *Verification) arcSetAt(number string) *arcSet {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(t.arcSets) {
		return nil
	}
	return &t.arcSets[n-1]
}

// hashSeals hashes what each seal signs: all sets up to its own, in order
// (RFC 8617 §5.1.1).
func (t *Verification) hashSeals() {
	sum := sha256.New()
	for i := range t.arcSets {
		s := &t.arcSets[i]
		hashField(sum, s.results, false)
		hashField(sum, s.messageSignature.raw, false)
		upTo, err := sum.(hash.Cloner).Clone()
		if err != nil { // SHA-256 can always be copied
			t.arc.Result, t.arc.Reason = Fail, "it can't be hashed"
			return
		}
		_, _ = upTo.Write(bytes.TrimSuffix(appendRelaxed(nil, s.seal.withoutValue()), []byte("\r\n")))
		s.sealDigest = upTo.Sum(nil)
		hashField(sum, s.seal.raw, false)
	}
}

// verifyARC tests the newest signature and all seals. The DNS is asked only if
// the body is what was signed.
func (t *Verification) verifyARC(ctx context.Context) {
	digest, size := t.arcContent.bodyHasher.finish()
	if length := t.arcContent.bodyHasher.length; !bytes.Equal(digest, t.arcContent.bodyHash) || length >= 0 && length != size {
		t.arc.Result, t.arc.Reason = Fail, "the body was changed"
		return
	}
	results := make([]Result, len(t.arcSets)+1)
	reasons := make([]string, len(results))
	check := func(n int, s *signature, digest []byte) {
		k, result, why := t.verifier.findKey(ctx, t.verifier.DNS, s)
		if result == "" && !k.verifies(digest, s.value) {
			why = "it does not verify"
		}
		results[n], reasons[n] = result, why
	}
	// A few at a time: each that asks the DNS may hold a socket for long.
	var all sync.WaitGroup
	for first := range min(concurrentSeals, len(t.arcSets)) {
		all.Go(func() {
			for n := first; n < len(t.arcSets); n += concurrentSeals {
				check(n, &t.arcSets[n].seal, t.arcSets[n].sealDigest)
			}
		})
	}
	last := &t.arcSets[len(t.arcSets)-1].messageSignature
	check(len(t.arcSets), last, t.header.digest(last, &t.arcContent))
	all.Wait()
	t.arc.Result = Pass
	for n, why := range reasons {
		switch {
		case why == "" || t.arc.Result == Fail:
		case results[n] == TempError:
			t.arc.Result, t.arc.Reason = TempError, why
		default:
			t.arc.Result, t.arc.Reason = Fail, "forwarder "+strconv.Itoa(min(n+1, len(t.arcSets)))+": "+why
		}
	}
	if t.arc.Result != Pass {
		return
	}
	for i := range t.arcSets {
		s := &t.arcSets[i]
		t.arc.Sealers = append(t.arc.Sealers, s.seal.domain)
		_, rest, _ := strings.Cut(string(s.results), ";")
		t.arc.authResults = append(t.arc.authResults, rest)
	}
}

// TrustedSealer returns the trusted forwarder who found, before anyone else who is
// not trusted touched the message, that DMARC passed for an author's domain;
// "" if there is none (RFC 8617 §7.2.1).
func (a *ARC) TrustedSealer(author string, trusted []string) string {
	if a.Result != Pass {
		return ""
	}
	for n := len(a.Sealers) - 1; n >= 0 && slices.Contains(trusted, a.Sealers[n]); n-- {
		found, _ := ParseResultsField(a.authResults[n])
		for _, m := range found.Methods {
			if from, told := m.Property("header.from"); m.Name == "dmarc" && m.Result == Pass && told && strings.EqualFold(from, author) {
				return a.Sealers[n]
			}
		}
	}
	return ""
}
