// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
)

// signature is a DKIM-Signature, ARC-Message-Signature or ARC-Seal field.
type signature struct {
	raw              []byte // the whole field
	algorithm        string // a=, in lower case
	domain, selector string
	value            []byte // b=
	tags             tags
}

// signedContent is what a DKIM-Signature or ARC-Message-Signature covers.
type signedContent struct {
	simpleHeader bool
	signedNames  []string // h=, in lower case
	bodyHasher   *bodyHasher
	bodyHash     []byte // bh=
}

// maxSignedFields is the maximum number of names in h=.
const maxSignedFields = 2000

// parseSignature parses the tags that all three kinds have. bad is why the field is not a valid
// signature.
func parseSignature(raw []byte) (s signature, bad string) {
	colon := bytes.IndexByte(raw, ':')
	s.raw = raw
	if s.tags, bad = parseTags(string(raw[colon+1:])); bad != "" {
		return s, "it can't be read"
	}
	for _, name := range []string{"a", "b", "d", "s"} {
		if v, _ := s.tags.get(name); v == "" {
			return s, "it has no " + name + "="
		}
	}
	a, _ := s.tags.get("a")
	s.algorithm = strings.ToLower(a)
	d, _ := s.tags.get("d")
	var err error
	if s.domain, err = address.ParseMailDomain(d); err != nil {
		return s, "its domain is none"
	}
	s.selector, _ = s.tags.get("s")
	for label := range strings.SplitSeq(s.selector, ".") {
		if label == "" || len(label) > 63 || strings.ContainsFunc(label, isInvalidNameRune) {
			return s, "its selector is none"
		}
	}
	if s.value, bad = s.base64Tag("b"); bad != "" {
		return s, bad
	}
	return s, ""
}

// isInvalidNameRune reports whether a character can't be part of a selector.
func isInvalidNameRune(r rune) bool {
	return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
}

// base64Tag decodes a base64 tag, which may be folded.
func (s *signature) base64Tag(name string) ([]byte, string) {
	v, _ := s.tags.get(name)
	b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(v), ""))
	if err != nil || len(b) == 0 {
		return nil, "its " + name + "= is not base64"
	}
	return b, ""
}

// numberTag parses a tag of digits; -1 if there is none.
func (s *signature) numberTag(name string) (int64, string) {
	v, ok := s.tags.get(name)
	if !ok {
		return -1, ""
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || v[0] == '+' {
		return 0, "its " + name + "= is no number"
	}
	return n, ""
}

// parseContent parses what the signature covers. sum returns the hasher for a canonical form.
func (s *signature) parseContent(sum func(simple bool, length int64) *bodyHasher) (c signedContent, bad string) {
	canon, _ := s.tags.get("c")
	head, body, _ := strings.Cut(strings.ToLower(canon), "/")
	simpleBody := false
	for _, one := range []struct {
		word   string
		simple *bool
	}{{strings.TrimSpace(head), &c.simpleHeader}, {strings.TrimSpace(body), &simpleBody}} {
		switch one.word {
		case "", "simple":
			*one.simple = true
		case "relaxed":
		default:
			return c, "its c= is not known"
		}
	}
	h, _ := s.tags.get("h")
	for name := range strings.SplitSeq(h, ":") {
		if name = strings.ToLower(strings.TrimSpace(name)); name == "" || len(c.signedNames) == maxSignedFields {
			return c, "its h= can't be read"
		}
		c.signedNames = append(c.signedNames, name)
	}
	if !slices.Contains(c.signedNames, "from") {
		return c, "it does not sign From"
	}
	length, bad := s.numberTag("l")
	if bad != "" {
		return c, bad
	}
	if c.bodyHash, bad = s.base64Tag("bh"); bad != "" {
		return c, bad
	}
	c.bodyHasher = sum(simpleBody, length)
	return c, ""
}

// withoutValue returns the field with an empty b= and without its last line end (RFC 6376 §3.5,
// §3.7).
func (s *signature) withoutValue() []byte {
	colon := bytes.IndexByte(s.raw, ':')
	for at := colon + 1; at < len(s.raw); {
		end := len(s.raw)
		if n := bytes.IndexByte(s.raw[at:], ';'); n >= 0 {
			end = at + n
		}
		if eq := bytes.IndexByte(s.raw[at:end], '='); eq >= 0 && string(bytes.TrimSpace(s.raw[at:at+eq])) == "b" {
			out := append([]byte{}, s.raw[:at+eq+1]...)
			return bytes.TrimSuffix(append(out, s.raw[end:]...), []byte("\r\n"))
		}
		at = end + 1
	}
	return bytes.TrimSuffix(s.raw, []byte("\r\n"))
}
