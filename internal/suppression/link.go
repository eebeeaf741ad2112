// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
)

// UnsubscribeLink is what a link to unsubscribe says. It holds all that is needed, so that
// it works for as long as the server key lives, whatever was pruned meanwhile;
// and it is sealed, so that neither logs nor histories show who it is for.
type UnsubscribeLink struct {
	Account db.ID
	Message db.ID // with which it was sent
	Address string
}

const (
	linkPurpose  = "unsubscribe"
	linkIDBytes  = 16  // two ids
	maxLinkToken = 512 // of a token, in characters
)

var linkEncoding = base64.RawURLEncoding

// UnsubscribeURL returns the address of a link's page.
func (l *List) UnsubscribeURL(k UnsubscribeLink) string {
	plain := make([]byte, 0, linkIDBytes+len(k.Address))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Account))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Message))
	return l.BaseURL + "/u/" + linkEncoding.EncodeToString(l.Key.Seal(linkPurpose, append(plain, k.Address...)))
}

// ParseLink reads the token of a link; false for what was never given out.
func (l *List) ParseLink(token string) (UnsubscribeLink, bool) {
	if len(token) > maxLinkToken {
		return UnsubscribeLink{}, false
	}
	sealed, err := linkEncoding.Strict().DecodeString(token)
	if err != nil {
		return UnsubscribeLink{}, false
	}
	plain, err := l.Key.Open(linkPurpose, sealed)
	if err != nil || len(plain) < linkIDBytes {
		return UnsubscribeLink{}, false
	}
	k := UnsubscribeLink{
		Account: db.ID(binary.BigEndian.Uint64(plain)), Message: db.ID(binary.BigEndian.Uint64(plain[8:])), Address: string(plain[linkIDBytes:]),
	}
	_, err = address.Parse(k.Address)
	return k, err == nil
}
