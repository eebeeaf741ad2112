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

// chunkSize is how much of a message is in memory while it comes in.
const chunkSize = 32 << 10

// What one APPEND may hold, while nothing of it is stored: messages, and bytes
// of them and their descriptions in memory.
const (
	maxAppended = 1000
	maxHeld     = 32 << 20
)

// append is APPEND, of one or of several messages, all of which are stored or
// none (RFC 3502).
func (s *session) append(cmd *wire.Append) (wire.Code, error) {
	in := intake{session: s, mailbox: cmd.Mailbox}
	if err := in.all(&cmd.Message, maxAppended); err != nil {
		return "", err
	}
	validity, uids, err := s.Folders.Append(s.ctx(), s.box, cmd.Mailbox, in.uploads...)
	if err != nil {
		in.discard(err)
		return "", orTryCreate(err)
	}
	return wire.AppendUID(validity, wire.SetOf(uids...)), nil
}

// intake are the messages of an APPEND or REPLACE. Their bytes go to the blob
// store while they are scanned. For large ones the client learns before it
// sends them that they have no place.
type intake struct {
	*session
	mailbox string
	room    int64 // bytes that the command itself makes free, as mailbox.Charge counts
	left    int64 // bytes that the mailbox has room for, once that was asked
	uploads []folder.Upload
	bytes   int64 // that all messages count for
	held    int   // bytes in memory
}

// all takes all messages of the command, or none.
func (in *intake) all(m *wire.NewMessage, most int) (err error) {
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
		if err := in.take(m); err != nil {
			return err
		}
		if m, err = in.r.NextMessage(); err != nil {
			return lost(err)
		}
	}
	if in.Now().Sub(began) > blob.SweepAge { // files that no row names yet may be swept by now
		return no(wire.CodeLimit, "The command has taken too long.")
	}
	return cmp.Or(in.current(), in.served()) // the log-in may have ended since the command began
}

func (in *intake) take(m *wire.NewMessage) error {
	if m.UTF8 && !in.utf8 {
		return bad("UTF8 needs ENABLE UTF8=ACCEPT.")
	}
	if in.bytes += mailbox.Charge(m.Size); in.bytes > max(blob.Inline, in.left) {
		if err := in.foresee(); err != nil {
			return err
		}
	}
	b, scan, err := in.receive(m.Binary)
	if err != nil {
		return err
	}
	described, err := folder.Describe(scan.Header(), scan.Finish())
	in.uploads = append(in.uploads, folder.Upload{
		Blob: b, Description: described, Flags: folder.Flags(m.Flags.System), Keywords: m.Flags.Keywords, Date: m.Date,
	})
	if err != nil {
		return err
	}
	inline, _ := b.Bytes()
	if in.held += len(inline) + len(described.Envelope) + len(described.Structure); in.held > maxHeld {
		return no(wire.CodeLimit, "The command holds too many messages.")
	}
	return nil
}

// foresee refuses what filing would refuse anyway, and notes what it would not.
func (in *intake) foresee() error {
	if _, err := in.Folders.Status(in.ctx(), in.box, in.mailbox); err != nil {
		return orTryCreate(err)
	}
	box, err := in.Mailboxes.ByID(in.ctx(), in.box)
	if err != nil {
		return err
	}
	if in.left = in.room + box.Quota - box.Used; in.bytes > max(in.room, in.left) {
		return mailbox.Full()
	}
	return nil
}

// discard throws away what was taken, unless it may have been committed in
// spite of an error.
func (in *intake) discard(err error) {
	if err != nil && fault.KindOf(err) == fault.Internal {
		return
	}
	for _, u := range in.uploads {
		u.Blob.Discard(in.ctx())
	}
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
