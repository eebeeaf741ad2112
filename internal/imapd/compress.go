// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"bufio"

	"github.com/mailstead/mailstead/internal/imapd/wire"
)

// compress is COMPRESS=DEFLATE (RFC 4978). An idle session then holds, beyond
// the 30 KiB that one without may, a second read buffer, the tables of the
// Inflater (2 KiB) and as much as the client has sent, 32 KiB at most: under
// 70 KiB in all. Limits count what comes out of the Inflater, which makes no
// more at a time than the read buffer holds.
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
