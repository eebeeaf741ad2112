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

// runLimit ends a run after a number of units of work or a time, whichever comes first.
type runLimit struct {
	count    int
	duration time.Duration
}

// runResult is the result of a run.
type runResult struct {
	done      int
	elapsed   time.Duration
	durations []time.Duration // per unit, sorted
}

func (o runResult) rate() float64 { return float64(o.done) / o.elapsed.Seconds() }

// metrics returns the rate and the percentiles that most rows show.
func (o runResult) metrics() []metric {
	return []metric{rateMetric(o.rate()), durationMetric("p50", o.percentile(50)), durationMetric("p99", o.percentile(99))}
}

// percentile returns the time within which p of 100 units were done.
func (o runResult) percentile(p int) time.Duration {
	if len(o.durations) == 0 {
		return 0
	}
	return o.durations[min(len(o.durations)-1, len(o.durations)*p/100)]
}

// runWorkers runs all workers concurrently; each does one unit after the other. The first error
// ends the run: results of a run with failures mean nothing.
func runWorkers(b runLimit, workers []func() error) (runResult, error) {
	var (
		given   atomic.Int64
		running sync.WaitGroup
		mu      sync.Mutex
		out     runResult
		failed  error
		stop    atomic.Bool
	)
	begin := time.Now()
	for _, work := range workers {
		running.Go(func() {
			var took []time.Duration
			var err error
			for err == nil && !stop.Load() && given.Add(1) <= int64(b.count) && time.Since(begin) < b.duration {
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
			out.durations = append(out.durations, took...)
			failed = errors.Join(failed, err)
		})
	}
	running.Wait()
	out.elapsed, out.done = time.Since(begin), len(out.durations)
	slices.Sort(out.durations)
	if failed == nil && out.done == 0 {
		failed = errors.New("nothing was done")
	}
	if failed != nil {
		return out, fmt.Errorf("after %d units: %w", out.done, failed)
	}
	return out, nil
}

// openFunc opens one of a run's connections and returns functions for its work and its end.
type openFunc func(i int) (work func() error, end func() error, err error)

// runSessions opens n sessions concurrently, runs and closes them. The results don't include
// opening them.
func runSessions(n int, b runLimit, open openFunc) (runResult, error) {
	workers, ends, failed := make([]func() error, n), make([]func() error, n), make([]error, n)
	var opening sync.WaitGroup
	for i := range n {
		opening.Go(func() { workers[i], ends[i], failed[i] = open(i) })
	}
	opening.Wait()
	defer func() {
		for _, end := range ends {
			if end != nil {
				_ = end() // the measurement is done
			}
		}
	}()
	if err := errors.Join(failed...); err != nil {
		return runResult{}, err
	}
	return runWorkers(b, workers)
}

// medianDuration times the same work n times and returns the median.
func medianDuration(n int, work func() error) (time.Duration, error) {
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

// measure times work once.
func measure(work func() error) (time.Duration, error) { return medianDuration(1, work) }

func median[T time.Duration | float64](all []T) T {
	if len(all) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(all))
	return s[len(s)/2]
}
