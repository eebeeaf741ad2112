// SPDX-License-Identifier: Apache-2.0

package credential

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// Limits of a stored hash: a hostile or damaged string must not take gigabytes or minutes.
const (
	maxMemory    = 128 << 10 // KiB
	maxTime      = 10        // passes
	maxThreads   = 8
	minSalt      = 8 // bytes
	minSum       = 16
	maxFieldSize = 64 // bytes of salt, of sum
	maxPHC       = 512
)

var errPHC = errors.New("stored password hash: not an argon2id string within limits")

// hash is an argon2id hash in parts.
type hash struct {
	memory  uint32 // KiB
	time    uint32 // passes
	threads uint8
	salt    []byte
	sum     []byte
}

// String returns the hash in the PHC string format.
func (h hash) String() string {
	b := []byte("$argon2id$v=19$m=")
	b = strconv.AppendUint(b, uint64(h.memory), 10)
	b = append(b, ",t="...)
	b = strconv.AppendUint(b, uint64(h.time), 10)
	b = append(b, ",p="...)
	b = strconv.AppendUint(b, uint64(h.threads), 10)
	b = append(b, '$')
	b = base64.RawStdEncoding.AppendEncode(b, h.salt)
	b = append(b, '$')
	b = base64.RawStdEncoding.AppendEncode(b, h.sum)
	return string(b)
}

// parsePHC parses a PHC string of argon2id, version 19, with the parameters in the order m, t, p.
func parsePHC(s string) (hash, error) {
	if len(s) > maxPHC {
		return hash{}, errPHC
	}
	parts := strings.Split(s, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v=19" {
		return hash{}, errPHC
	}
	params := strings.Split(parts[3], ",")
	if len(params) != 3 {
		return hash{}, errPHC
	}
	memory, okM := parameter(params[0], "m=", maxMemory)
	time, okT := parameter(params[1], "t=", maxTime)
	threads, okP := parameter(params[2], "p=", maxThreads)
	salt, errS := base64.RawStdEncoding.DecodeString(parts[4])
	sum, errH := base64.RawStdEncoding.DecodeString(parts[5])
	switch {
	case !okM, !okT, !okP, errS != nil, errH != nil,
		memory < 8*threads, // RFC 9106 §3.1
		len(salt) < minSalt, len(salt) > maxFieldSize, len(sum) < minSum, len(sum) > maxFieldSize:
		return hash{}, errPHC
	}
	return hash{memory: memory, time: time, threads: uint8(threads), salt: salt, sum: sum}, nil
}

// parameter parses name and a decimal number from 1 to limit.
func parameter(s, name string, limit uint64) (uint32, bool) {
	digits, ok := strings.CutPrefix(s, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && n >= 1 && n <= limit
}
