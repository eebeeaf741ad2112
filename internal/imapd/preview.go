// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bytes"
	"io"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/summary"
)

// needsBody reports whether the bytes of a message must be read. A lazy PREVIEW reads only bytes
// stored in the database, since files may be remote (RFC 8970 §4.1).
func (f *fetcher) needsBody(r *folder.MessageRow) bool {
	if len(f.cmd.Sections) > 0 || f.items&(wire.FetchPreview|wire.FetchPreviewLazy) == wire.FetchPreview {
		return true
	}
	if f.items&wire.FetchPreview == 0 || r.Content == nil {
		return false
	}
	_, here := r.Content.Bytes()
	return here
}

// makePreview creates the preview of a message, if requested.
func (f *fetcher) makePreview(m *messageBody) (err error) {
	if f.items&wire.FetchPreview == 0 {
		return nil
	}
	var r io.ReaderAt = m.file
	if m.file == nil {
		r = bytes.NewReader(m.bytes)
	}
	m.preview, err = summary.Preview(r, m.index)
	return err
}

// writePreview writes the preview; NIL if the message was not read.
func (m *messageBody) writePreview(row *wire.FetchResponse) {
	if m == nil {
		row.Preview("", false)
		return
	}
	row.Preview(m.preview, true)
}
