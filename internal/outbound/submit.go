// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/quota"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Submission is the envelope of a message that a mailbox submits by SMTP.
type Submission struct {
	From  *address.Address // nil is the null sender
	To    []SubmissionRecipient
	Ret   string // RET of RFC 3461: "FULL", "HDRS" or ""
	EnvID string // ENVID, decoded
	// RequireTLS is the REQUIRETLS parameter (RFC 8689).
	RequireTLS bool
	Received   message.ReceivedField // our own Received field, without its ID
}

// SubmissionRecipient is a recipient of a submission, with the requested delivery reports (RFC
// 3461).
type SubmissionRecipient struct {
	address.Address
	Notify            smtpclient.Notify // 0: not given
	OriginalRecipient string            // ORCPT as "rfc822;a@b", decoded; "" for none
}

// CheckMailboxSender returns fault.Denied unless the mailbox may use the address in MAIL FROM: its
// own, or that of an alias that leads to it. The account must not be suspended and must be allowed
// to send from the domains of both. nil, the null sender, is allowed: the header's From decides.
func (o *Outbox) CheckMailboxSender(ctx context.Context, m mailbox.Mailbox, from *address.Address) error {
	if from != nil {
		if _, err := o.authorizeAddress(ctx, m, *from); err != nil {
			return err
		}
	}
	if err := o.checkActive(ctx, m.Account); err != nil {
		return err
	}
	own, err := address.Parse(m.Address)
	if err != nil {
		return err
	}
	// An account that lost the domain still reads its mail, but may not send.
	_, err = o.Domains.SendingDomain(ctx, m.Account, own.Domain)
	return err
}

var senderDenied = fault.New(fault.Denied, "sender_not_allowed",
	"You may send as your own address and your aliases only; set one of them in your mail program's account and identity.")

// Submit accepts a message from a mailbox and returns after the commit. It normalizes the body:
// bare line ends become CRLF, Bcc and Return-Path are removed, and a missing Date or Message-ID is
// added (RFC 6409 §8). It encodes 8-bit parts so that the signature survives every relay.
func (o *Outbox) Submit(ctx context.Context, m mailbox.Mailbox, s Submission, body io.Reader) (db.ID, error) {
	if err := o.CheckMailboxSender(ctx, m, s.From); err != nil {
		return 0, err
	}
	return o.submit(ctx, quota.Consumer{Account: m.Account}, s, body, func(r *row, h message.Header) ([]recipient, error) {
		signs, err := o.authorizeMailboxAuthor(ctx, m, h)
		if err != nil {
			return nil, err
		}
		r.account, r.domain, r.mailbox, r.expires = m.Account, signs, m.ID, r.created.Add(ExpirySubmission)
		if s.From != nil {
			r.sender = s.From.String()
		}
		return s.envelopeRecipients(h), nil
	})
}

