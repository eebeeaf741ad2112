// SPDX-License-Identifier: Apache-2.0

package dsn

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/inbound"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// maxReturnedSize is the size, in octets, up to which an undelivered message is returned in full if
// its sender didn't choose (RFC 3461 §4.3).
const maxReturnedSize = 32 << 10

// write stores the notification about a message. It omits the message if that is lost, damaged or
// unreadable. out reports whether the notification goes to another host.
func (s *Sender) write(ctx context.Context, m *outbound.SubmissionInfo, all []queue.Notice, out bool) (*inbound.ServiceMessage, error) {
	n, err := s.writeOnce(ctx, m, all, out)
	if m.Blob != 0 && blob.IsLost(err) {
		s.Log.Error("a message is lost or damaged", "message", m.ID, "error", err)
		m.Blob = 0
		n, err = s.writeOnce(ctx, m, all, out)
	}
	return n, err
}

func (s *Sender) writeOnce(ctx context.Context, m *outbound.SubmissionInfo, all []queue.Notice, out bool) (*inbound.ServiceMessage, error) {
	to, err := address.Parse(m.Sender)
	if err != nil {
		return nil, err
	}
	r := &message.DSN{
		Host: s.Host, To: message.Address{Local: to.UnquotedLocal(), Domain: to.Domain}, Date: s.Now(), MessageID: "<" + s.DB.NewID().String() + "@" + s.Host + ">",
		EnvID: m.EnvID, ArrivedAt: m.CreatedAt, Recipients: recipients(all), SevenBit: out,
		Original: message.Original{UTF8: m.UTF8, EightBit: m.EightBit},
	}
	if m.Blob != 0 {
		b, err := s.Blobs.Load(ctx, m.Blob)
		if err != nil {
			return nil, err
		}
		source, err := b.Open(ctx)
		if err != nil {
			return nil, err
		}
		defer source.Close() //nolint:errcheck // only read
		r.Original.Header, err = message.ReadHeader(bufio.NewReader(source.All()))
		if err != nil && !fault.Is(err, fault.TooLarge) { // too large only with our fields; then the notification goes without the header
			return nil, err
		}
		// The row knows this for submissions, but not for messages forwarded before the row had it.
		r.Original.UTF8 = r.Original.UTF8 || r.Original.Header.EightBit()
		if returnsFullMessage(m, r.Recipients) && !(out && m.Size > maxReturnedSize) { // the remote host's size limit is unknown
			if out {
				if r.Original.EightBit, err = hasUnsafeContent(source.All()); err != nil {
					return nil, err
				}
			}
			r.Original.Open = func() (io.ReadCloser, error) { return io.NopCloser(source.All()), nil }
		}
	}
	var head []byte
	if out {
		if head, err = s.sign(ctx, r); err != nil {
			return nil, err
		}
	}
	return s.Inbound.StoreServiceMessage(ctx, func(w io.Writer) error {
		if _, err := w.Write(head); err != nil {
			return err
		}
		return r.Write(w)
	})
}

// sign returns the DKIM-Signature of a notification, made with the key of the host that it names.
// It is signed here, where its origin is certain. Its lines need no re-encoding in transit.
func (s *Sender) sign(ctx context.Context, r *message.DSN) (head []byte, err error) {
	signer, err := s.Domains.HostSigner(ctx)
	if err != nil {
		return nil, err
	}
	boundary := "=_" + rand.Text()
	r.Boundary = func() string { return boundary } // the same when the notification is stored
	pipe, in := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		in.CloseWithError(r.Write(in))
	}()
	head, err = signer.SignReader(pipe)
	_ = pipe.Close() // unblocks the writer if signing stopped early
	<-written
	return head, err
}

// hasUnsafeContent reports whether a message has anything but ASCII lines that every host accepts.
func hasUnsafeContent(r io.Reader) (bool, error) {
	index, _, err := message.ScanReader(r)
	return index.Has(message.EightBit | message.HeaderEightBit | message.HasNUL | message.HeaderNUL | message.LongLines), err
}

// returnsFullMessage reports whether the notification returns the whole message: only after a
// failure (RFC 3461 §4.3), and if the sender asked for it or the message is small.
func returnsFullMessage(m *outbound.SubmissionInfo, recipients []message.DSNRecipient) bool {
	for i := range recipients {
		if recipients[i].Action == message.ActionFailed {
			return m.Ret == "FULL" || m.Ret == "" && m.Size <= maxReturnedSize
		}
	}
	return false
}

// recipients turns notices into the recipients of a notification, with the last action for each.
func recipients(all []queue.Notice) []message.DSNRecipient {
	var list []message.DSNRecipient
	for at, n := range all {
		if at+1 < len(all) && all[at+1].N == n.N {
			continue
		}
		action := n.Action
		if action == queue.ActionRelayed && n.Remote == inbound.LocalRemote {
			action = message.ActionExpanded
		}
		list = append(list, message.DSNRecipient{
			Recipient: n.Recipient, Original: n.Original, Action: action, Code: n.Code, Enhanced: n.Enhanced, Reply: n.Reply,
			Remote: n.Remote, AttemptedAt: n.At, NextAttempt: n.NextAt, RetryUntil: n.ExpiresAt,
		})
	}
	return list
}
