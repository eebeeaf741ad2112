// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/queue"
)

// AcceptedMessage is the response to a send.
type AcceptedMessage struct {
	ID         db.ID
	Status     queue.State
	MessageID  string
	ThreadID   string
	Recipients []AcceptedRecipient
	Metadata   json.RawMessage
	Tags       []string
	SendAt     time.Time // zero: immediately
	CreatedAt  time.Time
}

// AcceptedRecipient is one recipient of an accepted message.
type AcceptedRecipient struct {
	Email  string
	Type   string // to, cc, bcc
	Status queue.State
	Reason string // why it is suppressed; "" otherwise
}

// SendResult is the outcome of one send in a request with several.
type SendResult struct {
	AcceptedMessage
	Err error // why the message was not accepted; only set with SendOptions.Partial
}

// SendOptions control how several sends are accepted together.
type SendOptions struct {
	// IndexFields adds the index of the send to the field names in faults: messages[3].to[0].
	IndexFields bool
	// Partial accepts the valid sends; the other results have an Err.
	Partial bool
	// RequestFaults are the errors that the caller found in the request as a whole.
	RequestFaults fault.FieldErrors
	// Guard, if set, receives the results before the commit. It returns a function that queues the
	// statements which decide whether the commit may happen. It is called even if no message is
	// accepted.
	Guard func(results []SendResult) (func(b *db.Batch), error)
}

// Send accepts messages from the API: all in one commit or, unless SendOptions.Partial is set,
// none. It returns after the commit. Invalid sends are a fault.Invalid that names every invalid
// field. The error is fault.Denied if the account may not send as from_email, and fault.RateLimited
// above a sending limit. In these cases nothing is stored.
func (o *Outbox) Send(ctx context.Context, p account.Principal, sends []SendRequest, opt SendOptions) (_ []SendResult, err error) {
	defer o.Accepting.Begin(o.Now)()
	now := o.Now().UTC()
	results := make([]SendResult, len(sends))
	mails, err := validateSends(sends, results, opt, now)
	if err != nil {
		return nil, err
	}
	prepared, err := o.authorizeSenders(ctx, p, mails, results, opt)
	if err != nil {
		return nil, err
	}
	prepared, spent, err := o.chargeLimits(ctx, p, prepared, results, opt)
	defer func() { spent.refundOnError(err) }()
	if err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, p, prepared, now, opt.Guard != nil); err != nil {
		return nil, err
	}
	answer := func() {
		for _, pc := range prepared {
			results[pc.index].AcceptedMessage = pc.acceptedMessage()
		}
	}
	var guard func(*db.Batch)
	if opt.Guard != nil {
		answer()
		if guard, err = opt.Guard(results); err != nil {
			o.discard(ctx, prepared)
			return nil, err
		}
	}
	err = o.commit(ctx, p.Account, prepared, guard)
	if errors.Is(err, idempotency.ErrKeyUsed) {
		o.discard(ctx, prepared)
	}
	if err == nil && opt.Guard == nil {
		answer()
	}
	return results, err
}

// validateSends validates every send. The entry of an invalid send is nil.
func validateSends(sends []SendRequest, results []SendResult, opt SendOptions, now time.Time) ([]*validSend, error) {
	const enough = 100 // maximum number of faults reported
	mails := make([]*validSend, len(sends))
	bad := slices.Clone(opt.RequestFaults)
	for i := range sends {
		l, faults := sends[i].validate(now)
		switch {
		case len(faults) == 0:
			mails[i] = l
		case opt.Partial:
			results[i].Err = faults.Err()
		default:
			for _, f := range faults {
				f.Path = opt.fieldName(i, f.Path)
				bad = append(bad, f)
			}
		}
		if len(bad) >= enough {
			break
		}
	}
	return mails, bad.Err()
}

func (opt SendOptions) fieldName(i int, name string) string {
	switch {
	case !opt.IndexFields:
		return name
	case name == "":
		return fmt.Sprintf("messages[%d]", i)
	}
	return fmt.Sprintf("messages[%d].%s", i, name)
}

// authorizeSenders finds the sending domain of every send and checks that the principal may use it.
func (o *Outbox) authorizeSenders(ctx context.Context, p account.Principal, mails []*validSend, results []SendResult, opt SendOptions) ([]*preparedMessage, error) {
	var prepared []*preparedMessage
	var denied *fault.Error
	for i, l := range mails {
		if l == nil {
			continue
		}
		sender, err := o.authorizeDomain(ctx, p, l.from.Domain)
		switch {
		case err == nil:
			prepared = append(prepared, &preparedMessage{index: i, send: l, sender: sender})
		case !fault.Is(err, fault.Denied) || !opt.IndexFields:
			return nil, err
		case opt.Partial:
			results[i].Err = err
		default:
			if denied == nil {
				denied = fault.New(fault.Denied, "sender_not_allowed", "Some messages have a sender that you may not send as.")
			}
			var f *fault.Error
			_ = errors.As(err, &f) // err is always a *fault.Error here
			denied.Fields = append(denied.Fields, fault.FieldError{Path: opt.fieldName(i, "from_email"), Code: f.Code, Message: f.Message})
		}
	}
	if denied != nil {
		return nil, denied
	}
	return prepared, nil
}
