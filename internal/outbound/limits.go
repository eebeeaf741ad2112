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

// charges is what messages took of the limits until they are accepted.
type charges []quota.Reservation

// refundOnError gives back what was taken if the messages were not accepted. Where that
// is not known they count.
func (s charges) refundOnError(err error) {
	if err == nil || errors.Is(err, db.ErrCommitUnknown) {
		return
	}
	for i := range s {
		s[i].Release()
	}
}

// LimitSubject is whom a key's use counts for.
func LimitSubject(p account.Principal) quota.Consumer {
	return quota.Consumer{Account: p.Account, Key: p.Key, KeyRates: quota.Rates(p.Limits)}
}

// chargeLimits takes the messages from the limits: all of them together or, with
// Options.Partial, each by itself, and returns those that may go on. If then
// none may, for the limits, that is the error of all: the same request may be
// made again later.
func (o *Outbox) chargeLimits(ctx context.Context, p account.Principal, parcels []*preparedMessage, results []Result, opt SendOptions) ([]*preparedMessage, charges, error) {
	if len(parcels) == 0 {
		return parcels, nil, nil
	}
	if !opt.Partial {
		recipients := 0
		for _, pc := range parcels {
			recipients += len(pc.send.recipients)
		}
		s, err := o.Limits.Reserve(ctx, LimitSubject(p), len(parcels), recipients)
		return parcels, charges{s}, err
	}
	var taken charges
	var accepted []*preparedMessage
	var limited error
	for _, pc := range parcels {
		s, err := o.Limits.Reserve(ctx, LimitSubject(p), 1, len(pc.send.recipients))
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
