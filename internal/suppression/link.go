// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
)

// UnsubscribeLink is the content of an unsubscribe link. It contains all that is needed, so that it
// works as long as the server key exists, even after data was pruned. It is sealed, so that neither
// logs nor browser histories show the recipient.
type UnsubscribeLink struct {
	Account db.ID
	Message db.ID // the message with the link
	Address string
}

const (
	linkPurpose  = "unsubscribe"
	linkIDBytes  = 16  // size of two ids
	maxLinkToken = 512 // maximum length of a token, in characters
)

var linkEncoding = base64.RawURLEncoding

// UnsubscribeURL returns the URL of a link's page.
func (l *List) UnsubscribeURL(k UnsubscribeLink) string {
	plain := make([]byte, 0, linkIDBytes+len(k.Address))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Account))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Message))
	return l.BaseURL + "/u/" + linkEncoding.EncodeToString(l.Key.Seal(linkPurpose, append(plain, k.Address...)))
}

// ParseLink parses the token of a link; false if this service didn't create it.
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
