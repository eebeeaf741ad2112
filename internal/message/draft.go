// SPDX-License-Identifier: Apache-2.0

package message

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/fault"
)

// maxOwnReferences is the number of Message-IDs in References of composed mail: the first and the
// last ones.
const maxOwnReferences = 20

// Draft is a mail to compose. It has no Bcc, since blind recipients are only in the envelope. Texts
// are UTF-8; invalid bytes become U+FFFD. CR, LF and NUL are rejected in header values.
type Draft struct {
	Date        time.Time
	MessageID   string // with angle brackets
	From        Address
	ReplyTo     []Address
	To, Cc      []Address
	Subject     string
	InReplyTo   string   // with angle brackets; empty for none
	References  []string // with angle brackets; of more than 20, the first and the last 19 are written
	Unsubscribe ListUnsubscribe
	ExtraFields []ExtraField // such as X- fields, in order
	Text, HTML  string       // either may be empty, with any line ends
	Attachments []Attachment

	// Boundary returns a new boundary for each multipart: random if nil.
	Boundary func() string
}

// ExtraField is a header field with an unstructured value.
type ExtraField struct{ Name, Value string }

// ListUnsubscribe is how to leave a list (RFC 2369). An https URL also gets the one-click field of
// RFC 8058. Empty fields are left out.
type ListUnsubscribe struct {
	URL, Mailto string
	OneClick    bool // also for a URL without https, such as that of a local sandbox
}

// Attachment is a file attached to a draft.
type Attachment struct {
	Filename    string // at most 255 bytes; empty for none
	ContentType string // with parameters, if any; empty: from the file name's extension
	ContentID   string // with or without angle brackets
	Inline      bool   // shown in place; with a ContentID, as part of the HTML
	// Open returns the content from its start. It is called once, or twice for a message/…
	// attachment.
	Open func() (io.ReadCloser, error)
}

// isReservedField reports whether Compose, a signer or a mail server writes a field. An ExtraField
// must not have its name.
func isReservedField(name string) bool {
	switch strings.ToLower(name) {
	case "date", "from", "sender", "reply-to", "to", "cc", "bcc", "subject", "message-id", "in-reply-to",
		"references", "list-unsubscribe", "list-unsubscribe-post", "mime-version", "received", "return-path",
		"delivered-to", "dkim-signature", "authentication-results", "resent-bcc", "resent-from", "resent-to",
		"resent-cc", "resent-sender", "resent-date", "resent-message-id":
		return true
	}
	return len(name) >= 8 && strings.EqualFold(name[:8], "content-") ||
		len(name) >= 4 && strings.EqualFold(name[:4], "arc-")
}

// Check returns all problems of the draft as an Invalid error, with the API's field names. The
// error contains no values.
func (d *Draft) Check() error {
	var bad fault.FieldErrors
	header := func(field, value string) {
		if strings.ContainsAny(value, "\r\n\x00") {
			bad.Add(field, "control_character", "Line breaks and NUL are not allowed here.")
		}
	}
	one := func(field, name string, a Address) {
		header(name, a.Name)
		if !a.valid() {
			bad.Add(field, "address", "This is not an e-mail address.")
		}
	}
	one("from_email", "from_name", d.From)
	for _, l := range []struct {
		field string
		list  []Address
	}{{"reply_to", d.ReplyTo}, {"to", d.To}, {"cc", d.Cc}} {
		for i, a := range l.list {
			field := fmt.Sprintf("%s[%d]", l.field, i)
			one(field, field, a)
		}
	}
	header("subject", d.Subject)
	id := func(field, id string) {
		if !isValidMessageID(id) {
			bad.Add(field, "message_id", "A Message-ID looks like <id@domain>.")
		}
	}
	id("message_id", d.MessageID)
	if d.InReplyTo != "" {
		id("in_reply_to", d.InReplyTo)
	}
	for i, r := range d.References {
		id(fmt.Sprintf("references[%d]", i), r)
	}
	uri := func(field, uri string) {
		if !isPrintableASCII(uri) || strings.ContainsAny(uri, " <>,") || len(uri) > 900 {
			bad.Add(field, "uri", "This must be a URI of at most 900 characters.")
		}
	}
	uri("unsubscribe.url", d.Unsubscribe.URL)
	uri("unsubscribe.mailto", d.Unsubscribe.Mailto)
	for _, f := range d.ExtraFields {
		if !isValidFieldName(f.Name) || isReservedField(f.Name) {
			bad.Add("headers", "name", "A header has a name that is not allowed.")
			continue
		}
		header("headers."+f.Name, f.Value)
	}
	for i := range d.Attachments {
		d.Attachments[i].check(&bad, fmt.Sprintf("attachments[%d].", i))
	}
	return bad.Err()
}

func (a *Attachment) check(bad *fault.FieldErrors, at string) {
	if strings.ContainsAny(a.Filename, "\r\n\x00") || len(a.Filename) > 255 {
		bad.Add(at+"filename", "filename", "A file name is at most 255 bytes, without line breaks and NUL.")
	}
	if a.ContentType != "" {
		typ, _, _ := parseContentType([]byte(a.ContentType))
		lead, params := parseParams([]byte(a.ContentType))
		t, s, ok := strings.Cut(string(lead), "/")
		ok = ok && isToken([]byte(t)) && isToken([]byte(s)) && typ != "multipart" && len(a.ContentType) <= 255
		for _, p := range params {
			ok = ok && isPrintableASCII(p.Value)
		}
		if !ok || !isPrintableASCII(a.ContentType) {
			bad.Add(at+"content_type", "media_type", "This must be a media type such as image/png, and no multipart.")
		}
	}
	if a.ContentID != "" && (!isValidMessageID(a.contentID()) || !isPrintableASCII(a.ContentID) || len(a.ContentID) > 255) {
		bad.Add(at+"content_id", "content_id", "A content id is at most 255 printable characters without spaces and angle brackets.")
	}
}

// contentID returns the Content-ID with angle brackets, or "".
func (a *Attachment) contentID() string {
	if a.ContentID == "" || strings.HasPrefix(a.ContentID, "<") && strings.HasSuffix(a.ContentID, ">") {
		return a.ContentID
	}
	return "<" + a.ContentID + ">"
}

// valid reports whether the address can be in a header, not whether it can receive mail.
func (a Address) valid() bool {
	if a.Local == "" || a.Domain == "" || len(a.Local) > 255 || len(a.Domain) > 255 ||
		!utf8.ValidString(a.Local) || !utf8.ValidString(a.Domain) {
		return false
	}
	for i := range len(a.Local) {
		if a.Local[i] < ' ' || a.Local[i] == 0x7f {
			return false
		}
	}
	if inner, ok := strings.CutPrefix(a.Domain, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && isPrintableASCII(inner) && !strings.ContainsAny(inner, `[]\ `)
	}
	return isDotAtom(a.Domain)
}

// nonASCII reports whether the address needs SMTPUTF8.
func (a Address) nonASCII() bool { return !isASCII(a.Local) || !isASCII(a.Domain) }

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// isValidMessageID reports whether id is a usual Message-ID, without spaces.
func isValidMessageID(id string) bool {
	return len(id) > 2 && len(id) <= 900 && id[0] == '<' && id[len(id)-1] == '>' && utf8.ValidString(id) &&
		!strings.ContainsFunc(id[1:len(id)-1], func(r rune) bool { return r <= ' ' || r == 0x7f || r == '<' || r == '>' })
}

func isValidFieldName(name string) bool {
	return len(name) <= maxEncodedWord && nameLength([]byte(name+":")) == len(name) && name != ""
}
