// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"time"
)

// HostCheck is the result of a check of the service's own records.
type HostCheck struct {
	Host      *Host
	Records   []Record // required ones first
	CheckedAt time.Time
}

// FailedCount counts the required records that are missing or wrong.
func (c *HostCheck) FailedCount() int { return c.countRequired(RecordFailed) }

// UnknownCount counts the required records that could not be checked.
func (c *HostCheck) UnknownCount() int { return c.countRequired(RecordTemporaryFailure) }

func (c *HostCheck) countRequired(status string) (n int) {
	for _, r := range c.Records {
		if r.Required && r.Status == status {
			n++
		}
	}
	return n
}

// Zone returns the records as text to paste into a zone file.
func (c *HostCheck) Zone() string { return c.Host.Zone(c.Records) }

// hostCheckTTL is how long the result of a check is shared with other callers.
const hostCheckTTL = 3 * time.Second

func newHostCheckSlot() chan *HostCheck {
	c := make(chan *HostCheck, 1)
	c <- nil
	return c
}

// CheckHost checks the service's own records, within 20 seconds. One check runs at a time:
// concurrent callers wait for it and share its result. Records without an answer by the end of ctx
// are listed as not checked.
func (d *Domains) CheckHost(ctx context.Context) (*HostCheck, error) {
	h, err := d.LoadHost(ctx)
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var last *HostCheck
	select {
	case last = <-d.hostCheck:
	case <-ask.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return h.uncheckedHostCheck(d.Now()), nil
	}
	defer func() { d.hostCheck <- last }()
	if last != nil && d.Now().Sub(last.CheckedAt) < hostCheckTTL {
		return last, nil
	}
	records, err := h.Check(ask)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	last = &HostCheck{h, records, d.Now()}
	return last, nil
}

// uncheckedHostCheck lists the records without querying the DNS.
func (h *Host) uncheckedHostCheck(now time.Time) *HostCheck {
	all := h.expectedRecords(nil)
	for i := range all {
		r := &all[i]
		v := hostNoAnswerResult(r.Name)
		r.Status, r.Error = v.status, v.problem
	}
	return &HostCheck{h, all, now}
}
