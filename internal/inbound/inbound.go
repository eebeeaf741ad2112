// SPDX-License-Identifier: Apache-2.0

// Package inbound brings mail into mailboxes: what other hosts send to our MX,
// and what accounts here send to each other (the local courier). It resolves
// recipients, puts the trace fields on top, and files the message for all its
// recipients in one commit.
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

// Options are what Service works with.
type Options struct {
	Host      string // our name in Received fields; bounces.Host takes reports too
	BaseURL   string // the URL of the API up to /api/v1, for what events point at
	Key       *secret.Key
	Blobs     *blob.Store
	Events    *event.Log
	Node      *db.Node
	Hub       *notify.Hub
	Mailboxes *mailbox.Mailboxes
	Accounts  *account.Accounts // says which are suspended; nil: none is
	Folders   *folder.Store
	Queue     *queue.Queue
	Outbox    *outbound.Outbox
	Threads   *thread.Threads
	Domains   *domain.Domains
	// Verifier judges what comes by SMTP; nil: nothing does.
	Verifier *mailauth.Verifier
	// MaxEnforcement is the hardest that is done for a DMARC policy; domains may
	// choose something softer.
	MaxEnforcement domain.Enforcement
	// AcceptUnknownPolicy takes mail in although the policy of its author can't be looked
	// up, as in a sandbox without a network.
	AcceptUnknownPolicy bool
	// SpamFilter finds out, for each recipient, whether a message is spam; its
	// faults refuse the message. nil: nothing does.
	SpamFilter func(ctx context.Context, m *spam.Message) ([]summary.SpamResult, error)
	Now        func() time.Time
	Log        *slog.Logger
}

// Service takes messages in. It is safe for use by many goroutines.
type Service struct {
	Options
	db        *db.DB
	buffers   sync.Pool // of *bufio.Reader
	maxCopies int       // how many of one message are filed in one commit
}

// New returns an Service.
func New(o Options) *Service { return &Service{Options: o, db: o.Blobs.DB, maxCopies: maxCopies} }

// spooledMessage is a message whose bytes are kept, without what differs from one
// recipient to another.
type spooledMessage struct {
	blob        *blob.Blob
	header      message.Header
	index       *message.Index
	arrivalID   db.ID            // the same for all copies
	threads     map[db.ID]string // by account, as far as they were found
	traceFields []byte           // fields that all copies have on top of the blob
	// checkResults are what was found out about the message.
	checkResults summary.CheckResults
	// failsPolicy mail is to be in Junk, or nowhere, says the domain of its author.
	failsPolicy bool
	private     bool // the service wrote it to its recipient alone
}

// spool keeps a message: head, then the message without its Return-Path, since
// the one that counts is ours (RFC 5321 §4.4). trial may be nil; it gets the
// header as it came, and returns who else wants the body.
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
		header = append(header, "\r\n"...) // so that all readers see the body begin there
	}
	if header.StartsFolded() {
		// It would go on with our last field, our own results, in its sender's words.
		return nil, fault.New(fault.Invalid, "invalid_header", "The message begins with white space, where its first header field belongs.")
	}
	if bytes.IndexByte(whole, 0) >= 0 {
		// Some readers see a From in "From\x00:", and end a value at a NUL.
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

// buildCopy makes one recipient's copy, to be filed: with the trace fields that
// are its own on top. o may be nil; rcpts are the addresses by which it came.
func (i *Service) buildCopy(ctx context.Context, s *spooledMessage, to mailbox.Recipient, o *summary.SpamResult, returnPath string, rcpts ...string) (folder.Delivery, error) {
	top := append(message.AppendDeliveredTo(message.AppendReturnPath(nil, returnPath), rcpts[0]), s.traceFields...)
	verdicts := s.checkResults
	if o != nil {
		top, verdicts = o.AppendHeader(top), o.AddTo(verdicts)
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
		Mailbox: to.Mailbox, Blob: i.Blobs.Prepend(s.blob, top), Metadata: described, Thread: place, CheckResults: verdicts.String(), Private: s.private, Date: i.Now(),
	}
	if verdicts.Spam == summary.Spam {
		in.SpecialUse = folder.Junk
	}
	a := s.newEvent(to, in, verdicts, returnPath, rcpts)
	in.NewEvent = func(f folder.MessageRef) event.Input {
		a := a
		a.ID, a.RawURL = f.Message, i.RawURL(to.Mailbox, f.Message)
		return event.Input{
			Account: to.Account, Kind: event.InboundEmail, Data: a, ContentMessage: f.Message,
			Domain: to.Domain, Mailbox: to.Mailbox, Recipient: address.KeyOf(to.Address),
		}
	}
	return in, nil
}
