// SPDX-License-Identifier: Apache-2.0

package db

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/fault"
)

func TestIDForms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.Int64Min(0).Draw(t, "id"))
		back, err := ParseID(id.String())
		if err != nil || back != id {
			t.Fatalf("%d → %s → %d, %v", id, id, back, err)
		}
		if back, err = ParseID(strings.ToUpper(id.String())); err != nil || back != id { // as Swift and .NET write them
			t.Fatalf("%d in capitals → %d, %v", id, back, err)
		}
		u, err := uuid.Parse(id.String())
		if err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv7: %v", id, err)
		}
		sec, nsec := u.Time().UnixTime()
		if got := time.Unix(sec, nsec); got.UnixMilli() != id.Time().UnixMilli() {
			t.Fatalf("%s says %s, the id %s", u, got, id.Time())
		}
	})
}

func TestParseIDRefuses(t *testing.T) {
	good := ID(1 << 50).String()
	for _, s := range []string{"", "x", good[:35], good + "0", "f" + good[1:], good[:35] + "g",
		"00000000-0000-0000-0000-000000000000", uuid.NewString(), uuid.Must(uuid.NewV7()).String()} {
		if _, err := ParseID(s); !fault.Is(err, fault.NotFound) {
			t.Errorf("ParseID(%q) = %v", s, err)
		}
	}
}

func TestIDsRiseWhenTheClockDoesNot(t *testing.T) {
	now := time.Now()
	s := idGenerator{node: 7, now: func() time.Time { return now }}
	last := ID(0)
	for i := range 10_000 {
		if i == 5_000 {
			now = now.Add(-time.Hour)
		}
		id := s.next()
		if id <= last {
			t.Fatalf("%d after %d", id, last)
		}
		last = id
	}
}
