// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// The local part of a return path, or of an unsubscribe address, is the prefix and 160 bits in
// base32: the message's id (64), the recipient's number (16), and an HMAC-SHA256 over both,
// truncated to 80 bits. Each purpose has its own key.
const (
	returnPathPrefix   = "b-"
	returnPathTextSize = 32
	returnPathIDSize   = 10
	returnPathMACSize  = 10
)

// MaxRecipient is the largest recipient number that a return path can carry.
const MaxRecipient = 1<<16 - 1

// ReturnPath returns the local part of the envelope sender for the delivery of message id to its
// recipient n (0 to MaxRecipient). It is 34 octets, the same each time, and others can't guess it.
// It panics if n is out of range.
func (k *Key) ReturnPath(id int64, n int) string { return signedPath(k.returnPath, id, n) }

// ParseReturnPath returns the message id and the recipient number of a local part from ReturnPath;
// ok is false for anything else. It ignores case, since other servers don't always preserve it.
func (k *Key) ParseReturnPath(local string) (id int64, n int, ok bool) {
	return parsePath(k.returnPath, local)
}

// UnsubscribePath returns the local part of the address by which recipient n of message id
// unsubscribes. It has the form of a return path, but never equals one.
func (k *Key) UnsubscribePath(id int64, n int) string { return signedPath(k.unsubscribe, id, n) }

// ParseUnsubscribePath parses a local part from UnsubscribePath, as ParseReturnPath does.
func (k *Key) ParseUnsubscribePath(local string) (id int64, n int, ok bool) {
	return parsePath(k.unsubscribe, local)
}

func signedPath(key []byte, id int64, n int) string {
	if n < 0 || n > MaxRecipient {
		panic("secret: recipient number out of range")
	}
	raw := make([]byte, 0, returnPathIDSize+sha256.Size)
	raw = binary.BigEndian.AppendUint64(raw, uint64(id))
	raw = binary.BigEndian.AppendUint16(raw, uint16(n))
	raw = appendReturnPathMAC(key, raw)
	return returnPathPrefix + lowerBase32.EncodeToString(raw)
}

func parsePath(key []byte, local string) (id int64, n int, ok bool) {
	if len(local) != len(returnPathPrefix)+returnPathTextSize {
		return 0, 0, false
	}
	text, ok := strings.CutPrefix(strings.ToLower(local), returnPathPrefix)
	if !ok {
		return 0, 0, false
	}
	raw, err := lowerBase32.DecodeString(text)
	if err != nil || len(raw) != returnPathIDSize+returnPathMACSize { // changing the case can shorten a text
		return 0, 0, false
	}
	want := appendReturnPathMAC(key, append(make([]byte, 0, returnPathIDSize+sha256.Size), raw[:returnPathIDSize]...))
	if !hmac.Equal(raw, want) {
		return 0, 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), int(binary.BigEndian.Uint16(raw[8:])), true
}

// IsReturnOrUnsubscribePath reports whether a local part has the reserved prefix of return paths
// and unsubscribe addresses. Mailboxes and aliases can't have it.
func IsReturnOrUnsubscribePath(local string) bool {
	return len(local) >= len(returnPathPrefix) && strings.EqualFold(local[:len(returnPathPrefix)], returnPathPrefix)
}

// appendReturnPathMAC appends the truncated MAC to the ten bytes that identify a delivery.
func appendReturnPathMAC(key, name []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(name)
	return mac.Sum(name)[:len(name)+returnPathMACSize]
}
