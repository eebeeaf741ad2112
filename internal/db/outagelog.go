// SPDX-License-Identifier: Apache-2.0

package db

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// CollapseOutages returns a handler that passes records on to h, but only one a second of those
// whose error is that the database can't be reached. It logs how many it left out: in an outage
// every queued delivery causes one. It reports the last of them with the next record of any kind.
func CollapseOutages(h slog.Handler) slog.Handler {
	return &outageHandler{Handler: h, counter: &outageCounter{base: h}}
}

type outageHandler struct {
	slog.Handler
	counter *outageCounter
}

type outageCounter struct {
	base slog.Handler // without a logger's attributes

	mu         sync.Mutex
	lastPassed time.Time // when a record about an outage was last passed on
	suppressed int       // number of records left out since then
	level      slog.Level
}

// outageInterval is how often one record about an outage is passed on.
const outageInterval = time.Second

// Handle passes the record on, or counts it.
func (h *outageHandler) Handle(ctx context.Context, r slog.Record) error {
	leftOut, level, pass := h.counter.record(isOutage(r), r.Level)
	if leftOut > 0 {
		more := slog.NewRecord(time.Now(), level, "more failed because the database could not be reached", 0)
		more.AddAttrs(slog.Int("count", leftOut))
		if err := h.counter.base.Handle(ctx, more); err != nil {
			return err
		}
	}
	if !pass {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a handler that adds attributes to each record.
func (h *outageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &outageHandler{Handler: h.Handler.WithAttrs(attrs), counter: h.counter}
}

// WithGroup returns a handler that adds attributes in a group.
func (h *outageHandler) WithGroup(name string) slog.Handler {
	return &outageHandler{Handler: h.Handler.WithGroup(name), counter: h.counter}
}

// record returns how many suppressed records to report now, their highest level, and whether to
// pass the record itself on. A record that is in the count is not passed on.
func (k *outageCounter) record(outage bool, level slog.Level) (leftOut int, most slog.Level, pass bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := time.Since(k.lastPassed) >= outageInterval
	if outage && (!due || k.suppressed > 0) {
		if k.suppressed++; k.suppressed == 1 || level > k.level {
			k.level = level
		}
	} else {
		pass = true
	}
	if due && k.suppressed > 0 {
		leftOut, most, k.suppressed = k.suppressed, k.level, 0
	}
	if due && outage {
		k.lastPassed = time.Now()
	}
	return leftOut, most, pass
}

// isOutage reports whether a record's error says that the database can't be reached.
func isOutage(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, _ := a.Value.Any().(error)
		var f *fault.Error
		yes = err != nil && errors.As(err, &f) && f.Code == codeUnavailable
		return !yes
	})
	return yes
}
