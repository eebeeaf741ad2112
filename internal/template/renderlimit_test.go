// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// One account renders only a limited number of templates at a time, and delays no other account.
func TestTurns(t *testing.T) {
	var all Templates
	var passes []func()
	for range rendersPerAccount() {
		pass, err := all.semaphores.Acquire(t.Context(), 1, rendersPerAccount())
		if err != nil {
			t.Fatal(err)
		}
		passes = append(passes, pass)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	content := Content{Subject: "x", Text: "x"}
	if _, err := all.NewRenderer(1).Render(ended, "x", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Render: %v", err)
	}
	if _, err := all.PreviewContent(ended, 1, content, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Try: %v", err)
	}
	if out, err := all.PreviewContent(t.Context(), 2, content, nil); err != nil || out.Text != "x" {
		t.Errorf("another account: %+v, %v", out, err)
	}
	next := make(chan error)
	go func() {
		_, err := all.PreviewContent(t.Context(), 1, content, nil)
		next <- err
	}()
	for waiting := false; !waiting; runtime.Gosched() {
		waiting = all.semaphores.Count(1) == rendersPerAccount()+1
	}
	select {
	case err := <-next:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	for _, pass := range passes {
		pass()
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
	if n := all.semaphores.Count(1); n != 0 {
		t.Errorf("%d have a turn still", n)
	}
}
