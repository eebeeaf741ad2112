// SPDX-License-Identifier: Apache-2.0

// Package doctor looks at a service, running or stopped, and says what is wrong
// with it in words that its operator can act on. It changes nothing: no lock is
// taken, no port opened, no file made, and no row written. Each check has a
// deadline of its own, so that a host which swallows packets is told of as well.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Status is what a check has come to.
type Status string

// The statuses. An error keeps the service from doing its work, or soon will; a
// warning is to be looked into.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Error   Status = "error"
)

// Finding is what a check has found out about one thing.
type Finding struct {
	Status  Status `json:"status"`
	Check   string `json:"check"`        // the thing that was looked at
	Message string `json:"says"`         // how it is
	Fix     string `json:"do,omitempty"` // what to do about it; "" if it is ok
}

// Check is one thing to look at.
type Check struct {
	Name string
	// Timeout is how long it may take; 0: Patience.
	Timeout time.Duration
	// Func must not outlive its context for long.
	Func func(ctx context.Context, r *Report)
}

// DefaultTimeout is how long a check may take that does not read everything.
const DefaultTimeout = 10 * time.Second

const (
	// maxConcurrent bounds how many checks run side by side.
	maxConcurrent = 8
	// gracePeriod is how long a check that is over time may take to say so itself.
	gracePeriod = time.Second
)

// Report takes what a check finds.
type Report struct {
	name     string
	findings []Finding
}

// OK notes that something is as it should be.
func (r *Report) OK(format string, args ...any) {
	r.add(OK, "", fmt.Sprintf(format, args...))
}

// Warn notes something to look into, and what to do about it.
func (r *Report) Warn(do, format string, args ...any) {
	r.add(Warning, do, fmt.Sprintf(format, args...))
}

// Fail notes something wrong, and what to do about it.
func (r *Report) Fail(do, format string, args ...any) {
	r.add(Error, do, fmt.Sprintf(format, args...))
}

func (r *Report) add(s Status, do, says string) {
	r.findings = append(r.findings, Finding{Status: s, Check: r.name, Message: printable(says), Fix: printable(do)})
}

// worst is the gravest status that was noted so far.
func (r *Report) worst() Status {
	worst := OK
	for _, f := range r.findings {
		if f.Status == Error || worst == OK {
			worst = f.Status
		}
	}
	return worst
}

// Run carries out the checks, several side by side, and returns what they found
// in their own order.
func Run(ctx context.Context, checks []Check) []Finding {
	found := make([][]Finding, len(checks))
	slots := make(chan struct{}, maxConcurrent)
	var work sync.WaitGroup
	for i, c := range checks {
		work.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i] = c.run(ctx)
		})
	}
	work.Wait()
	return slices.Concat(found...)
}

// run ends with its limit even if the check hangs, as a file system that went
// away makes it do; what it finds later is lost.
func (c Check) run(ctx context.Context) []Finding {
	limit := c.Timeout
	if limit == 0 {
		limit = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done := make(chan []Finding, 1)
	go func() {
		r := &Report{name: c.Name}
		c.Func(ctx, r)
		done <- r.findings
	}()
	select {
	case found := <-done:
		return found
	case <-ctx.Done():
	}
	late := time.NewTimer(gracePeriod)
	defer late.Stop()
	select {
	case found := <-done:
		return found
	case <-late.C:
		r := &Report{name: c.Name}
		r.Fail("Look whether the disk, or the host behind it, answers at all.", "no answer within %s", limit)
		return r.findings
	}
}

// unlimitedText is how much of what others say is shown.
const maxText = 400

// printable keeps what others made up, such as a greeting, from doing things to
// a terminal, and in one line.
func printable(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s))
	if r := []rune(s); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return s
}

// formatBytes shows a size as people read it.
func formatBytes(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GB", n>>30)
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%d MB", n>>20)
	}
	return fmt.Sprintf("%d KB", (n+1023)>>10)
}

// formatDuration shows how long something takes, coarsely.
func formatDuration(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// plural counts things: "1 domain", "2 domains", "more than 10000 domains".
func plural(n int, more bool, one, several string) string {
	switch {
	case more:
		return fmt.Sprintf("at least %d %s", n, several)
	case n == 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
