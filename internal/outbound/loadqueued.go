// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"bytes"
	"context"
	"errors"
	"io"
	"syscall"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailauth"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/smtpclient"
)

// MessageInfo returns what events say about a message. For a pruned message it returns what the
// trace contains.
func (o *Messages) MessageInfo(ctx context.Context, id db.ID) (queue.MessageInfo, error) {
	r, err := o.loadRow(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return o.prunedMessageInfo(ctx, id)
	}
	if err != nil {
		return queue.MessageInfo{}, err
	}
	return r.messageInfo(), nil
}

// Prepare loads a message for the queue and signs it once for all of its deliveries. A forwarded
// message is sealed instead (RFC 8617). It returns fault.Denied if the account is suspended, or if
// the domain has changed hands and the mail would go out in the new owner's name. It returns
// fault.NotFound if the message is lost. A returned report is sent even without a domain, unsigned.
// Mail that the service writes and mail that the host forwards are signed in the host's name.
func (o *Messages) Prepare(ctx context.Context, id db.ID) (*queue.OutboundMessage, error) {
	r, err := o.loadRow(ctx, id)
	if err != nil {
		return nil, err
	}
	if !r.isReturnedReport() {
		if err := o.checkActive(ctx, r.account); err != nil {
			return nil, err
		}
	}
	sender, err := o.signingDomain(ctx, r.domain)
	nobodys := isDomainLost(err)
	if err != nil && !(nobodys && r.mayBeUnsigned()) {
		return nil, err
	}
	b, err := o.Blobs.Load(ctx, r.blob)
	if err != nil {
		return nil, o.asNotFound(ctx, r, err)
	}
	m := &queue.OutboundMessage{
		MessageInfo: r.messageInfo(), ID: r.id, Domain: sender.Name, ReturnDomain: r.returnPathHost, Sender: r.sender, UTF8: r.utf8, EightBit: r.eightBit,
		RequireTLS: r.requireTLS == tlsRequired, OptionalTLS: r.requireTLS == tlsOptional,
	}
	if r.isFromAPI() {
		// Bounces of API mail become events, which need the header only.
		m.Notify, m.Ret = smtpclient.NotifyFailure, "HDRS"
	} else {
		m.Ret, m.EnvID = r.ret, r.envid
	}
	if r.account == account.OperatorAccount {
		if sender.Signer, err = o.Domains.HostSigner(ctx); err != nil {
			return nil, err
		}
		nobodys = false
	}
	sign := sender.Signer.SignReader
	switch {
	case nobodys: // no domain to sign for
		sign = func(io.Reader) ([]byte, error) { return nil, nil }
	case r.forwarder != 0: // signed by its author or not at all; this host only vouches for how it arrived
		sign = func(r io.Reader) ([]byte, error) { return sender.Signer.Seal(r, o.Host) }
	}
	if err := o.setContent(ctx, r, m, b, sign); err != nil {
		return nil, o.asNotFound(ctx, r, err)
	}
	return m, nil
}

// asNotFound converts a read error to fault.NotFound if the message's bytes are gone or truncated,
// which no retry repairs. A failing disk may be readable again, so EIO stays as it is.
func (o *Messages) asNotFound(ctx context.Context, r *row, err error) error {
	if !blob.IsLost(err) || errors.Is(err, syscall.EIO) {
		return err
	}
	now, failed := o.loadRow(ctx, r.id)
	if failed != nil {
		return failed
	}
	if now.blob != r.blob { // just rescheduled
		return err
	}
	return fault.Wrap(err, fault.NotFound, "message_lost", "The service has lost the text of this message.")
}

// signingDomain finds the domain that a message is signed with. A domain that has changed hands or
// is suspended is fault.Denied; a deleted one is fault.NotFound.
func (o *Messages) signingDomain(ctx context.Context, id db.ID) (domain.SendingDomain, error) {
	sender, err := o.Domains.SendingDomainByID(ctx, id)
	if err != nil {
		return sender, err
	}
	holder, ok, err := o.Domains.FindHosted(ctx, sender.Name)
	if err == nil && (!ok || holder.Domain != id) {
		err = fault.New(fault.Denied, "domain_lost", "The account no longer holds the domain of this message.")
	}
	if err == nil && holder.Suspended {
		err = fault.New(fault.Denied, "domain_suspended", "The domain of this message is suspended.")
	}
	return sender, err
}

// isDomainLost reports whether an error of signingDomain means that the domain is lost.
func isDomainLost(err error) bool {
	return fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied)
}

// CodeAccountSuspended is the code of the fault.Denied for mail of a suspended account.
const CodeAccountSuspended = "account_suspended"

// checkActive returns fault.Denied if the account is suspended.
func (o *Messages) checkActive(ctx context.Context, id db.ID) error {
	active, err := o.Accounts.IsActive(ctx, id)
	if err == nil && !active {
		err = fault.New(fault.Denied, CodeAccountSuspended, "The account that sends it is suspended.")
	}
	return err
}

// signRestFactor is the maximum pause after a signature, as a multiple of the time that it took.
const signRestFactor = 6

func (o *Messages) signThrottled(ctx context.Context, sign func(io.Reader) ([]byte, error), b *blob.Blob) (head []byte, err error) {
	done, err := o.acquireSignSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	begin := o.Now()
	defer func() {
		now := o.Now()
		_ = notify.Sleep(ctx, o.Accepting.RestTime(now, now.Sub(begin), signRestFactor))
	}()
	notify.RunLowPriority(func() { head, err = signBlob(ctx, sign, b) })
	if errors.Is(err, mailauth.ErrNoFrom) || errors.Is(err, mailauth.ErrUnclearAuthor) || errors.Is(err, mailauth.ErrHeaderTooBig) {
		return nil, fault.Wrap(err, fault.Denied, "cannot_sign", "The message can't be signed.")
	}
	return head, err
}

func signBlob(ctx context.Context, sign func(io.Reader) ([]byte, error), b *blob.Blob) (head []byte, err error) {
	if whole, inRow := b.Bytes(); inRow {
		return sign(bytes.NewReader(whole))
	}
	r, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	return sign(r.All())
}

// acquireSignSlot waits for a signing slot. Call done to release it.
func (o *Messages) acquireSignSlot(ctx context.Context) (done func(), err error) {
	if o.SignSlots == nil {
		return func() {}, nil
	}
	spare := o.ExtraSignSlots
	if o.Accepting.Load(o.Now()) > notify.LowLoad {
		spare = nil
	}
	select {
	case o.SignSlots <- struct{}{}:
		return func() { <-o.SignSlots }, nil
	case spare <- struct{}{}:
		return func() { <-spare }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func blobOpener(b *blob.Blob) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		r, err := b.Open(ctx)
		if err != nil {
			return nil, err
		}
		return readCloser{r.All(), r}, nil
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}
