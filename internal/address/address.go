// SPDX-License-Identifier: Apache-2.0

// Package address parses, normalizes and compares mail addresses and domain names: RFC 5321 §4.1.2
// with the UTF-8 local parts of RFC 6531 and internationalized domains (IDNA2008).
//
// Every error is a fault.Invalid whose message never repeats the input.
package address

import (
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/fault"
)

// Limits in octets (RFC 5321 §4.5.3.1, and RFC 3696 erratum 1690 for the total).
const (
	MaxLocalPart   = 64  // for local mailboxes; forwarders and mailing lists use longer ones
	MaxDomain      = 253 // as written; 255 on the wire
	MaxAddress     = 254
	MaxDisplayName = 512 // display name
)

// maxInput bounds the work done for one input. A domain given as U-labels may
// take more octets than its ASCII form, so it is above MaxAddress.
const maxInput = 2048

// Address is a mailbox address. The zero value is no address.
//
// Local is in wire form with its case preserved, quoted only where necessary. Domain is lowercase
// ASCII (A-labels). So Local + "@" + Domain is always valid in an SMTP command. Two Addresses that
// are equal as Go values are the same to every mail server.
type Address struct {
	Local, Domain string
}

// Parse parses local@domain. Beyond the RFCs it accepts addresses that exist elsewhere: dots
// anywhere in the local part, which it then quotes (carriers in Japan issue them), and underscores
// in the domain. It rejects address literals (user@[192.0.2.1]), source routes and domains of a
// single label, and also control characters, line separators and bidirectional overrides, quoted or
// not. The code of its errors is invalid_address.
func Parse(s string) (Address, error) {
	a, why := parse(s)
	if why != "" {
		return Address{}, invalid("invalid_address", why)
	}
	return a, nil
}

func parse(s string) (Address, string) {
	if len(s) > maxInput {
		return Address{}, "The address is too long."
	}
	local, rest, why := cutLocal(s)
	if why != "" {
		return Address{}, why
	}
	if rest != "" && rest[0] == '[' {
		return Address{}, "An IP address in place of the domain is not accepted; give a domain name."
	}
	domain, why := normalizeDomain(rest, mailDomainRules)
	if why != "" {
		return Address{}, why
	}
	if len(local)+1+len(domain) > MaxAddress {
		return Address{}, "The address is longer than 254 octets."
	}
	return Address{Local: local, Domain: domain}, ""
}

// String returns the address as it is sent: with the local part's case preserved, and the domain in
// ASCII. Parse(a.String()) returns a again.
func (a Address) String() string {
	if a == (Address{}) {
		return ""
	}
	return a.Local + "@" + a.Domain
}

// UnquotedLocal returns the local part without the quotation marks and backslashes that it may have
// on the wire.
func (a Address) UnquotedLocal() string { return unquote(a.Local) }

// Key returns the form that is the same for all addresses of a mailbox: the local part case-folded
// and in NFC, the domain as A-labels. It includes the plus-tag. It is for comparing and for unique
// indexes, not for sending.
func (a Address) Key() string {
	if a == (Address{}) {
		return ""
	}
	return LocalKey(a.Local) + "@" + a.Domain
}

// KeyOf returns the Key of the address in text, or text itself if that is not an address.
func KeyOf(text string) string {
	a, err := Parse(text)
	if err != nil {
		return text
	}
	return a.Key()
}

// PersonKey returns the form that identifies the person behind an address: the domain as A-labels,
// the local part in lower case, letter by letter and only where the capital is that letter's own.
// It folds less than Key: Weißer@ is not weisser@, which may be another person's at another host.
func (a Address) PersonKey() string {
	if a == (Address{}) {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if l := unicode.ToLower(r); unicode.ToUpper(l) == r {
			return l
		}
		return r
	}, a.Local) + "@" + a.Domain
}

// LocalKey returns the Key form of a local part.
func LocalKey(local string) string {
	if isASCII(local) {
		return strings.ToLower(local)
	}
	// Folding is defined on decomposed text, so NFC comes last.
	s := cases.Fold().String(norm.NFD.String(unquote(local)))
	return quoteIfNeeded(norm.NFC.String(s))
}

// SplitTag splits the plus-tag off: a+x@d gives a@d and "x". Without one (a
// leading plus begins no tag) it returns a and "".
func (a Address) SplitTag() (Address, string) {
	if strings.IndexByte(a.Local, '+') < 0 {
		return a, ""
	}
	name, tag, ok := strings.Cut(unquote(a.Local), "+")
	if !ok || name == "" {
		return a, ""
	}
	return Address{Local: quoteIfNeeded(name), Domain: a.Domain}, tag
}

// NeedsSMTPUTF8 reports whether sending to or from the address needs SMTPUTF8 (RFC
// 6531). The domain never does: it is ASCII.
func (a Address) NeedsSMTPUTF8() bool { return !isASCII(a.Local) }

// Display returns the address for people to read: its domain in Unicode.
func (a Address) Display() string {
	if a == (Address{}) {
		return ""
	}
	return a.Local + "@" + DisplayDomain(a.Domain)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func invalid(code, sentence string) error {
	return &fault.Error{Kind: fault.Invalid, Code: code, Message: sentence}
}
