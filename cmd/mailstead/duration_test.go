// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30d": 30 * day, "2w": 14 * day, "1w2d": 9 * day, "1d12h": 36 * time.Hour, "90s": 90 * time.Second, "0": 0, "0d": 0,
		"-1h": -time.Hour, "1.5h": 90 * time.Minute, "106751d": 106751 * day,
	} {
		if got, err := parseDuration(text); got != want || err != nil {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "30", "30x", "1.5d", "1d-1h", "-1d", "1h2d", "1d ", "106752d", "15251w", "106751d24h", "99999999d"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q: %v, no error", text, got)
		}
	}
}