// submit accepts a message of the consumer who. own checks the author, sets the owner in the row,
// and classifies the recipients.
func (o *Outbox) submit(ctx context.Context, who quota.Consumer, s Submission, body io.Reader, own func(r *row, h message.Header) ([]recipient, error)) (_ db.ID, err error) {
	raw, index, header, err := o.spool(ctx, body)
	if err != nil {
		return 0, err
	}
	defer o.Accepting.Begin(o.Now)()
	defer raw.Discard(ctx)
	now := o.Now().UTC()
	r := &row{id: o.DB.NewID(), created: now, ret: s.Ret, envid: s.EnvID, requireTLS: tlsPreference(s.RequireTLS, header)}
	to, err := own(r, header)
	if err != nil {
		return 0, err
	}
	w := submitOptions{metadata: "{}"}
	if who.Key != 0 {
		if w, err = readSubmitOptions(header, now); err != nil {
			return 0, err
		}
	}
	r.metadata, r.tags = w.metadata, w.tags
	if err := o.joinThread(ctx, r, w.thread, header); err != nil {
		return 0, err
	}
	pc := &preparedMessage{row: r, sendAt: w.sendAt, recipients: queueRecipients(to)}
	_, pc.offersUnsubscribe = header.First("List-Unsubscribe")
	if w.offersUnsubscribe {
		if err := o.addSubmittedUnsubscribe(pc, w.unsubscribe, to, header); err != nil {
			return 0, err
		}
	}
	if err := o.prepareSuppressionCheck(pc); err != nil {
		return 0, err
	}
	if w.sendAt.After(now) {
		r.expires = r.expires.Add(w.sendAt.Sub(now))
	}
	once, err := o.claimIdempotencyKey(ctx, r, &s, who.Key, w.idempotencyKey, raw, index.Parts[0].Body.Start, header)
	if err != nil || once.id != 0 {
		return once.id, err
	}
	defer once.claim.Release()
	taken, err := o.Limits.Reserve(ctx, who, 1, len(to))
	if err != nil {
		return 0, err
	}
	counted := charges{taken}
	defer func() { counted.refundOnError(err) }()
	if w.template != "" {
		used, err := o.renderTemplate(ctx, r.account, &w)
		if err != nil {
			return 0, err
		}
		r.template, r.templateVersion = used.Template, used.Version
		if raw, index, err = o.applyTemplate(ctx, &used, raw, index, header); err != nil {
			return 0, err
		}
		defer raw.Discard(ctx)
	}
	s.Received.ID, s.Received.Date = r.id.String(), now
	if pc.blob, err = o.normalize(ctx, r, raw, index, s, w.sendAt); err != nil {
		return 0, err
	}
	r.setReference()
	err = o.commit(ctx, r.account, []*preparedMessage{pc}, once.guard)
	if errors.Is(err, idempotency.ErrKeyUsed) {
		pc.blob.Discard(ctx)
		taken.Release()
		id, err := once.acceptedID(ctx)
		if err == nil && id == 0 { // the idempotency key expired at this moment
			err = idempotencyError(fault.New(fault.RateLimited, "idempotency_in_flight", "What was accepted under it is no longer known. Repeat this one in a moment."))
		}
		return id, err
	}
	return r.id, err
}

// spool stores the message unchanged except for its line ends.
func (o *Outbox) spool(ctx context.Context, body io.Reader) (*blob.Blob, *message.Structure, message.Header, error) {
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	if _, err := io.Copy(io.MultiWriter(w, &scan), message.NormalizeLineEnds(body)); err != nil {
		return nil, nil, nil, err
	}
	raw, err := w.Finish()
	if err != nil {
		return nil, nil, nil, err
	}
	index, header := scan.Finish(), scan.Header()
	if header.StartsFolded() {
		// It would continue the last field that we put on top.
		raw.Discard(ctx)
		return nil, nil, nil, fault.New(fault.Invalid, "invalid_header", "The message begins with white space, where its first header field belongs.")
	}
	if header, err = message.NormalizeHeader(header, index.TextCharset()); err != nil {
		raw.Discard(ctx)
		return nil, nil, nil, err
	}
	return raw, index, header, nil
}

