// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/smtpclient"
)

// RcptOptions are the DSN options of a recipient (RFC 3461 §4).
type RcptOptions struct {
	Notify smtpclient.Notify // 0: not given
	ORCPT  string            // ORCPT as "rfc822;a@b", decoded; "": not given
}

// Maximum lengths of the parameter values, as encoded in the command (RFC 3461 §4.2, §4.4).
const (
	maxEnvID = 100
	maxORCPT = 500
)

// offersDSN reports whether the server offers DSN: only on submission, since we send no DSNs for
// other hosts.
func (c *conn) offersDSN() bool { return c.srv.Mode != MX }

// parseDSNParam parses RET and ENVID of MAIL. known is false for other parameters.
func (e *Envelope) parseDSNParam(p param) (r reply, known bool) {
	switch p.name {
	case "RET":
		switch value := strings.ToUpper(p.value); value {
		case "FULL", "HDRS":
			e.Ret = value
		default:
			return reply{501, "5.5.4", "RET is FULL or HDRS"}, true
		}
	case "ENVID":
		id, good := decodeXtext(p.value)
		if !good || len(p.value) > maxEnvID || !isPrintable(id, false) {
			return reply{501, "5.5.4", "ENVID is xtext of 1 to 100 characters (RFC 3461, section 4.4)"}, true
		}
		e.EnvID = id
	default:
		return reply{}, false
	}
	return reply{}, true
}

// parseRcptOptions parses the parameters of RCPT. It returns the zero reply if they are valid.
func (c *conn) parseRcptOptions(s string) (w RcptOptions, r reply) {
	params, good := parseParams(s)
	if !good {
		return w, reply{501, "5.5.4", "A parameter is given twice"}
	}
	for _, p := range params {
		switch {
		case p.name == "NOTIFY" && c.offersDSN():
			if w.Notify, good = parseNotify(p.value); !good {
				return w, reply{501, "5.5.4", "NOTIFY is NEVER, or a list of SUCCESS, FAILURE and DELAY"}
			}
		case p.name == "ORCPT" && c.offersDSN():
			if w.ORCPT, good = parseORCPT(p.value); !good {
				return w, reply{501, "5.5.4", "ORCPT is a type, a semicolon, and an address in xtext, of 500 characters at most (RFC 3461, section 4.2)"}
			}
		default:
			return w, reply{555, "5.5.4", "There is no such parameter"}
		}
	}
	return w, reply{}
}

// parseNotify parses the value of NOTIFY (RFC 3461 §4.1).
func parseNotify(s string) (n smtpclient.Notify, good bool) {
	for word := range strings.SplitSeq(s, ",") {
		bit := smtpclient.Notify(0)
		switch strings.ToUpper(word) {
		case "NEVER":
			bit = smtpclient.NotifyNever
		case "SUCCESS":
			bit = smtpclient.NotifySuccess
		case "FAILURE":
			bit = smtpclient.NotifyFailure
		case "DELAY":
			bit = smtpclient.NotifyDelay
		}
		if bit == 0 || n&bit != 0 {
			return 0, false
		}
		n |= bit
	}
	return n, n == smtpclient.NotifyNever || n&smtpclient.NotifyNever == 0
}

// parseORCPT parses and decodes the value of ORCPT (RFC 3461 §4.2, RFC 6533 §3).
func parseORCPT(s string) (original string, good bool) {
	kind, text, found := strings.Cut(s, ";")
	if !found || len(s) > maxORCPT || !isAddressType(kind) {
		return "", false
	}
	kind = strings.ToLower(kind)
	international := kind == "utf-8"
	if international {
		if text, good = decodeUTF8Address(text); !good {
			return "", false
		}
	}
	addr, good := decodeXtext(text)
	if !good || !isPrintable(addr, international) {
		return "", false
	}
	return kind + ";" + addr, true
}

// isAddressType reports whether s is an atom, as address types are.
func isAddressType(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

// decodeXtext decodes xtext (RFC 3461 §4). It keeps octets above 127, which occur only in addresses
// of type utf-8.
func decodeXtext(s string) (text string, good bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			if i+2 >= len(s) {
				return "", false
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(n))
			i += 2
		case c <= ' ' || c == '=' || c == 0x7f:
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), b.Len() > 0
}

// decodeUTF8Address replaces each \x{HEX} in an address of type utf-8 with its character. It writes
// ASCII characters as xtext, so that those special in xtext stay encoded.
func decodeUTF8Address(s string) (text string, good bool) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, `\`)
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		hex, after, closed := strings.Cut(rest, "}")
		digits, opened := strings.CutPrefix(hex, "x{")
		n, err := strconv.ParseUint(digits, 16, 21)
		if !closed || !opened || err != nil || len(digits) < 2 || !utf8.ValidRune(rune(n)) {
			return "", false
		}
		if n < utf8.RuneSelf {
			b.WriteString("+" + strings.ToUpper(strconv.FormatUint(0x100|n, 16)[1:]))
		} else {
			b.WriteRune(rune(n))
		}
		s = after
	}
}

// isPrintable reports whether text can be used in a DSN (RFC 3461 §4.2): it has only printable
// ASCII characters, or, if international, only printable characters.
func isPrintable(s string, international bool) bool {
	if international {
		return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
