// SPDX-License-Identifier: Apache-2.0

// Package inbound delivers mail to mailboxes: mail that other hosts send to this MX, and mail
// between local accounts (the local delivery agent). It resolves recipients, prepends the trace
// fields, and files the message for all its recipients in one commit.
package inbound

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/spam"
	"github.com/mailstead/mailstead/internal/summary"
	"github.com/mailstead/mailstead/internal/thread"
)

// Options are the dependencies and settings of Service.
type Options struct {
	Host      string // our name in Received fields; bounces.Host accepts reports, too
	BaseURL   string // base URL of the API, without /api/v1, for links in events
	Key       *secret.Key
	Blobs     *blob.Store
	Events    *event.Log
	Hub       *notify.Hub
	Mailboxes *mailbox.Mailboxes
	Accounts  *account.Accounts // reports suspended accounts; nil: none is suspended
	Folders   *folder.Folders
	Queue     *queue.Queue
	Outbox    *outbound.Outbox
	Threads   *thread.Threads
	Domains   *domain.Domains
	// LoopsBack reports whether DNS leads a domain's mail back to this service; nil: not asked.
	LoopsBack func(ctx context.Context, domain string) bool
	// Verifier verifies mail received by SMTP; nil: no verification.
	Verifier *mailauth.Verifier
	// MaxEnforcement is the strictest enforcement of DMARC policies; domains may choose less.
	MaxEnforcement domain.Enforcement
	// AcceptUnknownPolicy accepts mail although its author's policy can't be looked up, as in a
	// sandbox without a network.
	AcceptUnknownPolicy bool
	// SpamFilter checks a message for spam, with one result per recipient. An error rejects the
	// message. nil: no filter.
	SpamFilter func(ctx context.Context, m *spam.Message) ([]summary.SpamResult, error)
	Now        func() time.Time
	Log        *slog.Logger
}

// Service receives messages. It is safe for concurrent use.
type Service struct {
	Options
	db        *db.DB
	buffers   sync.Pool // of *bufio.Reader
	maxCopies int       // copies of one message in one commit
}

// New returns a Service.
func New(o Options) *Service { return &Service{Options: o, db: o.Blobs.DB, maxCopies: maxCopies} }

// spooledMessage is a message whose bytes are stored, without anything specific to one recipient.
type spooledMessage struct {
	blob        *blob.Blob
	header      message.Header
	index       *message.Structure
	arrivalID   db.ID            // the same for all copies
	threads     map[db.ID]string // by account; only those found so far
	traceFields []byte           // fields that all copies have above the blob
	// checkResults are the results of verification and spam filter.
	checkResults summary.CheckResults
	// failsPolicy reports whether the author's domain asks to quarantine or reject the message.
	failsPolicy bool
	private     bool // whether the service wrote it for this recipient only
}

// spool stores a message: head, then the message without Return-Path and forged results. Only our
// own Return-Path counts (RFC 5321 §4.4). trial may be nil. It gets the original header and returns
// another writer for the body.
func (i *Service) spool(ctx context.Context, arrival db.ID, head []byte, body io.Reader, trial func(message.Header) io.Writer) (*spooledMessage, error) {
	in, ok := i.buffers.Get().(*bufio.Reader)
	if !ok {
		in = bufio.NewReaderSize(nil, 16<<10)
	}
	in.Reset(body)
	defer i.buffers.Put(in)
	defer in.Reset(nil)
	header, err := message.ReadHeader(in)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	whole := header.WithoutBOM()
	header, begun := whole.SplitBody()
	if begun != nil {
		header = append(header, "\r\n"...) // so that all readers agree where the body begins
	}
	if header.StartsFolded() {
		// The line would continue our last field, with our own results, in the sender's words.
		return nil, fault.New(fault.Invalid, "invalid_header", "The message begins with white space, where its first header field belongs.")
	}
	if bytes.IndexByte(whole, 0) >= 0 {
		// Some readers see a From in "From\x00:", and some end a value at a NUL.
		return nil, fault.New(fault.Invalid, "invalid_header", "The message's header has a NUL.")
	}
	w := i.Blobs.Create(ctx)
	defer w.Abort()
	var scan message.Scanner
	both := io.MultiWriter(w, &scan)
	honest := header.WithoutFieldsFunc(func(f message.Field) bool { return f.Is("Return-Path") || i.isForgedResult(f) })
	if _, err := both.Write(append(head, honest...)); err != nil {
		return nil, err
	}
	if trial != nil {
		both = io.MultiWriter(w, &scan, trial(header))
	}
	if _, err := both.Write(begun); err != nil {
		return nil, err
	}
	if _, err := in.WriteTo(both); err != nil {
		return nil, err
	}
	b, err := w.Finish()
	if err != nil {
		return nil, err
	}
	index := scan.Finish()
	return &spooledMessage{blob: b, header: scan.Header(), index: index, arrivalID: arrival, threads: map[db.ID]string{}}, nil
}

// buildCopy prepares one recipient's copy for filing, with the recipient's own trace fields on top.
// o may be nil. rcpts are the RCPT addresses that led to this mailbox.
func (i *Service) buildCopy(ctx context.Context, s *spooledMessage, to mailbox.Recipient, o *summary.SpamResult, returnPath string, rcpts ...string) (folder.Delivery, error) {
	top := append(message.AppendDeliveredTo(message.AppendReturnPath(nil, returnPath), rcpts[0]), s.traceFields...)
	results := s.checkResults
	if o != nil {
		top, results = o.AppendHeader(top), o.AddTo(results)
	}
	own := s.index.Parts[0].Header.Len
	s.index.ResizeHeader(own + int64(len(top)))
	described, err := folder.NewMetadata(s.header, s.index)
	s.index.ResizeHeader(own)
	if err != nil {
		return folder.Delivery{}, err
	}
	place, err := i.findThread(ctx, s, to)
	if err != nil {
		return folder.Delivery{}, err
	}
	in := folder.Delivery{
		Mailbox: to.Mailbox, Blob: i.Blobs.Prepend(s.blob, top), Metadata: described, Thread: place, CheckResults: results.String(), Private: s.private, Date: i.Now(),
	}
	if results.Spam == summary.Spam {
		in.SpecialUse = folder.Junk
	}
	a := s.newEvent(to, in, results, returnPath, rcpts)
	in.NewEvent = func(f folder.MessageRef) event.RecordParams {
		a := a
		a.ID, a.RawURL = f.Message, i.RawURL(to.Mailbox, f.Message)
		return event.RecordParams{
			Account: to.Account, Kind: event.InboundEmail, Data: a, ContentMessage: f.Message,
			Domain: to.Domain, Mailbox: to.Mailbox, Recipient: address.KeyOf(to.Address),
		}
	}
	return in, nil
}
