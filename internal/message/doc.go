// SPDX-License-Identifier: Apache-2.0

// Package message knows the bytes of a mail: RFC 5322 headers and MIME
// (RFC 2045 to 2049). It scans a message into an Index of its parts, gives
// the IMAP views of it, reads headers, composes mail, mends line ends and
// makes 8-bit mail 7-bit.
//
// It is pure: no database, no network, no clock. What it reads may come from
// anyone, so reading never fails and never panics on what a message holds,
// takes time linear in its size, and stops at the limits named here.
package message

// The limits of attention. What lies beyond them stays in the message, whole
// and reachable, but is not taken apart any further.
const (
	// MaxNameLevels is how deep parts may nest; a deeper multipart or message is a leaf.
	MaxDepth = 100
	// MaxParts is how many parts of a message are told apart; the last one
	// holds all that follows.
	MaxParts = 10_000
	// MaxHeader is how many bytes of a message's own header are read for fields.
	MaxHeader = 1 << 20
	// MaxPartHeader is how many bytes of a part's header are read, also when the part
	// is a message.
	MaxPartHeader = 128 << 10
	// MaxField is how many bytes of one field's value are read.
	MaxField = 128 << 10
	// MaxAddresses is how many addresses of a list are read.
	MaxAddresses = 4_096
	// MaxReferences is how many Message-IDs of a References field are kept:
	// the first and the last ones.
	MaxReferences = 100

	maxParams          = 64
	maxBoundary        = 250
	maxDescription     = 1 << 20   // bytes of all texts that describe parts
	maxNestedEnvelopes = 512 << 10 // bytes of all envelopes of embedded messages
	maxLineLength      = 998       // octets before CRLF, RFC 5322 §2.1.1
)
