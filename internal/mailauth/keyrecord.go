// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// CheckKeyRecord checks that the TXT records at a selector publish pub, so that signatures by its
// private key verify. Otherwise, problem tells the domain's owner what to change.
func CheckKeyRecord(txts []string, pub crypto.PublicKey) (ok bool, problem string) {
	var records []string
	for _, txt := range limitRecords(txts) {
		if isKeyRecord(txt) {
			records = append(records, txt)
		}
	}
	switch len(records) {
	case 0:
		if len(txts) > 0 {
			return false, "There is a TXT record at this name, but it is not a DKIM key. Publish the value as shown."
		}
		return false, "No TXT record was found at this name. Publish the value as shown."
	case 1:
	default:
		return false, fmt.Sprintf("%d DKIM keys were found at this name; receivers may take either. Keep only the one shown.", len(records))
	}
	list, problem := parseTags(records[0])
	if problem == "" {
		problem = checkKeyTags(list, pub)
	}
	return problem == "", problem
}

// isKeyRecord reports whether a record is meant to be a key. The version is optional (RFC 6376
// section 3.6.1).
func isKeyRecord(txt string) bool {
	list, problem := parseTags(txt)
	if problem != "" {
		return hasPrefixFold(strings.TrimLeft(txt, "\" \t"), "v=DKIM")
	}
	if v, ok := list.get("v"); ok {
		return hasPrefixFold(v, "DKIM")
	}
	_, ok := list.get("p")
	return ok
}

func checkKeyTags(list tags, pub crypto.PublicKey) string {
	if v, ok := list.get("v"); ok && v != "DKIM1" {
		return fmt.Sprintf("The record has v=%s; it must be v=DKIM1.", printable(v))
	} else if ok && list[0].name != "v" {
		return "The record must begin with v=DKIM1."
	}
	p, ok := list.get("p")
	if !ok {
		return "The record has no p= part, which holds the key. Publish the value as shown, to its end."
	}
	p = strings.Join(strings.Fields(p), "")
	if p == "" {
		return "The key is revoked: p= is empty. Publish the value as shown."
	}
	if strings.ContainsAny(p, "\"\\") {
		return "The key has quotation marks or backslashes inside. Remove them: they are not part of the value."
	}
	if problem := checkKey(list, p, pub); problem != "" {
		return problem
	}
	if h, ok := list.get("h"); ok && !listContains(h, "sha256") {
		return "The record's h= part does not allow sha256. Remove h=."
	}
	if s, ok := list.get("s"); ok && !listContains(s, "*") && !listContains(s, "email") {
		return "The record's s= part does not allow mail. Remove s=."
	}
	if t, ok := list.get("t"); ok && listContains(t, "y") {
		return "The record has t=y, which tells receivers to ignore signatures while you test. Remove it."
	}
	return ""
}

func listContains(list, want string) bool {
	return slices.ContainsFunc(strings.Split(list, ":"), func(s string) bool {
		return strings.EqualFold(strings.TrimSpace(s), want)
	})
}

// checkKey compares the published key with ours.
func checkKey(list tags, p string, pub crypto.PublicKey) string {
	ours, err := KeyRecord(pub)
	if err != nil {
		return "We have no key to compare the record with."
	}
	_, rest, _ := strings.Cut(ours, "k=")
	kind, want, _ := strings.Cut(rest, "; p=")
	k, ok := list.get("k")
	if !ok {
		k = string(RSA)
	}
	if k != kind {
		return fmt.Sprintf("The record says k=%s, but this key needs k=%s. Publish the value as shown.", printable(k), kind)
	}
	if len(p) < len(want) && strings.HasPrefix(want, p) {
		return fmt.Sprintf("The key is cut off after %d of %d characters. If your DNS provider limits the length, enter the value as several strings of at most 255 characters.", len(p), len(want))
	}
	der, err := base64.StdEncoding.DecodeString(p)
	if err != nil {
		der, err = base64.RawStdEncoding.DecodeString(p)
	}
	if err != nil {
		return "The key in p= is not valid base64; a character may be missing or have been changed. Publish the value as shown."
	}
	if !sameKey(der, pub) {
		return "The record holds another key than this domain's. Replace it with the value as shown."
	}
	return ""
}

// sameKey reports whether der is pub. It accepts RSA keys in both common forms (RFC 6376 erratum
// 3017).
func sameKey(der []byte, pub crypto.PublicKey) bool {
	switch ours := pub.(type) {
	case ed25519.PublicKey:
		return ours.Equal(ed25519.PublicKey(der))
	case *rsa.PublicKey:
		if k, err := x509.ParsePKIXPublicKey(der); err == nil {
			return ours.Equal(k)
		}
		if k, err := x509.ParsePKCS1PublicKey(der); err == nil {
			return ours.Equal(k)
		}
	}
	return false
}
