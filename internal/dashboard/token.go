// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/mailstead/mailstead/internal/db"
)

// signedToken is a signed statement about a mailbox that a browser or phone brings back. Nothing is
// stored for it.
type signedToken struct {
	Mailbox    db.ID
	Generation int64 // generation of the mailbox's log-ins; 0 if irrelevant
	ExpiresAt  time.Time
}

// Kinds of tokens. A token of one kind is not valid for another.
const (
	phoneTokenKind = "phone"   // to fetch the profile
	ownerTokenKind = "mailbox" // signed in as the mailbox owner
)

const (
	tokenSize    = 3 * 8
	tokenMACSize = 16
)

func (d *Dashboard) signToken(kind string, t signedToken) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(t.Mailbox))
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.Generation))
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.ExpiresAt.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(raw, d.mac(kind, raw)...))
}

func (d *Dashboard) mac(kind string, raw []byte) []byte {
	h := hmac.New(sha256.New, d.SigningKey.Subkey("dashboard "+kind))
	h.Write(raw)
	return h.Sum(nil)[:tokenMACSize]
}

// verifyToken returns the token in a text if it has a valid signature and has not expired.
func (d *Dashboard) verifyToken(kind, text string) (signedToken, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != tokenSize+tokenMACSize || !hmac.Equal(raw[tokenSize:], d.mac(kind, raw[:tokenSize])) {
		return signedToken{}, false
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(raw[8*i:])) }
	t := signedToken{Mailbox: db.ID(at(0)), Generation: at(1), ExpiresAt: time.Unix(at(2), 0)}
	return t, d.Now().Before(t.ExpiresAt)
}
