// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"context"
	"sync"
)

// flights lets concurrent callers with the same question share one asking. It
// goes on while at least one of them waits, whoever began it, and ends with
// the last.
type flights struct {
	mu sync.Mutex
	m  map[question]*flight
}

type flight struct {
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed once answer and err are set
	answer  answer
	err     error
}

func newFlights() *flights { return &flights{m: make(map[question]*flight)} }

func (f *flights) do(ctx context.Context, q question, ask func(context.Context) (answer, error)) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	l := f.join(ctx, q, ask)
	select {
	case <-l.done:
		return l.answer, l.err
	case <-ctx.Done():
		f.leave(q, l)
		return answer{}, ctx.Err()
	}
}

func (f *flights) join(ctx context.Context, q question, ask func(context.Context) (answer, error)) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.m[q]; l != nil {
		l.waiting++
		return l
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &flight{waiting: 1, cancel: cancel, done: make(chan struct{})}
	f.m[q] = l
	go func() {
		defer cancel()
		l.answer, l.err = ask(ctx)
		f.mu.Lock()
		f.drop(q, l)
		f.mu.Unlock()
		close(l.done)
	}()
	return l
}

func (f *flights) leave(q question, l *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.waiting--; l.waiting == 0 {
		l.cancel()
		f.drop(q, l)
	}
}

// drop takes l away, so that the next caller begins anew.
func (f *flights) drop(q question, l *flight) {
	if f.m[q] == l {
		delete(f.m, q)
	}
}
