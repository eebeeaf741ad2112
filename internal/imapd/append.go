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

// copyBufferSize is how many bytes of an incoming message are in memory at once.
const copyBufferSize = 32 << 10

// Limits of one APPEND before any of it is stored: the number of messages, and the bytes of them
// and their metadata in memory.
const (
	maxAppendMessages = 1000
	maxAppendMemory   = 32 << 20
)

// append handles APPEND of one or several messages, all of which are stored or none (RFC 3502).
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
	return wire.CodeAppendUID(validity, wire.SetOf(uids...)), nil
}

// appendReader reads the messages of an APPEND or REPLACE. It writes their bytes to the blob store
// while scanning them. It rejects large messages that exceed the quota before the client sends
// them.
type appendReader struct {
	session        *session
	target         string
	freedBytes     int64 // bytes that the command itself frees, as counted by mailbox.CountedSize
	availableBytes int64 // bytes left in the quota, once checked
	uploads        []folder.Upload
	chargedBytes   int64 // that all messages count for
	memoryBytes    int   // bytes in memory
}

// readAll reads all messages of the command. On an error it discards all.
func (in *appendReader) readAll(m *wire.AppendMessage, most int) (err error) {
	defer func() {
		if err != nil {
			in.discard(nil)
		}
	}()
	began := in.session.Now()
	for m != nil {
		if len(in.uploads) == most {
			return no(wire.CodeLimit, "The command holds too many messages.")
		}
		if err := in.readMessage(m); err != nil {
			return err
		}
		if m, err = in.session.r.NextMessage(); err != nil {
			return wrapConnError(err)
		}
	}
	if in.session.Now().Sub(began) > blob.SweepAge { // files without a row may have been swept
		return no(wire.CodeLimit, "The command has taken too long.")
	}
	return cmp.Or(in.session.checkLogin(), in.session.checkSuspended()) // the login may have ended since the command began
}

func (in *appendReader) readMessage(m *wire.AppendMessage) error {
	if m.UTF8 && !in.session.utf8 {
		return bad("UTF8 needs ENABLE UTF8=ACCEPT.")
	}
	if in.chargedBytes += mailbox.CountedSize(m.Size); in.chargedBytes > max(blob.MaxInline, in.availableBytes) {
		if err := in.checkQuota(); err != nil {
			return err
		}
	}
	b, scan, err := in.session.receiveMessage(m.Binary)
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

// checkQuota rejects messages that filing would reject anyway, and records the available bytes.
func (in *appendReader) checkQuota() error {
	if _, err := in.session.Folders.Status(in.session.ctx(), in.session.mailboxID, in.target); err != nil {
		return tryCreateError(err)
	}
	box, err := in.session.Mailboxes.ByID(in.session.ctx(), in.session.mailboxID)
	if err != nil {
		return err
	}
	if in.availableBytes = in.freedBytes + box.Quota - box.Used; in.chargedBytes > max(in.freedBytes, in.availableBytes) {
		return mailbox.FullError()
	}
	return nil
}

// discard discards the messages, unless they may have been committed in spite of an error.
func (in *appendReader) discard(err error) {
	if err != nil && fault.KindOf(err) == fault.Internal {
		return
	}
	for _, u := range in.uploads {
		u.Blob.Discard(in.session.ctx())
	}
}

// receiveMessage reads a message's bytes; binary means that they came as a literal8.
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
	if err := copyFromClient(io.MultiWriter(to, scan), src, *chunk); err != nil {
		return nil, nil, err
	}
	b, err := to.Finish()
	if err == nil && binary {
		return s.encodeNUL(b, scan)
	}
	return b, scan, err
}

// copyFromClient copies from the client. After an error on our side the connection stays usable:
// the Reader skips the rest.
func copyFromClient(to io.Writer, src io.Reader, chunk []byte) error {
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
