// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
)

// arcSignedFields are signed in an ARC-Message-Signature beside those of
// signedFields: what the author's domain signed. Never a seal, nor results,
// which whoever trusts them takes out (RFC 8617 §4.1.2).
func arcSignedFields() []signedField {
	return append(signedFields(), signedField{name: "DKIM-Signature"})
}

// Seal returns an ARC set for a message that goes on from here, to be put before
// it: what the host found when the message arrived, as its own topmost
// Authentication-Results field has it, under a signature of the message and a
// seal over the chain (RFC 8617 §5.1). It is signed with the first RSA key, the
// only kind that all verify.
//
// Nothing is returned where there is nothing to seal: the message was not judged
// here, the newest seal says already that the chain is broken, DNS trouble left
// open whether it is (all failures are for ever, §5.2.1, and the next host may
// know more), the chain has 50 links, or the header is larger than 1 MiB or has
// more fields than one signs. A chain that is broken is sealed as such, once
// (§5.1.2).
func (s *Signer) Seal(r io.Reader, host string) ([]byte, error) {
	at := slices.IndexFunc(s.Keys, func(k Key) bool { _, ok := k.Private.(*rsa.PrivateKey); return ok })
	if at < 0 {
		return nil, nil
	}
	header, body, err := readMessage(r)
	if errors.Is(err, ErrHeaderTooBig) || len(header) > maxHeader {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.seal(header, body, host, s.Keys[at])
}

func (s *Signer) seal(header []byte, body [sha256.Size]byte, host string, k Key) ([]byte, error) {
	head := indexHeader(header, "authentication-results", "arc-seal", "arc-message-signature", "arc-authentication-results")
	found, cv := resultsToSeal(head, host)
	if cv == "" {
		return nil, nil
	}
	t := &Verification{verifier: &Verifier{}, header: head}
	t.readARC()
	n := t.nextInstance()
	// What was found says of itself whether there was a chain.
	if n == 0 || (cv == None) != (n == 1) || cv == Pass && t.arc.Result != "" {
		return nil, nil
	}
	number := strconv.Itoa(n)
	results := append([]byte("ARC-Authentication-Results: i="+number+"; "), found...)
	names, signed := selectFields(header, arcSignedFields())
	if len(names) > maxSignedFields {
		return nil, nil
	}
	message, err := k.sign("ARC-Message-Signature: i="+number+"; a=rsa-sha256; c=relaxed/relaxed;\r\n\td="+s.Domain+
		"; s="+k.Selector+"; t="+s.timestamp()+";\r\n\th="+foldNames(names)+";\r\n\tbh="+base64.StdEncoding.EncodeToString(body[:])+";\r\n\tb=", signed)
	if err != nil {
		return nil, err
	}
	var chain []byte
	if cv == Pass {
		for i := range t.arcSets {
			for _, field := range [][]byte{t.arcSets[i].results, t.arcSets[i].messageSignature.raw, t.arcSets[i].seal.raw} {
				chain = appendRelaxed(chain, field)
			}
		}
	}
	chain = appendRelaxed(appendRelaxed(chain, results), message)
	seal, err := k.sign("ARC-Seal: i="+number+"; a=rsa-sha256; cv="+string(cv)+";\r\n\td="+s.Domain+
		"; s="+k.Selector+"; t="+s.timestamp()+";\r\n\tb=", chain)
	if err != nil {
		return nil, err
	}
	return slices.Concat(seal, message, results), nil
}

// resultsToSeal returns the value of a host's own Authentication-Results field, which
// is the topmost, in CRLF, and what it says of the chain: none, pass or fail;
// "" where the host found nothing that can be sealed.
func resultsToSeal(head *headerIndex, host string) (value []byte, cv Result) {
	found, value := ownResults(head, host)
	if value == nil {
		return nil, ""
	}
	cv = None
	for _, m := range found.Methods {
		if m.Name == "arc" {
			cv = m.Result
		}
	}
	if cv != None && cv != Pass && cv != Fail {
		return nil, ""
	}
	return value, cv
}

// ownResults reads a host's own Authentication-Results field, which is the topmost, and
// returns its value, in CRLF; nil if there is none.
func ownResults(head *headerIndex, host string) (found ResultsField, value []byte) {
	all := head.fields["authentication-results"]
	if len(all) == 0 {
		return found, nil
	}
	value = bytes.TrimLeft(all[0][bytes.IndexByte(all[0], ':')+1:], " \t")
	found, _ = ParseResultsField(string(value))
	if !strings.EqualFold(found.AuthServID, host) {
		return found, nil
	}
	return found, value
}

// nextInstance is the number that the next set gets: one more than the highest there
// is (RFC 8617 §5.1); 0 where there is to be none.
func (t *Verification) nextInstance() int {
	highest, ended := 0, false
	for _, name := range []string{"arc-authentication-results", "arc-message-signature", "arc-seal"} {
		for _, f := range t.header.fields[name] {
			// In results a semicolon ends the number; what follows is no list of tags.
			value := string(f[bytes.IndexByte(f, ':')+1:])
			if name == "arc-authentication-results" {
				value, _, _ = strings.Cut(value, ";")
			}
			list, _ := parseTags(value)
			i, _ := list.get("i")
			n, err := strconv.Atoi(i)
			if err != nil || n < highest {
				continue
			}
			cv, _ := list.get("cv")
			highest, ended = n, strings.EqualFold(cv, string(Fail))
		}
	}
	if ended || highest >= maxARCSets {
		return 0
	}
	return highest + 1
}
