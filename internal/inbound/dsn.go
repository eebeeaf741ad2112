// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"bufio"
	"context"
	"crypto/rand"
	"io"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// maxReturnedSize is the size, in octets, up to which a message that could not be
// delivered is sent back whole when its sender did not say (RFC 3461 §4.3).
const maxReturnedSize = 32 << 10

// createReport spools the report about a message; without that, should it be
// lost, damaged or not to be read. out says that it goes to another host.
func (i *Service) createReport(ctx context.Context, m *outbound.SubmissionInfo, all []queue.Notice, out bool) (*spooledMessage, error) {
	s, err := i.spoolReport(ctx, m, all, out)
	if m.Blob != 0 && blob.IsLost(err) {
		i.Log.Error("a message is lost or damaged", "message", m.ID, "error", err)
		m.Blob = 0
		s, err = i.spoolReport(ctx, m, all, out)
	}
	return s, err
}

func (i *Service) spoolReport(ctx context.Context, m *outbound.SubmissionInfo, all []queue.Notice, out bool) (*spooledMessage, error) {
	to, err := address.Parse(m.Sender)
	if err != nil {
		return nil, err
	}
	id := i.db.NewID()
	r := &message.DSN{
		Host: i.Host, To: message.Address{Local: to.LocalText(), Domain: to.Domain}, Date: i.Now(), MessageID: "<" + id.String() + "@" + i.Host + ">",
		EnvID: m.EnvID, ArrivedAt: m.CreatedAt, Recipients: reportRecipients(all), SevenBit: out,
		Original: message.Original{UTF8: m.UTF8, EightBit: m.EightBit},
	}
	if m.Blob != 0 {
		b, err := i.Blobs.Load(ctx, m.Blob)
		if err != nil {
			return nil, err
		}
		source, err := b.Open(ctx)
		if err != nil {
			return nil, err
		}
		defer source.Close() //nolint:errcheck // only read
		r.Original.Header, err = message.ReadHeader(bufio.NewReader(source.All()))
		if err != nil && !fault.Is(err, fault.TooLarge) { // with our fields; then the report goes without it
			return nil, err
		}
		// Of what was submitted the row knows it, not of what was forwarded before it did.
		r.Original.UTF8 = r.Original.UTF8 || r.Original.Header.EightBit()
		if returnsFullMessage(m, r.Recipients) && !(out && m.Size > maxReturnedSize) { // nobody knows what the host there takes
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
		if head, err = i.signReport(ctx, r); err != nil {
			return nil, err
		}
	}
	var s *spooledMessage
	err = withReportReader(r, func(in io.Reader) (err error) {
		s, err = i.spool(ctx, id, head, in, nil)
		return err
	})
	return s, err
}

// signReport returns the DKIM-Signature of a report, by the key of the host in whose
// name it is. It is signed here, where it is certain that we wrote it; its lines are
// such that nothing on its way is re-encoded.
func (i *Service) signReport(ctx context.Context, r *message.DSN) (head []byte, err error) {
	signer, err := i.Domains.HostSigner(ctx)
	if err != nil {
		return nil, err
	}
	boundary := "=_" + rand.Text()
	r.Boundary = func() string { return boundary } // the same when it is written
	err = withReportReader(r, func(in io.Reader) (err error) {
		head, err = signer.SignReader(in)
		return err
	})
	return head, err
}

// withReportReader writes a report to somebody who reads it.
func withReportReader(r *message.DSN, read func(io.Reader) error) error {
	pipe, in := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		in.CloseWithError(r.Write(in))
	}()
	err := read(pipe)
	_ = pipe.Close() // lets a writer end that nobody reads from
	<-written
	return err
}

// hasUnsafeContent reports whether a message is anything but lines of ASCII that every host takes.
func hasUnsafeContent(r io.Reader) (bool, error) {
	index, _, err := message.ScanReader(r)
	return index.Has(message.EightBit | message.HeaderEightBit | message.HasNUL | message.HeaderNUL | message.LongLines), err
}

// returnsFullMessage reports whether the message is sent back as a whole: only when it was
// not delivered (RFC 3461 §4.3), and its sender wants that, or it is small.
func returnsFullMessage(m *outbound.SubmissionInfo, told []message.DSNRecipient) bool {
	for i := range told {
		if told[i].Action == message.ActionFailed {
			return m.Ret == "FULL" || m.Ret == "" && m.Size <= maxReturnedSize
		}
	}
	return false
}

// reportRecipients turns notices into what a report says: of each recipient the last
// thing that happened.
func reportRecipients(all []queue.Notice) []message.DSNRecipient {
	var list []message.DSNRecipient
	for at, n := range all {
		if at+1 < len(all) && all[at+1].N == n.N {
			continue
		}
		action := n.Action
		if action == queue.ActionRelayed && n.Remote == localRemote {
			action = message.ActionExpanded
		}
		list = append(list, message.DSNRecipient{
			Recipient: n.Recipient, Original: n.Original, Action: action, Code: n.Code, Enhanced: n.Enhanced, Reply: n.Reply,
			Remote: n.Remote, AttemptedAt: n.At, NextAttempt: n.NextAt, RetryUntil: n.ExpiresAt,
		})
	}
	return list
}
