// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"time"
)

// Repeat calls step until ctx ends: at once, whenever wake receives, and after the time that the
// last call returned; zero means at once. wake may be nil. As its signals may get lost, step must
// return the longest acceptable delay at most. Repeat passes errors of step to failed, unless ctx
// has ended, and continues.
func Repeat(ctx context.Context, wake <-chan struct{}, step func(context.Context) (again time.Duration, err error), failed func(error)) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-timer.C:
		}
		if ctx.Err() != nil { // select chooses at random
			return
		}
		again, err := step(ctx)
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		timer.Reset(again)
	}
}

// Sleep waits for d, or returns ctx's error when ctx ends first. It returns at once if d is not
// above zero.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() // also if both happened at the same time
}
