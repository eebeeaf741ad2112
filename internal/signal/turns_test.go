// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"context"
	"errors"
	"testing"
)

// Each has its own turns; of who has none and waits for none, nothing is kept.
func TestTurns(t *testing.T) {
	var turns Turns[string]
	take := func(key string) func() {
		pass, err := turns.Take(t.Context(), key, 2)
		if err != nil {
			t.Fatal(err)
		}
		return pass
	}
	one, two, other := take("a"), take("a"), take("b")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := turns.Take(ended, "a", 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a third: %v", err)
	}
	if n := turns.Users("a"); n != 2 {
		t.Errorf("%d have a turn", n)
	}
	one()
	take("a")()
	two()
	other()
	if len(turns.of) != 0 {
		t.Errorf("kept: %v", turns.of)
	}
}
