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
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/idempotency"
	"github.com/mailstead/mailstead/internal/queue"
)

// AcceptedMessage is the answer to a send.
type AcceptedMessage struct {
	ID         db.ID
	Status     queue.State
	MessageID  string
	ThreadID   string
	Recipients []AcceptedRecipient
	Metadata   json.RawMessage
	SendAt     time.Time // zero for at once
	CreatedAt  time.Time
}

// AcceptedRecipient is one recipient of an accepted message.
type AcceptedRecipient struct {
	Email  string
	Type   string // to, cc, bcc
	Status queue.State
	Reason string // why it is suppressed; "" otherwise
}

// Result is what became of one send of several.
type Result struct {
	AcceptedMessage
	Err error // with SendOptions.Partial: why it was not accepted
}

// SendOptions say how sends are accepted together.
type SendOptions struct {
	// IndexFields names the fields of faults by the send that they belong to:
	// messages[3].to[0].
	IndexFields bool
	// Partial accepts what can be accepted; the other results have an Err.
	Partial bool
	// RequestFaults are what the door found wrong with the request as a whole.
	RequestFaults fault.FieldErrors
	// Guard, if set, gets the results before they are committed, and returns
	// what queues the statements that decide whether they may be. It is called
	// also when nothing is accepted.
	Guard func(results []Result) (func(b *db.Batch), error)
}

// Send accepts messages from the API, all of them in one commit or, unless
// Options.Partial is set, none. It returns after the commit, with a
// fault.Invalid that names every field at fault, or fault.Denied when the
// account may not send as from_email, or fault.RateLimited when it has sent too
// much; then nothing was stored.
func (o *Outbox) Send(ctx context.Context, p account.Principal, sends []SendRequest, opt SendOptions) (_ []Result, err error) {
	defer o.loadGauge.Begin(o.Now)()
	now := o.Now().UTC()
	results := make([]Result, len(sends))
	letters, err := validateSends(sends, results, opt, now)
	if err != nil {
		return nil, err
	}
	parcels, err := o.authorizeSenders(ctx, p, letters, results, opt)
	if err != nil {
		return nil, err
	}
	parcels, spent, err := o.chargeLimits(ctx, p, parcels, results, opt)
	defer func() { spent.refundOnError(err) }()
	if err != nil {
		return nil, err
	}
	if err := o.prepare(ctx, p, parcels, now, opt.Guard != nil); err != nil {
		return nil, err
	}
	answer := func() {
		for _, pc := range parcels {
			results[pc.index].AcceptedMessage = pc.acceptedMessage()
		}
	}
	var guard func(*db.Batch)
	if opt.Guard != nil {
		answer()
		if guard, err = opt.Guard(results); err != nil {
			o.discard(ctx, parcels)
			return nil, err
		}
	}
	err = o.commit(ctx, p.Account, parcels, guard)
	if errors.Is(err, idempotency.ErrKeyUsed) {
		o.discard(ctx, parcels)
	}
	if err == nil && opt.Guard == nil {
		answer()
	}
	return results, err
}

// validateSends reads every send; those that break a rule have no letter.
func validateSends(sends []SendRequest, results []Result, opt SendOptions, now time.Time) ([]*validSend, error) {
	const enough = 100 // faults; nobody is told more
	letters := make([]*validSend, len(sends))
	bad := slices.Clone(opt.RequestFaults)
	for i := range sends {
		l, faults := sends[i].validate(now)
		switch {
		case len(faults) == 0:
			letters[i] = l
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
	return letters, bad.Err()
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

// authorizeSenders finds the sending domain of every letter.
func (o *Outbox) authorizeSenders(ctx context.Context, p account.Principal, letters []*validSend, results []Result, opt SendOptions) ([]*preparedMessage, error) {
	var parcels []*preparedMessage
	var denied *fault.Error
	for i, l := range letters {
		if l == nil {
			continue
		}
		sender, err := o.authorizeAuthor(ctx, p, l)
		switch {
		case err == nil:
			parcels = append(parcels, &preparedMessage{index: i, send: l, sender: sender})
		case !fault.Is(err, fault.Denied) || !opt.IndexFields:
			return nil, err
		case opt.Partial:
			results[i].Err = err
		default:
			if denied == nil {
				denied = fault.New(fault.Denied, "sender_not_allowed", "Some messages have a sender that you may not send as.")
			}
			var f *fault.Error
			_ = errors.As(err, &f) // it is one
			denied.Fields = append(denied.Fields, fault.FieldError{Path: opt.fieldName(i, "from_email"), Code: f.Code, Message: f.Message})
		}
	}
	if denied != nil {
		return nil, denied
	}
	return parcels, nil
}

// authorizeAuthor finds out whether the principal may send as a letter's author.
func (o *Outbox) authorizeAuthor(ctx context.Context, p account.Principal, l *validSend) (domain.SendingDomain, error) {
	return o.authorizeDomain(ctx, p, l.from.Domain)
}
