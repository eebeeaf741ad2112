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

// MessageInfo tells the queue what events say about a message; of one that was
// pruned, as much as its trace knows.
func (o *Outbox) MessageInfo(ctx context.Context, id db.ID) (queue.MessageInfo, error) {
	r, err := o.loadRow(ctx, id)
	if fault.Is(err, fault.NotFound) {
		return o.prunedMessageInfo(ctx, id)
	}
	if err != nil {
		return queue.MessageInfo{}, err
	}
	return r.messageInfo(), nil
}

func (o *Outbox) loadRow(ctx context.Context, id db.ID) (*row, error) {
	found, err := db.All(ctx, o.DB, messageByIDQuery.With(id), scanMessage)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, notFoundError()
	}
	return found[0], nil
}

func notFoundError() error {
	return fault.New(fault.NotFound, "message_gone", "The message is no longer there.")
}

// Prepare loads a message for the queue and signs it, once for all its
// deliveries in hand; one that is forwarded it seals (RFC 8617). Mail of an
// account that is suspended, or of a domain that has changed hands meanwhile and
// would go out in its new holder's name, is not sent: fault.Denied. Nor is what is
// lost: fault.NotFound. A report on its way back goes without a domain, in nobody's
// name. What the service itself writes goes in the name of the host, and so does what
// the host forwards.
func (o *Outbox) Prepare(ctx context.Context, id db.ID) (*queue.OutboundMessage, error) {
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
		// Bounces of API mail become events: the header is all they need.
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
	case nobodys: // there is nobody in whose name
		sign = func(io.Reader) ([]byte, error) { return nil, nil }
	case r.forwarder != 0: // its author has signed it, or nobody: only how it arrived is ours to tell
		sign = func(r io.Reader) ([]byte, error) { return sender.Signer.Seal(r, o.Host) }
	}
	if err := o.setContent(ctx, r, m, b, sign); err != nil {
		return nil, o.asNotFound(ctx, r, err)
	}
	return m, nil
}

// asNotFound makes an error of reading a message a fault.NotFound if its bytes are gone
// or cut off: no waiting brings them back. A disk that fails may read again.
func (o *Outbox) asNotFound(ctx context.Context, r *row, err error) error {
	if !blob.IsLost(err) || errors.Is(err, syscall.EIO) {
		return err
	}
	now, failed := o.loadRow(ctx, r.id)
	if failed != nil {
		return failed
	}
	if now.blob != r.blob { // rescheduled just now
		return err
	}
	return fault.Wrap(err, fault.NotFound, "message_lost", "The service has lost the text of this message.")
}

// signingDomain finds what a message is signed with. A domain that has changed hands
// since, or is suspended, is fault.Denied, one that was deleted fault.NotFound.
func (o *Outbox) signingDomain(ctx context.Context, id db.ID) (domain.SendingDomain, error) {
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

// isDomainLost reports whether an error of signingDomain says that the domain is lost.
func isDomainLost(err error) bool {
	return fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied)
}

// CodeAccountSuspended is the code of the fault.Denied for mail of an account that is
// suspended.
const CodeAccountSuspended = "account_suspended"

// checkActive returns fault.Denied for an account that is suspended.
func (o *Outbox) checkActive(ctx context.Context, id db.ID) error {
	active, err := o.Accounts.IsActive(ctx, id)
	if err == nil && !active {
		err = fault.New(fault.Denied, CodeAccountSuspended, "The account that sends it is suspended.")
	}
	return err
}

// signRestFactor is how many times the duration of a signature is rested at most.
const signRestFactor = 6

func (o *Outbox) signThrottled(ctx context.Context, sign func(io.Reader) ([]byte, error), b *blob.Blob) (head []byte, err error) {
	done, err := o.acquireSignSlot(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	begin := o.Now()
	defer func() {
		now := o.Now()
		_ = notify.Sleep(ctx, o.loadGauge.RestTime(now, now.Sub(begin), signRestFactor))
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

// acquireSignSlot waits until a message may be signed.
func (o *Outbox) acquireSignSlot(ctx context.Context) (done func(), err error) {
	if o.SignSlots == nil {
		return func() {}, nil
	}
	spare := o.ExtraSignSlots
	if o.loadGauge.Load(o.Now()) > notify.LowLoad {
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
