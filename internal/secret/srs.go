// SPDX-License-Identifier: Apache-2.0

package secret

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A forwarded message's return path is SRS0=MAC=DAY=DOMAIN=LOCAL: the original sender's address,
// the day, and an HMAC-SHA256 over them and the forwarding account and domain, truncated to 50
// bits. So nobody can make a domain forward a bounce of mail that it did not forward, and a later
// account with the same domain is distinguished.
const (
	srsPrefix     = "SRS0="
	srsMACSize    = 10 // letters
	srsDayModulus = 32 * 32
	srsMaxAgeDays = 21 // days, see SRSMaxAge
	maxLocalPart  = 64 // octets (RFC 5321 §4.5.3.1.1)
)

// SRSMaxAge is how long bounces of a forwarded message are accepted.
const SRSMaxAge = srsMaxAgeDays * 24 * time.Hour

// srsDigits are the digits of a day, which has two of them.
const srsDigits = "abcdefghijklmnopqrstuvwxyz234567"

// SRS returns the local part of the return path, at an account's domain by, of a forwarded message
// from local@domain. ok is false if other hosts would not accept it, as the address is too long or
// needs quoting or UTF-8.
func (k *Key) SRS(account int64, by, local, domain string, now time.Time) (path string, ok bool) {
	for _, c := range []byte(local) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '@' {
			return "", false
		}
	}
	day := srsDay(now)
	stamp := string([]byte{srsDigits[day>>5], srsDigits[day&31]})
	path = srsPrefix + k.signSRS(forwarderID(account, by), stamp, domain, local) + "=" + stamp + "=" + domain + "=" + local
	return path, len(path) <= maxLocalPart
}

// ParseSRS returns the original sender of a message that an account's domain by forwarded with a
// return path. ok is false for paths that SRS did not make for them within three weeks. It ignores
// case, since other servers don't always preserve it. Older releases made paths without an account,
// or without a domain; these are accepted until they expire.
func (k *Key) ParseSRS(account int64, by, path string, now time.Time) (local, domain string, ok bool) {
	if !IsSRS(path) || len(path) > maxLocalPart {
		return "", "", false
	}
	parts := strings.SplitN(path[len(srsPrefix):], "=", 4)
	if len(parts) != 4 || len(parts[1]) != 2 {
		return "", "", false
	}
	given := []byte(strings.ToLower(parts[0]))
	if !slices.ContainsFunc([]string{forwarderID(account, by), by, ""}, func(by string) bool {
		return hmac.Equal(given, []byte(k.signSRS(by, parts[1], parts[2], parts[3])))
	}) {
		return "", "", false
	}
	stamp := strings.ToLower(parts[1])
	day := strings.IndexByte(srsDigits, stamp[0])<<5 | strings.IndexByte(srsDigits, stamp[1])
	if age := (srsDay(now) - day + srsDayModulus) % srsDayModulus; age > srsMaxAgeDays {
		return "", "", false
	}
	return parts[3], strings.ToLower(parts[2]), true
}

// IsSRS reports whether a local part has the prefix of forwarded messages' return paths.
func IsSRS(local string) bool {
	return len(local) >= len(srsPrefix) && strings.EqualFold(local[:len(srsPrefix)], srsPrefix)
}

func srsDay(t time.Time) int { return int(t.Unix()/(24*60*60)) % srsDayModulus }

// forwarderID identifies the forwarding account and domain.
func forwarderID(account int64, by string) string { return strconv.FormatInt(account, 10) + "@" + by }

// signSRS returns the MAC for a forwarder, or with "" for any.
func (k *Key) signSRS(by, stamp, domain, local string) string {
	mac := hmac.New(sha256.New, k.Subkey("srs"))
	text := stamp + "=" + domain + "=" + local
	if by != "" {
		text = by + "@" + text // neither a domain nor a day has an @
	}
	mac.Write([]byte(strings.ToLower(text)))
	return lowerBase32.EncodeToString(mac.Sum(nil))[:srsMACSize]
}

// storedSRSMark follows the prefix in a path of StoredSRS.
const storedSRSMark = "p="

// StoredSRS is SRS for senders that SRS can't encode: id is the row in which the forwarded
// message's sender is stored.
func (k *Key) StoredSRS(account int64, by string, id int64) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(id))
	return srsPrefix + storedSRSMark + lowerBase32.EncodeToString(k.signStoredID(account, by, raw))
}

// ParseStoredSRS returns the id in a path of StoredSRS for the same account and domain; ok is false
// for anything else. It ignores case.
func (k *Key) ParseStoredSRS(account int64, by, path string) (id int64, ok bool) {
	text, ok := strings.CutPrefix(strings.ToLower(path), strings.ToLower(srsPrefix)+storedSRSMark)
	if !ok {
		return 0, false
	}
	raw, err := lowerBase32.DecodeString(text)
	if err != nil || len(raw) != 8+returnPathMACSize || !hmac.Equal(raw, k.signStoredID(account, by, raw[:8])) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(raw)), true
}

// signStoredID appends the truncated MAC to the bytes of an id.
func (k *Key) signStoredID(account int64, by string, id []byte) []byte {
	mac := hmac.New(sha256.New, k.Subkey("srs"))
	mac.Write([]byte("stored " + strings.ToLower(forwarderID(account, by)) + " "))
	mac.Write(id)
	return mac.Sum(id[:len(id):len(id)])[:len(id)+returnPathMACSize]
}
