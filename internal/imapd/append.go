// SPDX-License-Identifier: Apache-2.0

package imapd

import (
	"errors"
	"io"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd/wire"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// chunkSize is how much of a message is in memory while it comes in.
const chunkSize = 32 << 10

// append is APPEND. The bytes go to the blob store while they are scanned. For
// a large message the client learns before it sends it that it has no place.
func (s *session) append(cmd *wire.Append) (wire.Code, error) {
	if cmd.Message.UTF8 {
		return "", bad("This server does not offer UTF8.")
	}
	if cmd.Message.Size > blob.Inline {
		if err := s.foresee(cmd); err != nil {
			return "", err
		}
	}
	b, scan, err := s.receive(cmd.Message.Binary)
	if err != nil {
		return "", err
	}
	more, err := s.r.NextMessage()
	if err == nil && more != nil {
		err = bad("APPEND takes one message here.")
	}
	if err != nil {
		b.Discard(s.ctx())
		return "", lost(err)
	}
	code, err := s.file(cmd, b, scan)
	if err != nil && fault.KindOf(err) != fault.Internal {
		// After any other error it may have been committed all the same.
		b.Discard(s.ctx())
	}
	return code, orTryCreate(err)
}

// foresee refuses what filing would refuse anyway.
func (s *session) foresee(cmd *wire.Append) error {
	if _, err := s.Folders.Status(s.ctx(), s.box, cmd.Mailbox); err != nil {
		return orTryCreate(err)
	}
	box, err := s.Mailboxes.ByID(s.ctx(), s.box)
	if err == nil && cmd.Message.Size > box.Quota-box.Used {
		err = mailbox.Full()
	}
	return err
}

// file puts the message into its folder.
func (s *session) file(cmd *wire.Append, b *blob.Blob, scan *message.Scanner) (wire.Code, error) {
	index := scan.Finish()
	described, err := folder.Described(scan.Header(), index)
	if err != nil {
		return "", err
	}
	m := &cmd.Message
	validity, uids, err := s.Folders.Append(s.ctx(), s.box, cmd.Mailbox, folder.Upload{
		Blob: b, Description: described, Flags: folder.Flags(m.Flags.System), Keywords: m.Flags.Keywords, Date: m.Date,
	})
	if err != nil {
		return "", err
	}
	return wire.AppendUID(validity, wire.SetOf(uids...)), nil
}

// receive takes the message's bytes; with binary they came as a literal8.
func (s *session) receive(binary bool) (*blob.Blob, *message.Scanner, error) {
	src, err := s.r.Message()
	if err != nil {
		return nil, nil, lost(err)
	}
	to := s.Blobs.Create(s.ctx())
	defer to.Abort()
	scan := &message.Scanner{}
	chunk := s.chunk()
	defer s.chunks.Put(chunk)
	if err := copyMessage(io.MultiWriter(to, scan), src, *chunk); err != nil {
		return nil, nil, err
	}
	b, err := to.Finish()
	if err == nil && binary {
		return s.withoutNUL(b, scan)
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
			return lost(err)
		}
	}
}

func (s *session) chunk() *[]byte {
	if c, ok := s.chunks.Get().(*[]byte); ok {
		return c
	}
	c := make([]byte, chunkSize)
	return &c
}
