// SPDX-License-Identifier: Apache-2.0

// Package doctor checks a service, running or stopped, and reports problems with fixes for its
// operator. It changes nothing: it takes no lock, opens no port, creates no file, and writes no
// row. Each check has its own deadline, so that a host that drops packets is reported as well.
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

// Status is the result of a check.
type Status string

// Values of Status. An error prevents the service from working, or soon will; a warning needs
// attention.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Error   Status = "error"
)

// Finding is one result of a check.
type Finding struct {
	Status  Status `json:"status"`
	Check   string `json:"check"`         // name of the check
	Message string `json:"message"`       // what was found
	Fix     string `json:"fix,omitempty"` // how to fix it; "" if it is ok
}

// Check is a named check.
type Check struct {
	Name string
	// Timeout is the limit for the check; 0: DefaultTimeout.
	Timeout time.Duration
	// Func must return soon after its context ends.
	Func func(ctx context.Context, r *Report)
}

// DefaultTimeout is the limit for a check that doesn't read everything.
const DefaultTimeout = 10 * time.Second

const (
	// maxConcurrent is the maximum number of concurrent checks.
	maxConcurrent = 8
	// gracePeriod is how long a check may take to report its own timeout.
	gracePeriod = time.Second
)

// Report collects the findings of a check.
type Report struct {
	name     string
	findings []Finding
}

// OK adds a finding without a problem.
func (r *Report) OK(format string, args ...any) {
	r.add(OK, "", fmt.Sprintf(format, args...))
}

// Warn adds a warning with its fix.
func (r *Report) Warn(do, format string, args ...any) {
	r.add(Warning, do, fmt.Sprintf(format, args...))
}

// Fail adds an error with its fix.
func (r *Report) Fail(do, format string, args ...any) {
	r.add(Error, do, fmt.Sprintf(format, args...))
}

func (r *Report) add(s Status, do, says string) {
	r.findings = append(r.findings, Finding{Status: s, Check: r.name, Message: printable(says), Fix: printable(do)})
}

// worst returns the most severe status so far.
func (r *Report) worst() Status {
	worst := OK
	for _, f := range r.findings {
		if f.Status == Error || worst == OK {
			worst = f.Status
		}
	}
	return worst
}

// Run runs the checks concurrently, and returns their findings in the order of the checks.
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

// run returns at the timeout even if the check hangs, for example on an unavailable file system;
// later findings are lost.
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

// maxText is how much foreign text is shown, in bytes.
const maxText = 400

// printable makes foreign text, such as a greeting, safe for a terminal, in one line.
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

// formatDuration formats a duration, rounded.
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

// plural formats a count: "1 domain", "2 domains", "more than 10000 domains".
func plural(n int, more bool, one, several string) string {
	switch {
	case more:
		return fmt.Sprintf("at least %d %s", n, several)
	case n == 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
