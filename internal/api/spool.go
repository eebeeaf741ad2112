// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"io"
	"os"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
)

// spool keeps the attachments of a request one after another: in memory while
// they are small, else in a file that has no name any more, so that nothing is
// left behind.
type spool struct {
	dir   string // of the file, see API.Spool
	files []*spooled
	size  int64 // of all that is kept
	buf   []byte
	file  *os.File
}

// spoolInMemory is how many bytes of a request's attachments stay in memory.
const spoolInMemory = 64 << 10

// spooled is one of the attachments. Only the last one is written to.
type spooled struct {
	spool *spool
	start int64
	size  int64 // beyond MaxAttachmentBytes nothing is kept, but it is counted
}

// sink begins the next attachment.
func (s *spool) sink() io.Writer {
	f := &spooled{spool: s, start: s.size}
	s.files = append(s.files, f)
	return f
}

func (s *spool) remove() {
	if s.file != nil {
		_ = s.file.Close()
	}
}

func (s *spool) write(p []byte) (err error) {
	s.size += int64(len(p))
	if s.file == nil && s.size <= spoolInMemory {
		s.buf = append(s.buf, p...)
		return nil
	}
	if s.file == nil {
		if s.file, err = os.CreateTemp(s.dir, "attachment-"); err != nil {
			return err
		}
		if err := os.Remove(s.file.Name()); err != nil {
			return err
		}
		if _, err := s.file.Write(s.buf); err != nil {
			return err
		}
		s.buf = nil
	}
	_, err = s.file.Write(p)
	return err
}

// Write is that of io.Writer. What is too much for any message is read and
// dropped; its size alone is told.
func (f *spooled) Write(p []byte) (int, error) {
	if f.size += int64(len(p)); f.size > outbound.MaxAttachmentBytes {
		return len(p), nil
	}
	if err := f.spool.write(p); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "storage_unavailable", "There is no room for the attachments at the moment. Please try again.")
	}
	return len(p), nil
}

func (f *spooled) open() (io.ReadCloser, error) {
	if f.spool.file == nil {
		return io.NopCloser(bytes.NewReader(f.spool.buf[f.start : f.start+f.size])), nil
	}
	return io.NopCloser(io.NewSectionReader(f.spool.file, f.start, f.size)), nil
}
