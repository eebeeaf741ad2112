// SPDX-License-Identifier: Apache-2.0

package account

import "github.com/mailstead/mailstead/internal/fault"

// Rates are limits of a key's use, beside those of its account, which hold too;
// 0 is none. They are those of limit.Rates.
type Rates struct {
	RequestsPerSecond int64 // on each node
	Burst             int64 // requests that may come at once; 0: as many as in a second
	SendsPerHour      int64
	SendsPerDay       int64
	RecipientsPerDay  int64
}

const maxRate = 1_000_000_000_000

// addFaults notes what can't be a limit.
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

// restrictTo keeps the limits of a key within those of the one that makes it, which
// it gets where it has none of its own.
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
		r.Burst = maker.Burst // not as many as in a second
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
