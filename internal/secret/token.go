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

// APIKey is the prefix of API keys.
const APIKey = "ms_"

// maxToken bounds what WellFormed looks at, in bytes.
const maxToken = 256

const checksumSize = 4

// lower is base32 (RFC 4648 §6) in lower case and without padding: it
// survives software that changes case, and is selected by a double click.
var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Token returns a fresh token: the prefix, then n random bytes and a checksum
// in lower-case base32. 32 bytes make 58 characters after the prefix.
func Token(prefix string, n int) string {
	raw := make([]byte, n, n+checksumSize)
	rand.Read(raw)
	return prefix + lower.EncodeToString(binary.BigEndian.AppendUint32(raw, checksum(prefix, raw)))
}

// WellFormed reports whether a token has the prefix and a true checksum, so
// that typing errors and other software's tokens cost no look-up. It says
// nothing about whether the token was ever given out.
func WellFormed(prefix, token string) bool {
	text, ok := strings.CutPrefix(token, prefix)
	if !ok || len(token) > maxToken {
		return false
	}
	raw, err := lower.DecodeString(text)
	if err != nil || len(raw) <= checksumSize || lower.EncodeToString(raw) != text {
		return false
	}
	raw, sum := raw[:len(raw)-checksumSize], raw[len(raw)-checksumSize:]
	return binary.BigEndian.Uint32(sum) == checksum(prefix, raw)
}

func checksum(prefix string, raw []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE([]byte(prefix)), crc32.IEEETable, raw)
}

// Hash returns what is stored and looked up in place of a token (SHA-256).
// Tokens are random, so that no slow hash is needed; passwords are not.
func Hash(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}
