// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"strings"
)

// A return path, and an address to unsubscribe, is the prefix and 160 bits in base32:
// the message's id (64), the recipient's number (16), and an HMAC-SHA256 over both cut
// to 80 bits, by a key of its purpose.
const (
	returnPathPrefix   = "b-"
	returnPathTextSize = 32
	returnPathIDSize   = 10
	returnPathMACSize  = 10
)

// MaxRecipient is the largest recipient number that a return path can carry.
const MaxRecipient = 1<<16 - 1

// ReturnPath returns the local part of the envelope sender for the delivery of
// message id to its recipient n (0 to MaxRecipient): 34 octets, the same each
// time, and not to be guessed by others. A recipient number out of range is a
// fault in the caller and panics.
func (k *Key) ReturnPath(id int64, n int) string { return signedPath(k.returnPath, id, n) }

// ParseReturnPath returns the delivery that a local part made by ReturnPath
// names; ok is false for anything else. Case is ignored, since other servers
// do not always keep it.
func (k *Key) ParseReturnPath(local string) (id int64, n int, ok bool) {
	return parsePath(k.returnPath, local)
}

// UnsubscribePath returns the local part of the address by which recipient n of
// message id unsubscribes. It is like a return path, and is never one.
func (k *Key) UnsubscribePath(id int64, n int) string { return signedPath(k.unsubscribe, id, n) }

// ParseUnsubscribePath is for UnsubscribePath what ParseReturnPath is for ReturnPath.
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
	raw = appendMAC(key, raw)
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
	if err != nil || len(raw) != returnPathIDSize+returnPathMACSize { // folding case can shorten a text
		return 0, 0, false
	}
	want := appendMAC(key, append(make([]byte, 0, returnPathIDSize+sha256.Size), raw[:returnPathIDSize]...))
	if !hmac.Equal(raw, want) {
		return 0, 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), int(binary.BigEndian.Uint16(raw[8:])), true
}

// IsReturnPath reports whether a local part has the reserved prefix of return
// paths and of addresses to unsubscribe; nobody may own such an address.
func IsReturnPath(local string) bool {
	return len(local) >= len(returnPathPrefix) && strings.EqualFold(local[:len(returnPathPrefix)], returnPathPrefix)
}

// appendMAC appends the truncated MAC to the ten bytes that name a delivery.
func appendMAC(key, name []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(name)
	return mac.Sum(name)[:len(name)+returnPathMACSize]
}
