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

// maxReturnedSize is the size, in octets, up to which an undelivered message is returned in full if
// its sender didn't choose (RFC 3461 §4.3).
const maxReturnedSize = 32 << 10

// createReport spools the report about a message. The report omits the message if it is lost,
// damaged or unreadable. out reports whether the report goes to another host.
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
		if err != nil && !fault.Is(err, fault.TooLarge) { // too large only with our fields; then the report goes without the header
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

// signReport returns the DKIM-Signature of a report, made with the key of the host that the report
// names. Reports are signed here, where their origin is certain. Their lines need no re-encoding in
// transit.
func (i *Service) signReport(ctx context.Context, r *message.DSN) (head []byte, err error) {
	signer, err := i.Domains.HostSigner(ctx)
	if err != nil {
		return nil, err
	}
	boundary := "=_" + rand.Text()
	r.Boundary = func() string { return boundary } // the same when the report is written
	err = withReportReader(r, func(in io.Reader) (err error) {
		head, err = signer.SignReader(in)
		return err
	})
	return head, err
}

// withReportReader passes the report to read as a stream.
func withReportReader(r *message.DSN, read func(io.Reader) error) error {
	pipe, in := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		in.CloseWithError(r.Write(in))
	}()
	err := read(pipe)
	_ = pipe.Close() // unblocks the writer if read stopped early
	<-written
	return err
}

// hasUnsafeContent reports whether a message has anything but ASCII lines that every host accepts.
func hasUnsafeContent(r io.Reader) (bool, error) {
	index, _, err := message.ScanReader(r)
	return index.Has(message.EightBit | message.HeaderEightBit | message.HasNUL | message.HeaderNUL | message.LongLines), err
}

// returnsFullMessage reports whether the report returns the whole message: only after a failure
// (RFC 3461 §4.3), and if the sender asked for it or the message is small.
func returnsFullMessage(m *outbound.SubmissionInfo, told []message.DSNRecipient) bool {
	for i := range told {
		if told[i].Action == message.ActionFailed {
			return m.Ret == "FULL" || m.Ret == "" && m.Size <= maxReturnedSize
		}
	}
	return false
}

// reportRecipients turns notices into the recipients of a report, with the last action for each.
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