// normalize writes the message as it will be sent: 7-bit, with a normalized header. If it is sent
// later, its Date is that time.
func (o *Outbox) normalize(ctx context.Context, r *row, raw *blob.Blob, index *message.Structure, s Submission, later time.Time) (*blob.Blob, error) {
	in, encoded, err := encodedReader(ctx, raw, index, message.EncodeSevenBit)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	h, err := message.ReadHeader(in.Reader)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	h, begun := h.WithoutBOM().SplitBody()
	if begun != nil { // no empty line separates header and body
		h = append(h, "\r\n"...)
	}
	if h, err = message.NormalizeHeader(h, index.TextCharset()); err != nil {
		return nil, err
	}
	w := o.Blobs.Create(ctx)
	defer w.Abort()
	r.messageID = h.MessageID()
	if r.messageID == "" {
		r.messageID = "<" + r.id.String() + "@" + senderDomain(h, o.Host) + ">"
	}
	date := s.Received.Date
	if !later.IsZero() {
		h, date = h.WithoutFields("Date"), later
	}
	head := message.Header(s.Received.Append(nil))
	head = append(head, message.MissingFields(h, date, r.messageID)...)
	head = append(head, r.addedFields...)
	head = append(head, h.WithoutFieldsFunc(func(f message.Field) bool {
		return f.Is("Bcc") || f.Is("Resent-Bcc") || f.Is("Return-Path") || isOptionField(f)
	})...)
	if _, err := w.Write(append(head, begun...)); err != nil {
		return nil, err
	}
	if _, err := in.WriteTo(w); err != nil {
		return nil, err
	}
	seven := encoded()
	final, err := w.Finish()
	if err != nil {
		return nil, err
	}
	r.blob, r.size, r.utf8, r.eightBit = final.ID, final.Size, seven.NeedsUTF8 || head.EightBit(), seven.Needs8Bit
	r.subject = db.CleanText(h.Decoded("Subject"), maxSubject)
	if r.from == "" {
		r.from = db.CleanText(strings.TrimSpace(h.Decoded("From")), maxSubject)
	}
	return final, nil
}

// bufferedReadCloser is a buffered reader of a message that must be closed.
type bufferedReadCloser struct {
	*bufio.Reader
	io.Closer
}

// encodeFunc writes a message with its parts re-encoded.
type encodeFunc func(io.Writer, io.ReaderAt, *message.Structure) (message.EncodeResult, error)

// encodedReader returns a reader of the message as encode writes it. Once it was read to its end,
// encoded returns the result. A small message is encoded immediately; a large one while it is read,
// so that it need not fit in memory.
func encodedReader(ctx context.Context, raw *blob.Blob, index *message.Structure, encode encodeFunc) (in bufferedReadCloser, encoded func() message.EncodeResult, err error) {
	source, err := raw.Open(ctx)
	if err != nil {
		return in, nil, err
	}
	if whole, inRow := raw.Bytes(); inRow {
		var b bytes.Buffer
		b.Grow(len(whole) + bytes.MinRead)
		seven, err := encode(&b, source, index)
		return bufferedReadCloser{bufio.NewReaderSize(&b, b.Len()), source}, func() message.EncodeResult { return seven }, err
	}
	pipe, out := io.Pipe()
	var seven message.EncodeResult
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer source.Close() //nolint:errcheck // only read
		var err error
		seven, err = encode(out, source, index)
		out.CloseWithError(err)
	}()
	return bufferedReadCloser{bufio.NewReaderSize(pipe, 32<<10), pipe}, func() message.EncodeResult { <-done; return seven }, nil
}

func senderDomain(h message.Header, fallback string) string {
	if from := h.Addresses("From"); len(from) > 0 {
		if name, err := address.ParseDomain(from[0].Domain); err == nil {
			return name
		}
	}
	return fallback
}

// envelopeRecipients returns each envelope address once. Recipients that the header names may share
// a transaction; the others are blind, and no other recipient may learn of them.
func (s Submission) envelopeRecipients(h message.Header) []recipient {
	named := map[string]bool{}
	for _, field := range []string{"To", "Cc", "Resent-To", "Resent-Cc"} {
		for _, a := range h.Addresses(field) {
			if parsed, err := address.Parse(a.Local + "@" + a.Domain); err == nil {
				named[parsed.Key()] = true
			}
		}
	}
	return s.uniqueRecipients(func(key string) string {
		if named[key] {
			return "envelope"
		}
		return "bcc"
	})
}

// uniqueRecipients returns each address of the envelope once.
func (s Submission) uniqueRecipients(kind func(key string) string) []recipient {
	seen := map[string]bool{}
	var list []recipient
	for _, to := range s.To {
		key := to.Key()
		if seen[key] {
			continue
		}
		seen[key] = true
		list = append(list, recipient{Address: to.Address, kind: kind(key), notify: to.Notify, originalRecipient: to.OriginalRecipient})
	}
	return list
}
