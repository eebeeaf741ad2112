// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/quota"
)

// charges are the reservations that messages hold in the limits until they are accepted.
type charges []quota.Reservation

// refundOnError releases the reservations if the messages were not accepted. If the outcome is
// unknown, they stay charged.
func (s charges) refundOnError(err error) {
	if err == nil || errors.Is(err, db.ErrCommitUnknown) {
		return
	}
	for i := range s {
		s[i].Release()
	}
}

// KeyConsumer returns the consumer whose limits an API key's use counts against.
func KeyConsumer(p account.Principal) quota.Consumer {
	return quota.Consumer{Account: p.Account, Key: p.Key, KeyRates: quota.Rates(p.Limits)}
}

// chargeLimits reserves the messages in the limits: all together or, with SendOptions.Partial, each
// by itself. It returns the messages within the limits. If none is left because of rate limits, it
// returns that error for all, so that the client can repeat the request later.
func (o *Outbox) chargeLimits(ctx context.Context, p account.Principal, prepared []*preparedMessage, results []SendResult, opt SendOptions) ([]*preparedMessage, charges, error) {
	if len(prepared) == 0 {
		return prepared, nil, nil
	}
	if !opt.Partial {
		recipients := 0
		for _, pc := range prepared {
			recipients += len(pc.send.recipients)
		}
		s, err := o.Limits.Reserve(ctx, KeyConsumer(p), len(prepared), recipients)
		return prepared, charges{s}, err
	}
	var taken charges
	var accepted []*preparedMessage
	var limited error
	for _, pc := range prepared {
		s, err := o.Limits.Reserve(ctx, KeyConsumer(p), 1, len(pc.send.recipients))
		switch {
		case err == nil:
			taken = append(taken, s)
			accepted = append(accepted, pc)
		case fault.Is(err, fault.RateLimited):
			limited, results[pc.index].Err = err, err
		case fault.Is(err, fault.Denied):
			results[pc.index].Err = err
		default:
			return nil, taken, err
		}
	}
	if len(accepted) > 0 {
		limited = nil
	}
	return accepted, taken, limited
}
