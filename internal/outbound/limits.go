// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/limit"
)

// spent is what messages took of the limits until they are accepted.
type spent []limit.Spent

// settle gives back what was taken if the messages were not accepted. Where that
// is not known they count.
func (s spent) settle(err error) {
	if err == nil || errors.Is(err, db.ErrUnknown) {
		return
	}
	for i := range s {
		s[i].GiveBack()
	}
}

// UserOf is whom a key's use counts for.
func UserOf(p account.Principal) limit.Who {
	return limit.Who{Account: p.Account, Key: p.Key, Own: limit.Rates(p.Limits)}
}

// spend takes the messages from the limits: all of them together or, with
// Options.Partial, each by itself, and returns those that may go on. If then
// none may, for the limits, that is the error of all: the same request may be
// made again later.
func (o *Outbox) spend(ctx context.Context, p account.Principal, parcels []*parcel, results []Result, opt Options) ([]*parcel, spent, error) {
	if len(parcels) == 0 {
		return parcels, nil, nil
	}
	if !opt.Partial {
		recipients := 0
		for _, pc := range parcels {
			recipients += len(pc.letter.recipients)
		}
		s, err := o.Limits.Send(ctx, UserOf(p), len(parcels), recipients)
		return parcels, spent{s}, err
	}
	var taken spent
	var accepted []*parcel
	var limited error
	for _, pc := range parcels {
		s, err := o.Limits.Send(ctx, UserOf(p), 1, len(pc.letter.recipients))
		switch {
		case err == nil:
			taken = append(taken, s)
			accepted = append(accepted, pc)
		case fault.Is(err, fault.Limited):
			limited, results[pc.place].Err = err, err
		case fault.Is(err, fault.Denied):
			results[pc.place].Err = err
		default:
			return nil, taken, err
		}
	}
	if len(accepted) > 0 {
		limited = nil
	}
	return accepted, taken, limited
}
