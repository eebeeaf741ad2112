// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/limit"
)

// limits are those of an account for which nothing else was set.
func (c *Config) limits() limit.Set {
	return limit.Set{
		Rates: limit.Rates{
			RequestsPerSecond: c.LimitRequests, Burst: c.LimitBurst, SendsPerHour: c.LimitHour, SendsPerDay: c.LimitDay, RecipientsPerDay: c.LimitRecipients,
		},
		StorageMB: c.LimitStorage,
	}
}

// clock is what limits are counted by.
func (c *Config) clock() func() time.Time {
	if c.Clock == nil {
		return time.Now
	}
	return c.Clock
}

func (c *Config) setLimits(l limit.Set) {
	c.LimitRequests, c.LimitBurst, c.LimitHour, c.LimitDay, c.LimitRecipients = l.RequestsPerSecond, l.Burst, l.SendsPerHour, l.SendsPerDay, l.RecipientsPerDay
	c.LimitStorage = l.StorageMB
}

func (c *Config) checkLimits() error {
	all := c.limits()
	for _, name := range limit.Names() {
		if n := all.Get(name); n < 0 || n > limit.Most {
			return fmt.Errorf("--limit-%s must be from 0, for no limit, to %d", strings.ReplaceAll(name, "_", "-"), int64(limit.Most))
		}
	}
	return nil
}
