// SPDX-License-Identifier: Apache-2.0

package account

import "github.com/mailstead/mailstead/internal/fault"

// Rates are limits of a key's use, in addition to those of its account; 0 means no limit. They are
// those of quota.Rates.
type Rates struct {
	RequestsPerSecond int64 // per node
	Burst             int64 // requests that may arrive at once; 0: as many as per second
	SendsPerHour      int64
	SendsPerDay       int64
	RecipientsPerDay  int64
}

const maxRate = 1_000_000_000_000

// addFaults adds a fault for each invalid limit.
func (r *Rates) addFaults(bad *fault.FieldErrors) {
	for _, f := range r.fields() {
		if *f.value < 0 || *f.value > maxRate {
			bad.Add("limits."+f.name, "out_of_range", "Give 1 to %d.", int64(maxRate))
		}
	}
	if r.Burst > 0 && r.RequestsPerSecond == 0 {
		bad.Add("limits.burst", "needs_rate", "Give requests_per_second too.")
	}
}

// restrictTo restricts the limits of a key to those of the key that creates it. Missing limits are
// copied from that.
func (r Rates) restrictTo(maker Rates) (Rates, error) {
	if r.RequestsPerSecond == 0 && r.Burst == 0 {
		r.RequestsPerSecond, r.Burst = maker.RequestsPerSecond, maker.Burst
	}
	if maker.Burst == 0 {
		maker.Burst = maker.RequestsPerSecond
	}
	for i, f := range r.fields() {
		most := *maker.fields()[i].value
		if *f.value == 0 && f.name != "burst" {
			*f.value = most
		}
		if most > 0 && *f.value > most {
			return r, fault.New(fault.Denied, "limits_exceeded", "This API key can't make one with higher limits than its own.")
		}
	}
	if r.Burst == 0 && maker.Burst < r.RequestsPerSecond {
		r.Burst = maker.Burst // the default would exceed the creator's burst
	}
	return r, nil
}

type rateField struct {
	name  string
	value *int64
}

func (r *Rates) fields() [5]rateField {
	return [5]rateField{
		{"requests_per_second", &r.RequestsPerSecond}, {"burst", &r.Burst}, {"sends_per_hour", &r.SendsPerHour},
		{"sends_per_day", &r.SendsPerDay}, {"recipients_per_day", &r.RecipientsPerDay},
	}
}
