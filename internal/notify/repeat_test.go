// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var hub Hub
		sub := hub.Subscribe(Key{SenderNotice, 0})
		defer sub.Close()
		trouble := errors.New("the database is away")
		answers := []struct {
			again time.Duration
			err   error
		}{{0, nil}, {time.Minute, trouble}, {time.Hour, nil}, {time.Hour, nil}, {0, trouble}}
		begin := time.Now()
		var calls []time.Duration
		var told []error
		done := make(chan struct{})
		go func() {
			defer close(done)
			Repeat(ctx, sub.C, func(context.Context) (time.Duration, error) {
				calls = append(calls, time.Since(begin))
				a := answers[len(calls)-1]
				if len(calls) == len(answers) {
					end()
				}
				return a.again, a.err
			}, func(err error) { told = append(told, err) })
		}()
		// At once, at once again, a minute later; woken half an hour later, and
		// an hour after that.
		_ = Sleep(t.Context(), 31*time.Minute)
		hub.Wake(sub.key)
		<-done
		if want := []time.Duration{0, 0, time.Minute, 31 * time.Minute, 91 * time.Minute}; !slices.Equal(calls, want) {
			t.Errorf("called at %v, want %v", calls, want)
		}
		if !slices.Equal(told, []error{trouble}) {
			t.Errorf("told %v: once, and nothing when it was to end", told)
		}
	})
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		begin := time.Now()
		if err := Sleep(ctx, 40*time.Second); err != nil || time.Since(begin) != 40*time.Second {
			t.Errorf("slept %v: %v", time.Since(begin), err)
		}
		if err := Sleep(ctx, 40*time.Second); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Minute {
			t.Errorf("slept %v: %v", time.Since(begin), err)
		}
		if err := Sleep(ctx, 0); err != nil {
			t.Errorf("nothing to sleep: %v", err)
		}
	})
}
