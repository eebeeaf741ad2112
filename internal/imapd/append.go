// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"cmp"
	"errors"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// copyBufferSize is how much of a message is in memory while it comes in.
const copyBufferSize = 32 << 10

// What one APPEND may hold, while nothing of it is stored: messages, and bytes
// of them and their descriptions in memory.
const (
	maxAppendMessages = 1000
	maxAppendMemory   = 32 << 20
)

// append is APPEND, of one or of several messages, all of which are stored or
// none (RFC 3502).
func (s *session) append(cmd *wire.Append) (wire.Code, error) {
	in := appendReader{session: s, target: cmd.Mailbox}
	if err := in.readAll(&cmd.Message, maxAppendMessages); err != nil {
		return "", err
	}
	validity, uids, err := s.Folders.Append(s.ctx(), s.mailboxID, cmd.Mailbox, in.uploads...)
	if err != nil {
		in.discard(err)
		return "", tryCreateError(err)
	}
	return wire.AppendUID(validity, wire.SetOf(uids...)), nil
}

// appendReader are the messages of an APPEND or REPLACE. Their bytes go to the blob
// store while they are scanned. For large ones the client learns before it
// sends them that they have no place.
type appendReader struct {
	*session
	target         string
	freedBytes     int64 // bytes that the command itself makes free, as mailbox.CountedSize counts
	availableBytes int64 // bytes that the mailbox has room for, once that was asked
	uploads        []folder.Upload
	chargedBytes   int64 // that all messages count for
	memoryBytes    int   // bytes in memory
}

// readAllQuery takes all messages of the command, or none.
func (in *appendReader) readAll(m *wire.AppendMessage, most int) (err error) {
	defer func() {
		if err != nil {
			in.discard(nil)
		}
	}()
	began := in.Now()
	for m != nil {
		if len(in.uploads) == most {
			return no(wire.CodeLimit, "The command holds too many messages.")
		}
		if err := in.readMessage(m); err != nil {
			return err
		}
		if m, err = in.r.NextMessage(); err != nil {
			return wrapConnError(err)
		}
	}
	if in.Now().Sub(began) > blob.SweepAge { // files that no row names yet may be swept by now
		return no(wire.CodeLimit, "The command has taken too long.")
	}
	return cmp.Or(in.checkLogin(), in.checkSuspended()) // the log-in may have ended since the command began
}

func (in *appendReader) readMessage(m *wire.AppendMessage) error {
	if m.UTF8 && !in.utf8 {
		return bad("UTF8 needs ENABLE UTF8=ACCEPT.")
	}
	if in.chargedBytes += mailbox.CountedSize(m.Size); in.chargedBytes > max(blob.MaxInline, in.availableBytes) {
		if err := in.checkQuota(); err != nil {
			return err
		}
	}
	b, scan, err := in.receiveMessage(m.Binary)
	if err != nil {
		return err
	}
	described, err := folder.NewMetadata(scan.Header(), scan.Finish())
	in.uploads = append(in.uploads, folder.Upload{
		Blob: b, Metadata: described, Flags: folder.Flags(m.Flags.System), Keywords: m.Flags.Keywords, Date: m.Date,
	})
	if err != nil {
		return err
	}
	inline, _ := b.Bytes()
	if in.memoryBytes += len(inline) + len(described.Envelope) + len(described.Structure); in.memoryBytes > maxAppendMemory {
		return no(wire.CodeLimit, "The command holds too many messages.")
	}
	return nil
}

// validateQuotaMB refuses what filing would refuse anyway, and notes what it would not.
func (in *appendReader) checkQuota() error {
	if _, err := in.Folders.Status(in.ctx(), in.mailboxID, in.target); err != nil {
		return tryCreateError(err)
	}
	box, err := in.Mailboxes.ByID(in.ctx(), in.mailboxID)
	if err != nil {
		return err
	}
	if in.availableBytes = in.freedBytes + box.Quota - box.Used; in.chargedBytes > max(in.freedBytes, in.availableBytes) {
		return mailbox.FullError()
	}
	return nil
}

// discard throws away what was taken, unless it may have been committed in
// spite of an error.
func (in *appendReader) discard(err error) {
	if err != nil && fault.KindOf(err) == fault.Internal {
		return
	}
	for _, u := range in.uploads {
		u.Blob.Discard(in.ctx())
	}
}

// receiveMessage takes the message's bytes; with binary they came as a literal8.
func (s *session) receiveMessage(binary bool) (*blob.Blob, *message.Scanner, error) {
	src, err := s.r.Message()
	if err != nil {
		return nil, nil, wrapConnError(err)
	}
	to := s.Blobs.Create(s.ctx())
	defer to.Abort()
	scan := &message.Scanner{}
	chunk := s.copyBuffer()
	defer s.copyBuffers.Put(chunk)
	if err := copyMessage(io.MultiWriter(to, scan), src, *chunk); err != nil {
		return nil, nil, err
	}
	b, err := to.Finish()
	if err == nil && binary {
		return s.encodeNUL(b, scan)
	}
	return b, scan, err
}

// copyMessage copies from the client. An error of ours leaves the connection
// alive: the Reader gets past the rest.
func copyMessage(to io.Writer, src io.Reader, chunk []byte) error {
	for {
		n, err := src.Read(chunk)
		if _, werr := to.Write(chunk[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return wrapConnError(err)
		}
	}
}

func (s *session) copyBuffer() *[]byte {
	if c, ok := s.copyBuffers.Get().(*[]byte); ok {
		return c
	}
	c := make([]byte, copyBufferSize)
	return &c
}
