// SPDX-License-Identifier: Apache-2.0

// Package summary takes out of a message what applications want of it: the
// fields of its header, its texts as UTF-8, a list of its files. The message
// may come from anyone, so all of that is bounded, and a flag tells when
// something was left out. It is pure, and says the same of the same message
// each time.
//
// The types are those of events and of the API; their doc tags go into the
// OpenAPI document.
package summary

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
)

// The limits of what is taken, in bytes of UTF-8 where nothing else is said.
// An event holds a Summary and a Content, so these bound what 100,000 events
// cost: 0.1 MB for most of them, 0.5 MB each at the very worst.
const (
	MaxText         = 64 << 10 // of the plain text, and of the HTML
	MaxHeaderBytes  = 32 << 10 // of all names and values together
	MaxHeaderFields = 500      // fields of the header
	MaxAddresses    = 50       // addresses of each field
	MaxAttachments  = 100      // files that are listed; all of them can be read

	maxSubject    = 2000
	maxAddress    = 512 // a name, and an address
	maxID         = 998 // a Message-ID: none that is longer fits on a line (RFC 5322 §2.1.1)
	maxReferences = 20  // the last ones
)

// Address is somebody in an address field.
type Address struct {
	Name  string `json:"name,omitempty" doc:"The display name." example:"Ann Lee"`
	Email string `json:"email" doc:"The address as it stands there, which may be none that mail can be sent to." example:"ann@example.com"`
}

// Summary is what lists show of a message.
type Summary struct {
	MessageID string     `json:"message_id" doc:"The Message-ID header field; empty if the message has none." example:"<abc@example.org>"`
	From      []Address  `json:"from" nullable:"false" doc:"The authors, at most 50."`
	To        []Address  `json:"to" nullable:"false" doc:"The recipients that the header names, at most 50; the envelope tells where the message went."`
	Cc        []Address  `json:"cc" nullable:"false" doc:"Further recipients, at most 50."`
	Subject   string     `json:"subject" doc:"The subject line, at most 2,000 bytes." example:"Your order"`
	Date      *time.Time `json:"date" nullable:"true" doc:"When it was written, as its author says; null if that can't be read."`
}

// FromHeader reads a header.
func FromHeader(h message.Header) Summary {
	e := h.Envelope()
	return New(e.MessageID, e.From, e.To, e.Cc, e.Subject, e.Date)
}

// New is FromHeader for fields that were read already; date is zero if
// there is none.
func New(messageID string, from, to, cc []message.Address, subject string, date time.Time) Summary {
	s := Summary{
		MessageID: CleanText(messageID, maxID), From: addresses(from), To: addresses(to), Cc: addresses(cc), Subject: CleanText(subject, maxSubject),
	}
	if !date.IsZero() {
		date = date.UTC()
		s.Date = &date
	}
	return s
}

func addresses(list []message.Address) []Address {
	some := make([]Address, 0, min(len(list), MaxAddresses))
	for _, a := range list[:min(len(list), MaxAddresses)] {
		some = append(some, Address{Name: CleanText(a.Name, maxAddress), Email: CleanText(a.String(), maxAddress)})
	}
	return some
}

// CleanText makes at most n bytes of s fit for JSON and for a column: valid UTF-8
// without control characters.
func CleanText(s string, n int) string {
	s = truncate(strings.ToValidUTF8(s[:min(len(s), n+utf8.UTFMax)], "\uFFFD"), n)
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// truncateEncoded cuts what is yet to be decoded to at most n bytes: not within a
// character, for then all of it would be taken for another charset's, nor
// within an encoded word.
func truncateEncoded(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for k := n; k > 0 && k > n-utf8.UTFMax; k-- {
		if utf8.RuneStart(s[k]) {
			n = k
			break
		}
	}
	s = s[:n]
	if i := strings.LastIndex(s, "=?"); i >= 0 && !strings.ContainsAny(s[i:], " \t") {
		s = s[:i]
	}
	return s
}

// truncate cuts valid UTF-8 to at most n bytes, between two characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
