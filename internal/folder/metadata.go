// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// Metadata is what is stored of a message beside its bytes, so that lists
// and searches need not read these.
type Metadata struct {
	MessageID     string // with its angle brackets; "" for none
	Envelope      []byte // as IMAP shows it (message.AppendEnvelope)
	Structure     []byte // message.Index in its stored form
	ReferenceKeys []byte // what it answers, for threads; empty to have it read when it is needed
}

// maxMessageID bounds what is kept of a Message-ID, in bytes: none that is
// longer fits on a line (RFC 5322 §2.1.1).
const maxMessageID = 998

// NewMetadata makes the description of a message out of its header and index. They
// must be those of the final bytes, head and all.
func NewMetadata(h message.Header, ix *message.Index) (Metadata, error) {
	structure, err := ix.MarshalBinary()
	if err != nil {
		return Metadata{}, fmt.Errorf("storing a message's structure: %w", err)
	}
	id := h.MessageID()
	if len(id) > maxMessageID {
		id = ""
	}
	return Metadata{
		MessageID:     strings.ReplaceAll(strings.ToValidUTF8(id, "\uFFFD"), "\x00", ""),
		Envelope:      message.AppendEnvelope(nil, h),
		Structure:     structure,
		ReferenceKeys: encodeReferences(h),
	}, nil
}
