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

// ticket is what we sign and somebody brings back: that it is about a mailbox
// is proven by it, and nothing is stored.
type ticket struct {
	Mailbox    db.ID
	Generation int64 // of the mailbox's log-ins; 0 where it does not matter
	Until      time.Time
}

// What tickets are for: one of a kind is none of another.
const (
	phoneTicket = "phone"   // to fetch the profile
	ownerTicket = "mailbox" // signed in as the mailbox's owner
)

const (
	ticketSize = 3 * 8
	ticketMAC  = 16
)

func (d *Dashboard) seal(kind string, t ticket) string {
	raw := binary.BigEndian.AppendUint64(nil, uint64(t.Mailbox))
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.Generation))
	raw = binary.BigEndian.AppendUint64(raw, uint64(t.Until.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(raw, d.mac(kind, raw)...))
}

func (d *Dashboard) mac(kind string, raw []byte) []byte {
	h := hmac.New(sha256.New, d.Key.Sub("dashboard "+kind))
	h.Write(raw)
	return h.Sum(nil)[:ticketMAC]
}

// open returns the ticket in a text if it is one of ours and not over.
func (d *Dashboard) open(kind, text string) (ticket, bool) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != ticketSize+ticketMAC || !hmac.Equal(raw[ticketSize:], d.mac(kind, raw[:ticketSize])) {
		return ticket{}, false
	}
	at := func(i int) int64 { return int64(binary.BigEndian.Uint64(raw[8*i:])) }
	t := ticket{Mailbox: db.ID(at(0)), Generation: at(1), Until: time.Unix(at(2), 0)}
	return t, d.Now().Before(t.Until)
}
