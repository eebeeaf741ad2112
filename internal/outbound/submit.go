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
	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// Submission is the envelope of a message that a mailbox hands in by SMTP.
type Submission struct {
	From  *address.Address // nil is the null sender
	To    []Rcpt
	Ret   string // RET of RFC 3461: "FULL", "HDRS" or ""
	EnvID string // ENVID, decoded
	// RequireTLS is the REQUIRETLS parameter (RFC 8689).
	RequireTLS bool
	Received   message.Received // what our own Received field says; its ID is filled in
}

// Rcpt is a recipient of a submission, with the reports that are wanted about
// it (RFC 3461).
type Rcpt struct {
	address.Address
	Notify   smtpclient.Notify // 0: not given
	Original string            // ORCPT as "rfc822;a@b", decoded; "" for none
}

// MaySubmit returns fault.Denied unless the mailbox may use the address in
// MAIL FROM: its own or that of an alias which leads to it. The account, which is
// not suspended, must be allowed to send from the domains of both. nil, the null
// sender, is allowed: the header's From decides.
func (o *Outbox) MaySubmit(ctx context.Context, m mailbox.Mailbox, from *address.Address) error {
	if from != nil {
		if _, err := o.mayUse(ctx, m, *from); err != nil {
			return err
		}
	}
	if err := o.active(ctx, m.Account); err != nil {
		return err
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
	"You may send as your own address and your aliases only; set one of them in your mail program's account and identity.")

// Submit accepts a message from a mailbox. The body is mended on the way: bare
// line ends become CRLF, Bcc and Return-Path go, a missing Date or Message-ID
// is added (RFC 6409 §8), 8-bit parts are encoded so that the signature
// survives every relay. It returns after the commit.
func (o *Outbox) Submit(ctx context.Context, m mailbox.Mailbox, s Submission, body io.Reader) (db.ID, error) {
	if err := o.MaySubmit(ctx, m, s.From); err != nil {
		return 0, err
	}
	return o.submit(ctx, limit.Who{Account: m.Account}, s, body, func(r *row, h message.Header) ([]recipient, error) {
		signs, err := o.checkAuthor(ctx, m, h)
		if err != nil {
			return nil, err
		}
		r.account, r.domain, r.mailbox, r.expires = m.Account, signs, m.ID, r.created.Add(ExpirySubmission)
		if s.From != nil {
			r.sender = s.From.String()
		}
		return s.envelope(h), nil
	})
}

// submit accepts a message of who. own judges its author, says whose it is, and
// sorts its recipients.
func (o *Outbox) submit(ctx context.Context, who limit.Who, s Submission, body io.Reader, own func(r *row, h message.Header) ([]recipient, error)) (_ db.ID, err error) {
	raw, index, header, err := o.spool(ctx, body)
	if err != nil {
		return 0, err
	}
	defer o.pace.Begin(o.Now)()
	defer raw.Discard(ctx)
	now := o.Now().UTC()
	r := &row{id: o.DB.NewID(), created: now, ret: s.Ret, envid: s.EnvID, requireTLS: wishOfTLS(s.RequireTLS, header)}
	to, err := own(r, header)
	if err != nil {
		return 0, err
	}
	w := wishes{metadata: "{}"}
	if who.Key != 0 {
		if w, err = readWishes(header, now); err != nil {
			return 0, err
		}
	}
	r.metadata = w.metadata
	if err := o.join(ctx, r, w.thread, header); err != nil {
		return 0, err
	}
	pc := &parcel{row: r, due: w.sendAt, to: envelope(to)}
	_, pc.offers = header.First("List-Unsubscribe")
	if err := o.inquire(pc); err != nil {
		return 0, err
	}
	if w.sendAt.After(now) {
		r.expires = r.expires.Add(w.sendAt.Sub(now))
	}
	once, err := o.once(ctx, r, &s, who.Key, w.key, raw, index.Parts[0].Body.Start, header)
	if err != nil || once.id != 0 {
		return once.id, err
	}
	defer once.claim.End()
	taken, err := o.Limits.Send(ctx, who, 1, len(to))
	if err != nil {
		return 0, err
	}
	counted := spent{taken}
	defer func() { counted.settle(err) }()
	if w.template != "" {
		used, err := o.fillIn(ctx, r.account, &w)
		if err != nil {
			return 0, err
		}
		r.template, r.templateVersion = used.Template, used.Version
		if raw, index, err = o.refill(ctx, &used, raw, index, header); err != nil {
			return 0, err
		}
		defer raw.Discard(ctx)
	}
	s.Received.ID, s.Received.Date = r.id.String(), now
	if pc.blob, err = o.mend(ctx, r, raw, index, s, w.sendAt); err != nil {
		return 0, err
	}
	r.refer()
	err = o.commit(ctx, r.account, []*parcel{pc}, once.guard)
	if errors.Is(err, idempotency.ErrTaken) {
		pc.blob.Discard(ctx)
		taken.GiveBack()
		id, err := once.stored(ctx)
		if err == nil && id == 0 { // its time was over in this moment
			err = keyFault(fault.New(fault.Limited, "idempotency_in_flight", "What was accepted under it is no longer known. Repeat this one in a moment."))
		}
		return id, err
	}
	return r.id, err
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
	index, header := scan.Finish(), scan.Header()
	if header.BeginsFolded() {
		// It would go on with the last of the fields that we put on top.
		raw.Discard(ctx)
		return nil, nil, nil, fault.New(fault.Invalid, "invalid_header", "The message begins with white space, where its first header field belongs.")
	}
	if header, err = message.MendHeader(header, index.TextCharset()); err != nil {
		raw.Discard(ctx)
		return nil, nil, nil, err
	}
	return raw, index, header, nil
}

// mend writes the message as it will be sent: 7-bit, and with its header put
// in order.
//
// A message that is sent later is dated so.
func (o *Outbox) mend(ctx context.Context, r *row, raw *blob.Blob, index *message.Index, s Submission, later time.Time) (*blob.Blob, error) {
	in, encoded, err := encoding(ctx, raw, index, message.SevenBit)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	h, err := message.ReadHeader(in.Reader)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	h, begun := h.WithoutMark().CutBody()
	if begun != nil { // no empty line parts them
		h = append(h, "\r\n"...)
	}
	if h, err = message.MendHeader(h, index.TextCharset()); err != nil {
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
		h, date = h.Without("Date"), later
	}
	head := message.Header(s.Received.Append(nil))
	head = append(head, message.Missing(h, date, r.messageID)...)
	head = append(head, r.adds...)
	head = append(head, h.WithoutAny(func(f message.Field) bool {
		return f.Is("Bcc") || f.Is("Resent-Bcc") || f.Is("Return-Path") || isWish(f)
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
	r.subject = clip(h.Decoded("Subject"), maxSubject)
	if r.from == "" {
		r.from = clip(strings.TrimSpace(h.Decoded("From")), maxSubject)
	}
	return final, nil
}

// buffered is a message being read, to be closed.
type buffered struct {
	*bufio.Reader
	io.Closer
}

// encode writes a message with its parts re-encoded.
type encode func(io.Writer, io.ReaderAt, *message.Index) (message.SevenBitResult, error)

// encoding reads a message as encode writes it. encoded tells, once it was read to its end,
// what became of it. A small message is encoded at once; a large one while it is
// read, so that it need not be in memory.
func encoding(ctx context.Context, raw *blob.Blob, index *message.Index, encode encode) (in buffered, encoded func() message.SevenBitResult, err error) {
	source, err := raw.Open(ctx)
	if err != nil {
		return in, nil, err
	}
	if whole, inRow := raw.Bytes(); inRow {
		var b bytes.Buffer
		b.Grow(len(whole) + bytes.MinRead)
		seven, err := encode(&b, source, index)
		return buffered{bufio.NewReaderSize(&b, b.Len()), source}, func() message.SevenBitResult { return seven }, err
	}
	pipe, out := io.Pipe()
	var seven message.SevenBitResult
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer source.Close() //nolint:errcheck // only read
		var err error
		seven, err = encode(out, source, index)
		out.CloseWithError(err)
	}()
	return buffered{bufio.NewReaderSize(pipe, 32<<10), pipe}, func() message.SevenBitResult { <-done; return seven }, nil
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

// envelope takes each address once. Those that the header names may share a
// transaction; the others are blind, so nobody may learn of them by it.
func (s Submission) envelope(h message.Header) []recipient {
	named := map[string]bool{}
	for _, field := range []string{"To", "Cc", "Resent-To", "Resent-Cc"} {
		for _, a := range h.Addresses(field) {
			if parsed, err := address.Parse(a.Local + "@" + a.Domain); err == nil {
				named[parsed.Key()] = true
			}
		}
	}
	return s.recipients(func(key string) string {
		if named[key] {
			return "envelope"
		}
		return "bcc"
	})
}

// recipients takes each address of the envelope once.
func (s Submission) recipients(kind func(key string) string) []recipient {
	seen := map[string]bool{}
	var list []recipient
	for _, to := range s.To {
		key := to.Key()
		if seen[key] {
			continue
		}
		seen[key] = true
		list = append(list, recipient{Address: to.Address, kind: kind(key), notify: to.Notify, original: to.Original})
	}
	return list
}
