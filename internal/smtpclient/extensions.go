// SPDX-License-Identifier: Apache-2.0

package smtpclient

import (
	"strconv"
	"strings"
)

// Extensions are the extensions that a host announces in its reply to EHLO.
type Extensions struct {
	Pipelining          bool // RFC 2920
	EightBit            bool // 8BITMIME, RFC 6152
	UTF8                bool // SMTPUTF8, RFC 6531
	DSN                 bool // RFC 3461
	StartTLS            bool // RFC 3207
	Chunking            bool // RFC 3030
	RequireTLS          bool // RFC 8689
	EnhancedStatusCodes bool // ENHANCEDSTATUSCODES, RFC 2034

	Size    bool  // SIZE, RFC 1870
	MaxSize int64 // octets; 0: no fixed limit

	Auth []string // mechanisms in upper case, RFC 4954

	// LIMITS, RFC 9422; 0: not announced.
	MaxMessages   int // MAILMAX: transactions per connection
	MaxRecipients int // RCPTMAX: recipients per transaction
}

// parseExtensions parses the lines of a positive reply to EHLO. The first line is the host's name.
// It ignores unknown keywords.
func parseExtensions(lines []string) Extensions {
	var e Extensions
	for i, line := range lines {
		if i == 0 {
			continue
		}
		// Some old hosts announce "AUTH=LOGIN" beside or instead of "AUTH LOGIN".
		if len(line) > 5 && strings.EqualFold(line[:5], "AUTH=") {
			line = "AUTH " + line[5:]
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		e.parseKeyword(strings.ToUpper(words[0]), words[1:])
	}
	return e
}

func (e *Extensions) parseKeyword(keyword string, params []string) {
	flags := map[string]*bool{
		"PIPELINING": &e.Pipelining, "8BITMIME": &e.EightBit, "SMTPUTF8": &e.UTF8, "DSN": &e.DSN, "STARTTLS": &e.StartTLS, "CHUNKING": &e.Chunking,
		"REQUIRETLS": &e.RequireTLS, "ENHANCEDSTATUSCODES": &e.EnhancedStatusCodes, "SIZE": &e.Size,
	}
	if offered := flags[keyword]; offered != nil {
		*offered = true
	}
	switch keyword {
	case "SIZE":
		if len(params) > 0 {
			if n, err := strconv.ParseInt(params[0], 10, 64); err == nil && n > 0 {
				e.MaxSize = n
			}
		}
	case "AUTH":
		for _, p := range params {
			e.Auth = append(e.Auth, strings.ToUpper(p))
		}
	case "LIMITS":
		for _, p := range params {
			e.parseLimit(p)
		}
	}
}

func (e *Extensions) parseLimit(param string) {
	name, value, _ := strings.Cut(param, "=")
	n, err := strconv.Atoi(value)
	if err != nil || n <= 0 {
		return
	}
	switch strings.ToUpper(name) {
	case "MAILMAX":
		e.MaxMessages = n
	case "RCPTMAX":
		e.MaxRecipients = n
	}
}
