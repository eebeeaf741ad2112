// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Submission is the envelope of a message that a mailbox hands in by SMTP.
type Submission struct {
	From     *address.Address // nil is the null sender
	To       []Rcpt
	Ret      string           // RET of RFC 3461: "FULL", "HDRS" or ""
	EnvID    string           // ENVID, decoded
	Received message.Received // what our own Received field says; its ID is filled in
}

// Rcpt is a recipient of a submission, with the reports that are wanted about
// it (RFC 3461).
type Rcpt struct {
	address.Address
	Notify   smtpclient.Notify // 0: not given
	Original string            // ORCPT as "rfc822;a@b", decoded; "" for none
}

// MaySubmit returns fault.Denied unless the mailbox may use the address in
// MAIL FROM, on a domain that its account may send from. nil, the null sender,
// is allowed: the header's From decides.
func (o *Outbox) MaySubmit(ctx context.Context, m mailbox.Mailbox, from *address.Address) error {
	if from != nil && !o.Mailboxes.MayUse(m, *from) {
		return senderDenied
	}
	own, err := address.Parse(m.Address)
	if err != nil {
		return err
	}
	// Whose domain changed hands still reads its mail, but sends none.
	_, err = o.Domains.Sender(ctx, m.Account, own.Domain)
	return err
}

var senderDenied = fault.New(fault.Denied, "sender_not_allowed",
	"You may send as your own address only; set the same address in your mail program's account and identity.")

// Submit accepts a message from a mailbox. The body is mended on the way: bare
// line ends become CRLF, Bcc and Return-Path go, a missing Date or Message-ID
// is added (RFC 6409 §8), 8-bit parts are encoded so that the signature
// survives every relay. It returns after the commit.
func (o *Outbox) Submit(ctx context.Context, m mailbox.Mailbox, s Submission, body io.Reader) (db.ID, error) {
	if err := o.MaySubmit(ctx, m, s.From); err != nil {
		return 0, err
	}
	now := o.Now().UTC()
	r := &row{
		id: o.DB.NewID(), account: m.Account, domain: m.Domain, mailbox: m.ID, metadata: "{}",
		created: now, expires: now.Add(ExpirySubmission), ret: s.Ret, envid: s.EnvID,
	}
	if s.From != nil {
		r.sender = s.From.String()
	}
	raw, index, header, err := o.spool(ctx, body)
	if err != nil {
		return 0, err
	}
	defer o.pace.accepting(o.Now)()
	defer raw.Discard(ctx)
	if err := o.checkAuthor(m, header); err != nil {
		return 0, err
	}
	s.Received.ID, s.Received.Date = r.id.String(), now
	final, err := o.mend(ctx, r, raw, index, s)
	if err != nil {
		return 0, err
	}
	pc := &parcel{row: r, blob: final, to: envelope(s.recipients(header))}
	return r.id, o.commit(ctx, r.account, []*parcel{pc}, nil)
}

// spool keeps the message as it came, but for its line ends.
func (o *Outbox) spool(ctx context.Context, body io.Reader) (*blob.Blob, *message.Index, message.Header, error) {
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	if _, err := io.Copy(io.MultiWriter(w, &scan), message.MendBare(body)); err != nil {
		return nil, nil, nil, err
	}
	raw, err := w.Finish()
	if err != nil {
		return nil, nil, nil, err
	}
	index := scan.Finish()
	return raw, index, scan.Header(), nil
}

// mend writes the message as it will be sent: 7-bit, and with its header put
// in order.
func (o *Outbox) mend(ctx context.Context, r *row, raw *blob.Blob, index *message.Index, s Submission) (*blob.Blob, error) {
	source, err := raw.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer source.Close() //nolint:errcheck // only read
	pipe, encoded := io.Pipe()
	defer pipe.Close() //nolint:errcheck // ends the goroutine below
	var seven message.SevenBitResult
	done := make(chan struct{})
	go func() {
		defer close(done)
		var err error
		seven, err = message.SevenBit(encoded, source, index)
		encoded.CloseWithError(err)
	}()
	in := bufio.NewReaderSize(pipe, 32<<10)
	h, err := message.ReadHeader(in)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	r.messageID = h.MessageID()
	if r.messageID == "" {
		r.messageID = "<" + r.id.String() + "@" + senderDomain(h, o.Host) + ">"
	}
	head := s.Received.Append(nil)
	head = append(head, message.Missing(h, s.Received.Date, r.messageID)...)
	head = append(head, h.Without("Bcc", "Resent-Bcc", "Return-Path")...)
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	if _, err := io.Copy(w, in); err != nil {
		return nil, err
	}
	<-done
	final, err := w.Finish()
	if err != nil {
		return nil, err
	}
	r.blob, r.size, r.utf8, r.eightBit = final.ID, final.Size, seven.NeedsUTF8, seven.Needs8Bit
	r.subject = clip(h.Decoded("Subject"), maxSubject)
	r.from = clip(strings.TrimSpace(h.Decoded("From")), maxSubject)
	return final, nil
}

func senderDomain(h message.Header, fallback string) string {
	if from := h.Addresses("From"); len(from) > 0 {
		if name, err := address.Domain(from[0].Domain); err == nil {
			return name
		}
	}
	return fallback
}

// clip makes decoded header text fit for a column: valid UTF-8 without NUL, at
// most n bytes.
func clip(s string, n int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// recipients takes each address of the envelope once. Those that the header
// names may share a transaction; the others are blind, so nobody may learn of
// them by it.
func (s Submission) recipients(h message.Header) []recipient {
	named := map[string]bool{}
	for _, field := range []string{"To", "Cc", "Resent-To", "Resent-Cc"} {
		for _, a := range h.Addresses(field) {
			if parsed, err := address.Parse(a.Local + "@" + a.Domain); err == nil {
				named[parsed.Key()] = true
			}
		}
	}
	seen := map[string]bool{}
	var list []recipient
	for _, to := range s.To {
		key := to.Key()
		if seen[key] {
			continue
		}
		seen[key] = true
		kind := "bcc"
		if named[key] {
			kind = "envelope"
		}
		list = append(list, recipient{Address: to.Address, kind: kind, notify: to.Notify, original: to.Original})
	}
	return list
}
