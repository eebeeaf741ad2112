// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/quota"
)

// defaultLimits returns the limits of accounts without their own.
func (c *Config) defaultLimits() quota.AccountLimits {
	return quota.AccountLimits{
		Rates: quota.Rates{
			RequestsPerSecond: c.LimitRequests, Burst: c.LimitBurst, SendsPerHour: c.LimitHour, SendsPerDay: c.LimitDay, RecipientsPerDay: c.LimitRecipients,
		},
		StorageMB: c.LimitStorage,
	}
}

// clock returns the clock for limits.
func (c *Config) clock() func() time.Time {
	if c.Clock == nil {
		return time.Now
	}
	return c.Clock
}

func (c *Config) setLimits(l quota.AccountLimits) {
	c.LimitRequests, c.LimitBurst, c.LimitHour, c.LimitDay, c.LimitRecipients = l.RequestsPerSecond, l.Burst, l.SendsPerHour, l.SendsPerDay, l.RecipientsPerDay
	c.LimitStorage = l.StorageMB
}

func (c *Config) checkLimits() error {
	all := c.defaultLimits()
	for _, name := range quota.Names() {
		if n := all.Value(name); n < 0 || n > quota.MaxValue {
			return fmt.Errorf("--limit-%s must be from 0, for no limit, to %d", strings.ReplaceAll(name, "_", "-"), int64(quota.MaxValue))
		}
	}
	return nil
}
