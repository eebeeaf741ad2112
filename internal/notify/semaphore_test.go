// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"testing"
)

// Each key has its own slots. A key without holders and waiters takes no memory.
func TestTurns(t *testing.T) {
	var turns KeyedSemaphore[string]
	take := func(key string) func() {
		pass, err := turns.Acquire(t.Context(), key, 2)
		if err != nil {
			t.Fatal(err)
		}
		return pass
	}
	one, two, other := take("a"), take("a"), take("b")
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := turns.Acquire(ended, "a", 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a third: %v", err)
	}
	if n := turns.Count("a"); n != 2 {
		t.Errorf("%d have a turn", n)
	}
	one()
	take("a")()
	two()
	other()
	if len(turns.byKey) != 0 {
		t.Errorf("kept: %v", turns.byKey)
	}
}
