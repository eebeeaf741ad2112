// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"time"
)

// Repeat calls step until ctx ends: at once, whenever wake receives, and when
// the time has passed that the last call returned, zero meaning at once. wake
// may be nil; its signals may get lost, so step never returns more than it may
// be late then. What goes wrong is told to failed, unless ctx has ended, and
// ends nothing.
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
		if ctx.Err() != nil { // select has no favourites
			return
		}
		again, err := step(ctx)
		if err != nil && ctx.Err() == nil {
			failed(err)
		}
		timer.Reset(again)
	}
}

// Sleep waits for d, at once over if that is not above zero, or until ctx ends,
// whose error it returns then.
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
	return ctx.Err() // also if both came at the same time
}
