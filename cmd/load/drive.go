// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// bound ends a run: after so many units of work or so much time, whichever
// comes first.
type bound struct {
	count int
	limit time.Duration
}

// outcome is what a run did.
type outcome struct {
	done    int
	elapsed time.Duration
	took    []time.Duration // of each unit, sorted
}

func (o outcome) rate() float64 { return float64(o.done) / o.elapsed.Seconds() }

// percentile returns the time within which p of 100 units were done.
func (o outcome) percentile(p int) time.Duration {
	if len(o.took) == 0 {
		return 0
	}
	return o.took[min(len(o.took)-1, len(o.took)*p/100)]
}

// drive lets each worker do one unit after the other, all at the same time.
// The first error ends the run: figures of a run with failures mean nothing.
func drive(b bound, workers []func() error) (outcome, error) {
	var (
		given   atomic.Int64
		running sync.WaitGroup
		mu      sync.Mutex
		out     outcome
		failed  error
		stop    atomic.Bool
	)
	begin := time.Now()
	for _, work := range workers {
		running.Go(func() {
			var took []time.Duration
			var err error
			for err == nil && !stop.Load() && given.Add(1) <= int64(b.count) && time.Since(begin) < b.limit {
				start := time.Now()
				if err = work(); err == nil {
					took = append(took, time.Since(start))
				}
			}
			if err != nil {
				stop.Store(true)
			}
			mu.Lock()
			defer mu.Unlock()
			out.took = append(out.took, took...)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	out.elapsed, out.done = time.Since(begin), len(out.took)
	slices.Sort(out.took)
	if failed == nil && out.done == 0 {
		failed = errors.New("nothing was done")
	}
	if failed != nil {
		return out, fmt.Errorf("after %d units: %w", out.done, failed)
	}
	return out, nil
}

// session opens one of the connections of a run: its work, and how it ends.
type session func(i int) (work func() error, end func() error, err error)

// together opens n sessions at the same time, drives them and closes them.
// Opening is not in the figures.
func together(n int, b bound, open session) (outcome, error) {
	workers, ends, failed := make([]func() error, n), make([]func() error, n), make([]error, n)
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() { workers[i], ends[i], failed[i] = open(i) })
	}
	opening.Wait()
	defer func() {
		for _, end := range ends {
			if end != nil {
				_ = end() // what counts has been answered
			}
		}
	}()
	if err := errors.Join(failed...); err != nil {
		return outcome{}, err
	}
	return drive(b, workers)
}

// repeat times the same work n times and returns the median.
func repeat(n int, work func() error) (time.Duration, error) {
	var took []time.Duration
	for range n {
		start := time.Now()
		if err := work(); err != nil {
			return 0, err
		}
		took = append(took, time.Since(start))
	}
	return median(took), nil
}

// timed times work once.
func timed(work func() error) (time.Duration, error) { return repeat(1, work) }

func median[T time.Duration | float64](all []T) T {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
