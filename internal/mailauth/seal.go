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

// arcSignedFields returns the fields that an ARC-Message-Signature covers: signedFields and the
// author's DKIM-Signature. It never covers seals, nor results, which receivers may remove (RFC 8617
// §4.1.2).
func arcSignedFields() []signedField {
	return append(signedFields(), signedField{name: "DKIM-Signature"})
}

// Seal returns an ARC set to prepend to a message that is forwarded (RFC 8617 §5.1). It has the
// results from the host's own topmost Authentication-Results field, a signature of the message, and
// a seal over the chain. The first RSA key signs, since RSA is the only kind that every receiver
// verifies.
//
// Seal returns nothing in these cases:
//   - The host did not verify the message.
//   - The newest seal says that the chain is broken.
//   - A DNS error left the chain's result open. Every failure is permanent (§5.2.1), and the next
//     host may find out more.
//   - The chain has 50 sets.
//   - The header is larger than 1 MiB or has too many fields to sign.
//
// Seal seals a broken chain as broken, once (§5.1.2).
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
	// The results must agree on whether there was a chain.
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

// resultsToSeal returns the value, in CRLF, of the host's own topmost Authentication-Results field,
// and its result for the chain: none, pass or fail. cv is "" if there is nothing to seal.
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

// ownResults parses the host's own Authentication-Results field, which is the topmost, and returns
// its value, in CRLF; nil if there is none.
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

// nextInstance returns the number of the next set: one more than the highest (RFC 8617 §5.1), or 0
// if there must be no more.
func (t *Verification) nextInstance() int {
	highest, ended := 0, false
	for _, name := range []string{"arc-authentication-results", "arc-message-signature", "arc-seal"} {
		for _, f := range t.header.fields[name] {
			// In results, a semicolon ends the number, and no tag list follows.
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
