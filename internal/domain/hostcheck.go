// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"errors"
	"time"
)

// HostCheck is the result of a check of the service's own records.
type HostCheck struct {
	Host    *Host
	Records []Record // required ones first
	At      time.Time
}

// Failed counts the required records that are missing or wrong.
func (c *HostCheck) Failed() int { return c.required(RecordFailed) }

// Unknown counts the required records that could not be checked.
func (c *HostCheck) Unknown() int { return c.required(TemporaryFailure) }

func (c *HostCheck) required(status string) (n int) {
	for _, r := range c.Records {
		if r.Required && r.Status == status {
			n++
		}
	}
	return n
}

// Zone returns the records as text to paste into a zone file.
func (c *HostCheck) Zone() string { return c.Host.Zone(c.Records) }

// hostCheckKept is how long the result of a check is given to others who ask.
const hostCheckKept = 3 * time.Second

func noHostCheck() chan *HostCheck {
	c := make(chan *HostCheck, 1)
	c <- nil
	return c
}

// CheckHost checks the service's own records, within 20 seconds. There is one check at
// a time: others who ask wait for it and share its result. Records of which there is
// no answer by the end of ctx could not be checked, but are listed.
func (d *Domains) CheckHost(ctx context.Context) (*HostCheck, error) {
	h, err := d.HostNames(ctx)
	if err != nil {
		return nil, err
	}
	ask, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	var last *HostCheck
	select {
	case last = <-d.hostCheck:
	case <-ask.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return h.unchecked(d.Now()), nil
	}
	defer func() { d.hostCheck <- last }()
	if last != nil && d.Now().Sub(last.At) < hostCheckKept {
		return last, nil
	}
	records, err := h.Check(ask)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, err
	}
	last = &HostCheck{h, records, d.Now()}
	return last, nil
}

// unchecked lists the records without asking the DNS.
func (h *Host) unchecked(now time.Time) *HostCheck {
	all := h.records(nil)
	for i := range all {
		r := &all[i]
		v := unchecked(r.Name)
		r.Status, r.Error = v.status, v.problem
	}
	return &HostCheck{h, all, now}
}
