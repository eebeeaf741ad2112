// SPDX-License-Identifier: Apache-2.0

package mailauth

import (
	"bytes"
	"strings"
)

// AppendField appends an Authentication-Results field with all results (RFC 8601), in CRLF. server
// is the authserv-id.
func (j *Results) AppendField(dst []byte, server string) []byte {
	w := resultsWriter{dst: append(append(dst, "Authentication-Results: "...), server...)}
	w.method("iprev", j.IPRev.Result, "")
	if j.IPRev.Addr.IsValid() {
		w.property("policy.iprev", j.IPRev.Addr.String())
	}
	if j.IPRev.Name != "" {
		w.comment(j.IPRev.Name)
	}
	w.method("spf", j.SPF.Result, j.SPF.Reason)
	if j.SPF.FromHelo {
		w.property("smtp.helo", j.SPF.Domain)
	} else {
		w.property("smtp.mailfrom", j.SPF.Domain)
	}
	if len(j.DKIM) == 0 {
		w.method("dkim", None, "")
	}
	for _, d := range j.DKIM {
		w.method("dkim", d.Result, d.Reason)
		w.property("header.d", d.Domain)
		w.property("header.s", d.Selector)
		w.property("header.a", d.Algorithm)
		w.property("header.b", d.SignaturePrefix)
	}
	if j.ARC.Result != None {
		w.method("arc", j.ARC.Result, j.ARC.Reason)
	}
	w.method("dmarc", j.DMARC.Result, j.DMARC.Reason)
	if j.DMARC.TrustedSealer != "" {
		w.comment("believed, as " + j.DMARC.TrustedSealer + " has seen it pass")
	} else if j.DMARC.Policy != PolicyNone && j.DMARC.AuthorProblem == "" {
		w.comment("p=" + string(j.DMARC.Policy))
	}
	w.property("header.from", j.DMARC.AuthorDomain)
	return append(w.dst, "\r\n"...)
}

// resultsWriter writes one method per line.
type resultsWriter struct{ dst []byte }

func (w *resultsWriter) method(name string, r Result, reason string) {
	w.dst = append(append(append(w.dst, ";\r\n\t"...), name...), '=')
	w.dst = append(w.dst, r...)
	if reason != "" {
		w.space(len(reason) + 9)
		w.dst = append(append(w.dst, "reason="...), quoteString(reason)...)
	}
}

// maxPropertyValue is the maximum length of a sender's text, in bytes; no name is longer.
const maxPropertyValue = 255

// space appends a space before n more bytes, or a fold if they don't fit on this line.
func (w *resultsWriter) space(n int) {
	if at := bytes.LastIndexByte(w.dst, '\n'); len(w.dst)-at+n > 78 {
		w.dst = append(w.dst, "\r\n\t\t"...)
		return
	}
	w.dst = append(w.dst, ' ')
}

func (w *resultsWriter) property(name, value string) {
	if value == "" {
		return
	}
	value = value[:min(len(value), maxPropertyValue)]
	w.space(len(name) + len(value) + 1)
	w.dst = append(append(w.dst, name...), '=')
	for i := range len(value) {
		if c := value[i]; c != '.' && c != '+' && isInvalidNameRune(rune(c)) {
			value = quoteString(value)
			break
		}
	}
	w.dst = append(w.dst, value...)
}

// comment appends a comment, with brackets and backslashes replaced.
func (w *resultsWriter) comment(text string) {
	text = strings.Map(replaceUnsafe, text[:min(len(text), maxPropertyValue)])
	w.space(len(text) + 2)
	w.dst = append(append(append(w.dst, '('), text...), ')')
}

// quoteString returns a quoted string of plain ASCII.
func quoteString(s string) string {
	return `"` + strings.Map(replaceUnsafe, s[:min(len(s), maxPropertyValue)]) + `"`
}

// replaceUnsafe replaces characters that would need an escape by a question mark.
func replaceUnsafe(r rune) rune {
	if r < ' ' || r > '~' || strings.ContainsRune(`"\()`, r) {
		return '?'
	}
	return r
}
