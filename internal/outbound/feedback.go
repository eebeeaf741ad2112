// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// feedbackIDField returns the Feedback-ID field of API mail. Google's Postmaster Tools use it to
// tell senders apart. Its four parts are the class of the mail, the From domain, an opaque name of
// the account, and the service.
func (o *Outbox) feedbackIDField(account db.ID, l *validSend) message.ExtraField {
	class := l.class
	if class == "" {
		class = "send"
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(o.Key.Subkey("feedback id"), uint64(account)))
	return message.ExtraField{Name: "Feedback-ID", Value: class + ":" + l.from.Domain + ":" + hex.EncodeToString(sum[:8]) + ":mailstead"}
}
