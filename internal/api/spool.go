// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"io"
	"os"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
)

// spool stores the attachments of a request one after another. Small ones stay in memory. Others go
// to an unlinked file, so that no file is left behind.
type spool struct {
	dir      string // directory of the file, see API.SpoolDir
	files    []*spooledFile
	size     int64 // size of all stored attachments
	buf      []byte
	overflow *os.File
}

// maxSpoolMemory is how many bytes of a request's attachments stay in memory.
const maxSpoolMemory = 64 << 10

// spooledFile is one of the attachments. Only the last one is written to.
type spooledFile struct {
	spool *spool
	start int64
	size  int64 // beyond MaxAttachmentBytes, data is counted but not stored
}

// addFile starts the next attachment.
func (s *spool) addFile() io.Writer {
	f := &spooledFile{spool: s, start: s.size}
	s.files = append(s.files, f)
	return f
}

func (s *spool) close() {
	if s.overflow != nil {
		_ = s.overflow.Close()
	}
}

func (s *spool) write(p []byte) (err error) {
	s.size += int64(len(p))
	if s.overflow == nil && s.size <= maxSpoolMemory {
		s.buf = append(s.buf, p...)
		return nil
	}
	if s.overflow == nil {
		if s.overflow, err = os.CreateTemp(s.dir, "attachment-"); err != nil {
			return err
		}
		if err := os.Remove(s.overflow.Name()); err != nil {
			return err
		}
		if _, err := s.overflow.Write(s.buf); err != nil {
			return err
		}
		s.buf = nil
	}
	_, err = s.overflow.Write(p)
	return err
}

// Write implements io.Writer. It drops data that exceeds the limit of a message and counts only its
// size.
func (f *spooledFile) Write(p []byte) (int, error) {
	if f.size += int64(len(p)); f.size > outbound.MaxAttachmentBytes {
		return len(p), nil
	}
	if err := f.spool.write(p); err != nil {
		return 0, fault.Wrap(err, fault.Unavailable, "storage_unavailable", "There is no room for the attachments at the moment. Please try again.")
	}
	return len(p), nil
}

func (f *spooledFile) open() (io.ReadCloser, error) {
	if f.spool.overflow == nil {
		return io.NopCloser(bytes.NewReader(f.spool.buf[f.start : f.start+f.size])), nil
	}
	return io.NopCloser(io.NewSectionReader(f.spool.overflow, f.start, f.size)), nil
}
