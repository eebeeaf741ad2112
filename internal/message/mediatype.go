// SPDX-License-Identifier: Apache-2.0

package message

import (
	"bytes"
	"slices"
)

// quotationMarks surround types and dispositions in some mail.
const quotationMarks = "\"'<>"

// parseContentType parses a Content-Type value leniently: the type may be in quotation marks, and
// the semicolon before parameters may be missing. typ is "" if there is no valid type, which means
// text/plain (RFC 2045 §5.2).
func parseContentType(v []byte) (typ, subtype string, params []Param) {
	v = trimSpace(v)
	if bytes.Count(v, []byte{'"'}) == 2 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	const again = "content-type:"
	if len(v) > len(again) && equalFold(v[:len(again)], again) {
		v = v[len(again):]
	}
	lead, params := parseParams(v)
	typ, subtype, rest := parseMediaType(lead)
	if bytes.IndexByte(rest, '=') > 0 {
		params = slices.Concat(parseLooseParams(rest), params)
		params = params[:min(len(params), maxParams)]
	}
	return typ, subtype, params
}

// parseMediaType parses type/subtype. rest is the text after it, or everything if there is no type.
func parseMediaType(lead []byte) (typ, subtype string, rest []byte) {
	v := bytes.TrimLeft(lead, quotationMarks+" \t\r\n\x00")
	t := firstToken(v)
	v = trimSpace(v[len(t):])
	if len(t) == 0 || len(v) == 0 || v[0] != '/' {
		if equalFold(bytes.Trim(t, quotationMarks), "text") && (len(v) == 0 || v[0] != '=') {
			return "text", "plain", v
		}
		return "", "", lead
	}
	v = trimSpace(v[1:])
	s := firstToken(v)
	rest = v[len(s):]
	s = bytes.Trim(s, quotationMarks)
	switch {
	case len(s) > 0:
		return lowerString(t), lowerString(s), rest
	case equalFold(t, "text"):
		return "text", "plain", rest
	}
	return "", "", lead
}

// parseLooseParams parses parameters separated by white space or commas.
func parseLooseParams(v []byte) []Param {
	v = bytes.TrimLeft(v, quotationMarks+",: \t\r\n")
	if bytes.IndexByte(v, '"') < 0 {
		v = bytes.Join(bytes.FieldsFunc(v, func(c rune) bool { return c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n' }), []byte{';'})
	}
	_, params := parseParams(append([]byte{';'}, v...))
	return params
}

// parseEncoding parses a Content-Transfer-Encoding value.
func parseEncoding(v []byte) string {
	name := lowerString(bytes.Trim(firstToken(bytes.TrimLeft(v, quotationMarks+" \t\r\n")), quotationMarks))
	switch name {
	case "7-bit":
		return "7bit"
	case "8-bit":
		return "8bit"
	}
	return name
}
