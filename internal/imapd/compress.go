// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bufio"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// compress handles COMPRESS=DEFLATE (RFC 4978). An idle session then holds, besides its usual
// maximum of 30 KiB, a second read buffer, the Inflater's tables (2 KiB) and at most 32 KiB of the
// client's data: under 70 KiB in all. Limits apply to the output of the Inflater, which never
// produces more at once than the read buffer holds.
func (s *session) compress(cmd *wire.Compress) (wire.Code, error) {
	switch {
	case cmd.Mechanism != "DEFLATE":
		return "", bad("The mechanism is DEFLATE here.")
	case s.compressed:
		return "", no(wire.CodeCompressionActive, "DEFLATE is active already.")
	case s.r.Buffered() > 0:
		return "", bad("Nothing may follow COMPRESS before its answer.")
	}
	s.w.Tagged(s.tag, wire.OK, "", "DEFLATE is active.")
	if err := s.w.Flush(); err != nil {
		return "", err
	}
	s.wroteTagged, s.compressed = true, true
	s.r.Reset(bufio.NewReaderSize(wire.NewInflater(bufio.NewReaderSize(&s.stream, readBufferSize)), readBufferSize))
	out := wire.NewDeflater(&s.stream, &s.deflaters)
	s.w.Reset(out, out.Flush)
	return "", nil
}
