// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/message"
)

const nulTraits = message.HasNUL | message.HeaderNUL

// encodeNUL converts a message that came as a literal8 so that BODY[…] can show it: it stores parts
// with NUL as base64, and BINARY[…] returns them as they came (RFC 3516 §4.4, §6). Where that is
// impossible, as in a header or below a signature, it stores nothing. It takes ownership of b.
func (s *session) encodeNUL(b *blob.Blob, scan *message.Scanner) (*blob.Blob, *message.Scanner, error) {
	index := scan.Finish()
	if !index.Has(nulTraits) {
		return b, scan, nil
	}
	defer b.Discard(s.ctx())
	src, err := b.Open(s.ctx())
	if err != nil {
		return nil, nil, err
	}
	defer src.Close() //nolint:errcheck // nothing was written
	to := s.Blobs.Create(s.ctx())
	defer to.Abort()
	scan = &message.Scanner{}
	if err := message.EncodeNUL(io.MultiWriter(to, scan), src, index); err != nil {
		return nil, nil, err
	}
	switch index = scan.Finish(); {
	case index.Has(nulTraits):
		return nil, nil, no(wire.CodeUnknownCTE, "The message holds NUL where it cannot be encoded.")
	case to.Size() > MaxMessageBytes:
		return nil, nil, no(wire.CodeTooBig, "The message is larger than this server takes, once its NULs are encoded.")
	}
	b, err = to.Finish()
	return b, scan, err
}
