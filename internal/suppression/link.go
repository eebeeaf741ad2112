// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
)

// Link is what a link to unsubscribe says. It holds all that is needed, so that
// it works for as long as the server key lives, whatever was pruned meanwhile;
// and it is sealed, so that neither logs nor histories show who it is for.
type Link struct {
	Account db.ID
	Message db.ID // with which it was sent
	Address string
}

const (
	linkPurpose = "unsubscribe"
	linkIDs     = 16  // two ids
	maxLink     = 512 // of a token, in characters
)

var linkText = base64.RawURLEncoding

// URL returns the address of a link's page.
func (l *List) URL(k Link) string {
	plain := make([]byte, 0, linkIDs+len(k.Address))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Account))
	plain = binary.BigEndian.AppendUint64(plain, uint64(k.Message))
	return l.Base + "/u/" + linkText.EncodeToString(l.Key.Seal(linkPurpose, append(plain, k.Address...)))
}

// Open reads the token of a link; false for what was never given out.
func (l *List) Open(token string) (Link, bool) {
	if len(token) > maxLink {
		return Link{}, false
	}
	sealed, err := linkText.Strict().DecodeString(token)
	if err != nil {
		return Link{}, false
	}
	plain, err := l.Key.Open(linkPurpose, sealed)
	if err != nil || len(plain) < linkIDs {
		return Link{}, false
	}
	k := Link{
		Account: db.ID(binary.BigEndian.Uint64(plain)), Message: db.ID(binary.BigEndian.Uint64(plain[8:])), Address: string(plain[linkIDs:]),
	}
	_, err = address.Parse(k.Address)
	return k, err == nil
}
