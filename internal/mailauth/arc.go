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

// maxARCSets is the maximum length of a chain (RFC 8617 §5.2).
const maxARCSets = 50

// concurrentSeals is the number of seals of a message that are verified at a time.
const concurrentSeals = 8

// ARC is the result for a message's chain of forwarders (RFC 8617).
type ARC struct {
	Result  Result // none, pass, fail or temperror
	Reason  string
	Sealers []string // domains, first forwarder first; only with a pass

	authResults []string // each forwarder's authentication results, in the same order
}

// arcSet is the set of fields that one forwarder added.
type arcSet struct {
	results                []byte // the whole ARC-Authentication-Results
	messageSignature, seal signature
	sealDigest             []byte // digest that seal signs
}

// readARC parses the chain. A malformed chain gets its result here.
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

// addARCResults assigns the ARC-Authentication-Results fields to their sets.
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

// addARCSignatures assigns the signatures or seals to their sets.
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

// arcSetAt returns the set with a number, or nil.
func (t *Verification) arcSetAt(number string) *arcSet {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(t.arcSets) {
		return nil
	}
	return &t.arcSets[n-1]
}

// hashSeals computes the digest that each seal signs: all sets up to its own, in order (RFC 8617
// §5.1.1).
func (t *Verification) hashSeals() {
	sum := sha256.New()
	for i := range t.arcSets {
		s := &t.arcSets[i]
		hashField(sum, s.results, false)
		hashField(sum, s.messageSignature.raw, false)
		upTo, err := sum.(hash.Cloner).Clone()
		if err != nil { // never: SHA-256 can be cloned
			t.arc.Result, t.arc.Reason = Fail, "it can't be hashed"
			return
		}
		_, _ = upTo.Write(bytes.TrimSuffix(appendRelaxed(nil, s.seal.withoutValue()), []byte("\r\n")))
		s.sealDigest = upTo.Sum(nil)
		hashField(sum, s.seal.raw, false)
	}
}

// verifyARC verifies the newest signature and all seals. It queries DNS only if the body hash
// matches.
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
	// Only a few at a time, since each DNS lookup may hold a socket for long.
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

// TrustedSealer returns the trusted forwarder that reported a DMARC pass for an author's domain
// before any untrusted forwarder handled the message, or "" (RFC 8617 §7.2.1).
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
