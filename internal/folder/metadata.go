// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// Metadata is what is stored about a message besides its bytes, so that lists and searches need not
// read the bytes.
type Metadata struct {
	MessageID     string // with its angle brackets; "" for none
	Envelope      []byte // as IMAP shows it (message.AppendEnvelope)
	Structure     []byte // message.Structure in its stored form
	ReferenceKeys []byte // the messages that it refers to, for threads; if empty, the header is read when needed
}

// maxMessageID limits the stored Message-ID, in bytes. A longer one does not fit on a line (RFC
// 5322 §2.1.1).
const maxMessageID = 998

// NewMetadata returns the metadata of a message from its header and index, which must be those of
// the final bytes.
func NewMetadata(h message.Header, ix *message.Structure) (Metadata, error) {
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
