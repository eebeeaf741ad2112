// SPDX-License-Identifier: Apache-2.0

// Package summary extracts from a message what applications need: its header fields, its texts as
// UTF-8, and a list of its attachments. Messages are untrusted, so all output is limited in size,
// and flags report omissions. The package is deterministic and has no side effects.
//
// Events and the API use these types; their doc tags become part of the OpenAPI document.
package summary

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/message"
)

// Limits on the output, in bytes of UTF-8 unless stated otherwise. An event holds a Summary and a
// Content, so these limit the cost of 100,000 events: 0.1 MB for most of them, 0.5 MB each at
// worst.
const (
	MaxText         = 64 << 10 // plain text and HTML, each
	MaxHeaderBytes  = 32 << 10 // names and values together
	MaxHeaderFields = 500      // fields of the header
	MaxAddresses    = 50       // addresses per field
	MaxAttachments  = 100      // listed files; all can be opened

	maxSubject    = 2000
	maxAddress    = 512 // name and address, each
	maxID         = 998 // no longer Message-ID fits on a line (RFC 5322 §2.1.1)
	maxReferences = 20  // the last ones are kept
)

// Address is an address in an address field.
type Address struct {
	Name  apijson.NullString `json:"name" doc:"The display name." example:"Ann Lee"`
	Email string             `json:"email" doc:"The address as it stands there, which may be none that mail can be sent to." example:"ann@example.com"`
}

// Summary is the data of a message for lists.
type Summary struct {
	MessageID string     `json:"message_id" doc:"The Message-ID header field; empty if the message has none." example:"<abc@example.org>"`
	From      []Address  `json:"from" doc:"The authors, at most 50."`
	To        []Address  `json:"to" doc:"The recipients that the header names, at most 50; the envelope tells where the message went."`
	Cc        []Address  `json:"cc" doc:"Further recipients, at most 50."`
	Subject   string     `json:"subject" doc:"The subject line, at most 2,000 bytes." example:"Your order"`
	Date      *time.Time `json:"date" doc:"When it was written, as its author says; null if that can't be read."`
}

// FromHeader returns the summary of a header.
func FromHeader(h message.Header) Summary {
	e := h.Envelope()
	return New(e.MessageID, e.From, e.To, e.Cc, e.Subject, e.Date)
}

// New is FromHeader for parsed fields. A zero date means that there is none.
func New(messageID string, from, to, cc []message.Address, subject string, date time.Time) Summary {
	s := Summary{
		MessageID: CleanText(messageID, maxID), From: NewAddresses(from), To: NewAddresses(to), Cc: NewAddresses(cc), Subject: CleanText(subject, maxSubject),
	}
	if !date.IsZero() {
		date = date.UTC()
		s.Date = &date
	}
	return s
}

// NewAddresses converts at most MaxAddresses addresses of a header.
func NewAddresses(list []message.Address) []Address {
	some := make([]Address, 0, min(len(list), MaxAddresses))
	for _, a := range list[:min(len(list), MaxAddresses)] {
		some = append(some, NewAddress(a))
	}
	return some
}

// NewAddress converts an address of a header.
func NewAddress(a message.Address) Address {
	return Address{Name: apijson.NullString(CleanText(a.Name, maxAddress)), Email: CleanText(a.String(), maxAddress)}
}

// ParseAddresses returns the addresses in the text of a From or To field, in UTF-8, at most
// MaxAddresses.
func ParseAddresses(text string) []Address {
	return NewAddresses(message.ParseAddresses([]byte(text)))
}

// CleanText returns at most n bytes of s as valid UTF-8 without control characters, for JSON and
// for the database.
func CleanText(s string, n int) string {
	s = truncate(strings.ToValidUTF8(s[:min(len(s), n+utf8.UTFMax)], "\uFFFD"), n)
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// truncateEncoded truncates encoded text to at most n bytes. It cuts neither within a character,
// since then the whole text would count as another charset, nor within an encoded word.
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

// truncate truncates valid UTF-8 to at most n bytes, between two characters.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
