// SPDX-License-Identifier: Apache-2.0

// Package message parses and writes mail: RFC 5322 headers and MIME (RFC 2045 to 2049). It scans a
// message into an Index of its parts, provides the IMAP views of it, parses headers, composes mail,
// normalizes line ends, and makes 8-bit mail 7-bit.
//
// The package uses no database, network or clock. Its input is untrusted, so parsing never fails or
// panics because of a message's content, takes time linear in its size, and stops at the limits
// below.
package message

// Limits of parsing. Anything beyond them stays in the message, complete and accessible, but is not
// parsed further.
const (
	// MaxDepth is the maximum nesting of parts; a deeper multipart or message is a leaf.
	MaxDepth = 100
	// MaxParts is the maximum number of parts of a message; the last one contains everything after
	// it.
	MaxParts = 10_000
	// MaxHeader is the number of bytes of a message's own header that are parsed.
	MaxHeader = 1 << 20
	// MaxPartHeader is the number of bytes of a part's header that are parsed, even if the part is
	// a message.
	MaxPartHeader = 128 << 10
	// MaxField is the number of bytes of a field's value that are parsed.
	MaxField = 128 << 10
	// MaxAddresses is the number of addresses of a list that are parsed.
	MaxAddresses = 4_096
	// MaxReferences is the number of Message-IDs of a References field that are kept: the first and
	// the last ones.
	MaxReferences = 100

	maxParams          = 64
	maxBoundary        = 250
	maxDescription     = 1 << 20   // bytes of all texts from part headers
	maxNestedEnvelopes = 512 << 10 // bytes of all envelopes of embedded messages
	maxLineLength      = 998       // octets before CRLF, RFC 5322 §2.1.1
)
