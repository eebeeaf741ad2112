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

// maxSets is how long a chain may be (RFC 8617 §5.2).
const maxSets = 50

// sealsAtOnce is how many seals of a message are tested at a time.
const sealsAtOnce = 8

// ARC is what the chain of forwarders of a message is worth (RFC 8617).
type ARC struct {
	Result  Result // none, pass, fail or temperror
	Reason  string
	Sealers []string // their domains, the first forwarder first; only of a pass

	found []string // what each forwarder found, in the same order
}

// arcSet is what one forwarder added.
type arcSet struct {
	results       []byte // the whole ARC-Authentication-Results
	message, seal signature
	digest        []byte // what seal signs
}

// readARC reads the chain. What is wrong with its form ends it.
func (t *Trial) readARC() {
	seals := t.head.fields["arc-seal"]
	messages, results := t.head.fields["arc-message-signature"], t.head.fields["arc-authentication-results"]
	n := len(seals)
	if n+len(messages)+len(results) == 0 {
		t.arc.Result = None
		return
	}
	if n > maxSets || len(messages) != n || len(results) != n {
		t.arc.Result, t.arc.Reason = Fail, "it has not one of each field per forwarder"
		return
	}
	t.sets = make([]arcSet, n)
	for _, bad := range []string{t.placeResults(results), t.place(messages, false), t.place(seals, true)} {
		if bad != "" {
			t.arc.Result, t.arc.Reason = Fail, bad
			return
		}
	}
	last := &t.sets[n-1]
	var bad string
	if t.arcContent, bad = last.message.content(t.sum); bad == "" && slices.Contains(t.arcContent.names, "arc-seal") {
		bad = "it signs a seal"
	}
	if bad != "" {
		t.arc.Result, t.arc.Reason = Fail, "the newest signature: "+bad
	}
	t.sealed()
}

// placeResults puts the ARC-Authentication-Results in their places.
func (t *Trial) placeResults(fields [][]byte) (bad string) {
	for _, f := range fields {
		text, _, _ := strings.Cut(string(f[bytes.IndexByte(f, ':')+1:]), ";")
		name, number, _ := strings.Cut(text, "=")
		set := t.set(strings.TrimSpace(number))
		if strings.TrimSpace(name) != "i" || set == nil || set.results != nil {
			return "its results are not numbered from 1"
		}
		set.results = f
	}
	return ""
}

// place puts signatures or seals in their places.
func (t *Trial) place(fields [][]byte, seals bool) (bad string) {
	for _, f := range fields {
		s, bad := readSignature(f)
		if bad != "" {
			return bad
		}
		if s.algorithm != "rsa-sha256" && s.algorithm != "ed25519-sha256" {
			return "its algorithm is not known"
		}
		number, _ := s.tags.get("i")
		set := t.set(number)
		if set == nil {
			return "it is not numbered from 1"
		}
		at := &set.message
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

// set is the set of a number, nil if there is none.
func (t *Trial) set(number string) *arcSet {
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > len(t.sets) {
		return nil
	}
	return &t.sets[n-1]
}

// sealed hashes what each seal signs: all sets up to its own, in order
// (RFC 8617 §5.1.1).
func (t *Trial) sealed() {
	sum := sha256.New()
	for i := range t.sets {
		s := &t.sets[i]
		hashField(sum, s.results, false)
		hashField(sum, s.message.raw, false)
		upTo, err := sum.(hash.Cloner).Clone()
		if err != nil { // SHA-256 can always be copied
			t.arc.Result, t.arc.Reason = Fail, "it can't be hashed"
			return
		}
		_, _ = upTo.Write(bytes.TrimSuffix(relaxField(nil, s.seal.bare()), []byte("\r\n")))
		s.digest = upTo.Sum(nil)
		hashField(sum, s.seal.raw, false)
	}
}

// verifyARC tests the newest signature and all seals. The DNS is asked only if
// the body is what was signed.
func (t *Trial) verifyARC(ctx context.Context) {
	digest, size := t.arcContent.body.finish()
	if length := t.arcContent.body.length; !bytes.Equal(digest, t.arcContent.bodyHash) || length >= 0 && length != size {
		t.arc.Result, t.arc.Reason = Fail, "the body was changed"
		return
	}
	results := make([]Result, len(t.sets)+1)
	reasons := make([]string, len(results))
	check := func(n int, s *signature, digest []byte) {
		k, result, why := t.judge.findKey(ctx, t.judge.DNS, s)
		if result == "" && !k.verifies(digest, s.value) {
			why = "it does not verify"
		}
		results[n], reasons[n] = result, why
	}
	// A few at a time: each that asks the DNS may hold a socket for long.
	var all sync.WaitGroup
	for first := range min(sealsAtOnce, len(t.sets)) {
		all.Go(func() {
			for n := first; n < len(t.sets); n += sealsAtOnce {
				check(n, &t.sets[n].seal, t.sets[n].digest)
			}
		})
	}
	last := &t.sets[len(t.sets)-1].message
	check(len(t.sets), last, t.head.digest(last, &t.arcContent))
	all.Wait()
	t.arc.Result = Pass
	for n, why := range reasons {
		switch {
		case why == "" || t.arc.Result == Fail:
		case results[n] == TempError:
			t.arc.Result, t.arc.Reason = TempError, why
		default:
			t.arc.Result, t.arc.Reason = Fail, "forwarder "+strconv.Itoa(min(n+1, len(t.sets)))+": "+why
		}
	}
	if t.arc.Result != Pass {
		return
	}
	for i := range t.sets {
		s := &t.sets[i]
		t.arc.Sealers = append(t.arc.Sealers, s.seal.domain)
		_, rest, _ := strings.Cut(string(s.results), ";")
		t.arc.found = append(t.arc.found, rest)
	}
}

// Vouched returns the trusted forwarder who found, before anyone else who is
// not trusted touched the message, that DMARC passed for an author's domain;
// "" if there is none (RFC 8617 §7.2.1).
func (a *ARC) Vouched(author string, trusted []string) string {
	if a.Result != Pass {
		return ""
	}
	for n := len(a.Sealers) - 1; n >= 0 && slices.Contains(trusted, a.Sealers[n]); n-- {
		found, _ := ParseResults(a.found[n])
		for _, m := range found.Methods {
			if from, told := m.Property("header.from"); m.Name == "dmarc" && m.Result == Pass && told && strings.EqualFold(from, author) {
				return a.Sealers[n]
			}
		}
	}
	return ""
}
