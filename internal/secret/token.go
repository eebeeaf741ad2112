// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"strings"
)

// APIKeyPrefix is the prefix of API keys.
const APIKeyPrefix = "ms_"

// maxTokenSize is the maximum length that IsWellFormedToken accepts, in bytes.
const maxTokenSize = 256

const checksumSize = 4

// lowerBase32 is base32 (RFC 4648 §6) in lower case and without padding. It survives software that
// changes case, and a double click selects it.
var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// NewToken returns a random token: the prefix, then n random bytes and a checksum in lower-case
// base32. 32 bytes make 58 characters after the prefix.
func NewToken(prefix string, n int) string {
	raw := make([]byte, n, n+checksumSize)
	rand.Read(raw)
	return prefix + lowerBase32.EncodeToString(binary.BigEndian.AppendUint32(raw, checksum(prefix, raw)))
}

// IsWellFormedToken reports whether a token has the prefix and a valid checksum, so that typing
// errors and other software's tokens cost no look-up. It does not check whether the token was ever
// issued.
func IsWellFormedToken(prefix, token string) bool {
	text, ok := strings.CutPrefix(token, prefix)
	if !ok || len(token) > maxTokenSize {
		return false
	}
	raw, err := lowerBase32.DecodeString(text)
	if err != nil || len(raw) <= checksumSize || lowerBase32.EncodeToString(raw) != text {
		return false
	}
	raw, sum := raw[:len(raw)-checksumSize], raw[len(raw)-checksumSize:]
	return binary.BigEndian.Uint32(sum) == checksum(prefix, raw)
}

func checksum(prefix string, raw []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(prefix)), crc32.IEEETable, raw)
}

// HashToken returns the SHA-256 hash that is stored and looked up in place of a token. Tokens are
// random, so they need no slow hash, unlike passwords.
func HashToken(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
