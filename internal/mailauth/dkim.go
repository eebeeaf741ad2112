// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"hash"
	"maps"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/dns"
)

// maxSignatures is the number of DKIM-Signature fields that are verified, from the top, where the
// last hosts put theirs (RFC 6376 §6.1).
const maxSignatures = 10

// DKIM is the result for one DKIM-Signature (RFC 6376).
type DKIM struct {
	Result          Result
	Reason          string // explanation for people; empty with a pass
	Domain          string // d=, A-labels; empty if it can't be read
	Selector        string
	Algorithm       string // such as rsa-sha256
	SignaturePrefix string // first characters of b=, which identify the signature

	signature
	signedContent
}

// headerIndex is an index of a message's header. It has only the fields that signatures name, since
// a header may have very many.
type headerIndex struct {
	raw       []byte
	fields    map[string][][]byte // by name in lower case, from the top
	truncated map[string]bool     // names with more fields than indexed; signatures of these can't be verified
}

// Limits on indexed fields: per name, and in total. Mail has a few hundred fields.
const (
	maxFieldsPerName = maxSignedFields
	maxIndexedFields = 10 * maxSignedFields
)

// indexHeader indexes the fields with the given lower-case names.
func indexHeader(header []byte, names ...string) *headerIndex {
	h := &headerIndex{raw: header, fields: map[string][][]byte{}, truncated: map[string]bool{}}
	h.addNames(names)
	return h
}

// addNames indexes the fields of more names.
func (h *headerIndex) addNames(names []string) {
	wanted := map[string][][]byte{}
	for _, name := range names {
		if _, known := h.fields[name]; !known {
			wanted[name] = nil
		}
	}
	if len(wanted) == 0 {
		return
	}
	lower := make([]byte, 0, 256)
	n := 0
	for rest := h.raw; len(rest) > 0 && rest[0] != '\r' && rest[0] != '\n'; {
		var field []byte
		field, rest = cutField(rest)
		colon := bytes.IndexByte(field, ':')
		if colon <= 0 {
			continue
		}
		name := bytes.TrimRight(field[:colon], " \t\r\n") // there may be many blanks
		if len(name) > cap(lower) {
			continue // no signed name is longer
		}
		lower = lower[:0]
		for _, c := range name {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			lower = append(lower, c)
		}
		list, ok := wanted[string(lower)]
		switch {
		case !ok:
		case len(list) == maxFieldsPerName || n == maxIndexedFields:
			h.truncated[string(lower)] = true
		default:
			wanted[string(lower)] = append(list, field)
			n++
		}
	}
	maps.Copy(h.fields, wanted)
}

// digest hashes the fields named by h=, from the bottom up (RFC 6376 §5.4.2), and the signature
// itself.
func (h *headerIndex) digest(s *signature, c *signedContent) []byte {
	sum := sha256.New()
	used := map[string]int{}
	for _, name := range c.signedNames {
		all := h.fields[name]
		used[name]++
		if at := len(all) - used[name]; at >= 0 && &all[at][0] == &s.raw[0] {
			used[name]++ // h= never means the signature itself (RFC 6376 §3.5)
		}
		if used[name] <= len(all) {
			hashField(sum, all[len(all)-used[name]], c.simpleHeader)
		}
	}
	own := s.withoutValue()
	if !c.simpleHeader {
		own = bytes.TrimSuffix(appendRelaxed(nil, own), []byte("\r\n"))
	}
	_, _ = sum.Write(own)
	return sum.Sum(nil)
}

func hashField(sum hash.Hash, field []byte, simple bool) {
	if !simple {
		field = appendRelaxed(nil, field)
	}
	_, _ = sum.Write(field)
	if !bytes.HasSuffix(field, []byte("\n")) {
		_, _ = sum.Write([]byte("\r\n"))
	}
}

// readDKIM parses the signatures of a message. Unusable signatures get their result here.
func (t *Verification) readDKIM() {
	all := t.header.fields["dkim-signature"]
	for _, field := range all[:min(len(all), maxSignatures)] {
		d := &DKIM{}
		var bad string
		if d.signature, bad = parseSignature(field); bad == "" {
			bad = t.readSignedContent(d)
		}
		d.Domain, d.Selector, d.Algorithm = d.domain, d.selector, d.algorithm
		if v, _ := d.tags.get("b"); v != "" {
			v = strings.Join(strings.Fields(v[:min(len(v), 64)]), "")
			d.SignaturePrefix = v[:min(len(v), 8)]
		}
		if bad != "" {
			d.Result, d.Reason = PermError, bad
		}
		t.signatures = append(t.signatures, d)
	}
}

// agentDomain returns the domain of i= in A-labels, as d= is (RFC 8616 §5).
func (s *signature) agentDomain() (string, bool) {
	i, ok := s.tags.get("i")
	i = i[strings.LastIndexByte(i, '@')+1:]
	if domain, err := address.ParseMailDomain(i); err == nil {
		i = domain
	}
	return i, ok
}

// readSignedContent checks the tags that only DKIM-Signature has.
func (t *Verification) readSignedContent(d *DKIM) (bad string) {
	if v, _ := d.tags.get("v"); v != "1" {
		return "it is of another version"
	}
	if q, ok := d.tags.get("q"); ok && !listContains(q, "dns/txt") {
		return "its key is not in the DNS"
	}
	switch d.algorithm {
	case "rsa-sha256", "ed25519-sha256":
	case "rsa-sha1":
		return "SHA-1 proves nothing any more" // RFC 8301 §3.1
	default:
		return "its algorithm is not known"
	}
	if agent, ok := d.agentDomain(); ok && !isSubdomainOf(agent, d.domain) {
		return "its i= is not of its domain"
	}
	signed, bad := d.numberTag("t")
	if bad != "" {
		return bad
	}
	expires, bad := d.numberTag("x")
	switch {
	case bad != "":
		return bad
	case expires >= 0 && expires <= signed:
		return "it expires before it was made"
	}
	d.signedContent, bad = d.signature.parseContent(t.bodyHashFor)
	return bad
}

// verifyDKIM verifies a signature. It queries DNS only if the body hash matches.
func (t *Verification) verifyDKIM(ctx context.Context, r *dns.Resolver, now time.Time, d *DKIM) (Result, string) {
	if x, _ := d.numberTag("x"); x >= 0 && now.Unix() > x {
		return Fail, "it has expired"
	}
	digest, size := d.bodyHasher.finish()
	if !bytes.Equal(digest, d.bodyHash) || d.bodyHasher.length > size {
		return Fail, "the body was changed"
	}
	k, result, why := t.verifier.findKey(ctx, r, &d.signature)
	if result != "" {
		return result, why
	}
	if agent, ok := d.agentDomain(); ok && k.noSubdomains && !strings.EqualFold(agent, d.domain) {
		return PermError, "its i= is of a sub-domain, which the key does not allow"
	}
	switch {
	case !k.verifies(t.header.digest(&d.signature, &d.signedContent), d.value):
		if k.testMode { // RFC 6376 §3.6.1
			return Neutral, "it does not verify, but its key is being tested"
		}
		return Fail, "it does not verify"
	case d.bodyHasher.length >= 0 && d.bodyHasher.length < size:
		return PolicyFailure, "it signs only a part of the body" // anything could follow the signed part (§8.2)
	}
	return Pass, ""
}
