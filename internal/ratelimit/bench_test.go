// SPDX-License-Identifier: Apache-2.0

package ratelimit

import (
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// BenchmarkTry measures the limiter's cost of a successful login from a known network.
func BenchmarkTry(b *testing.B) {
	for name, url := range map[string]string{"sqlite": dbtest.SQLite(b), "postgres": dbtest.Postgres(b)} {
		b.Run(name, func(b *testing.B) {
			d, _ := leasetest.Open(b, url)
			l := NewLoginLimiter(d, []byte("a key"), nil)
			right := func([]Credential) (Credential, error) { return alice, nil }
			for b.Loop() {
				if _, err := l.Try(b.Context(), ip("192.0.2.1"), "right", []Credential{alice}, right); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
