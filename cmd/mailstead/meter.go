// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/mailstead/mailstead/internal/bytesize"
)

// byteProgress shows the number of bytes processed: a bar on a terminal, otherwise lines.
type byteProgress struct {
	mu        sync.Mutex
	w         io.Writer
	name      string
	verb      string // with them
	bar       *progressbar.ProgressBar
	n         int64
	total     int64 // 0: unknown
	startedAt time.Time
	printedAt time.Time
}

func newByteProgress(to *os.File, name, did string) *byteProgress {
	m := &byteProgress{w: to, name: printable(name, 60), verb: did, startedAt: time.Now(), printedAt: time.Now()}
	if isTerminal(to) {
		m.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(to), progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond))
	}
	return m
}

// expect sets the expected number of bytes.
func (m *byteProgress) expect(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total = total; m.bar != nil && total > 0 {
		m.bar.ChangeMax64(total)
	}
}

func (m *byteProgress) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show(m.n + int64(n))
}

func (m *byteProgress) set(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show(n)
}

func (m *byteProgress) show(n int64) {
	m.n = n
	if m.bar == nil && time.Since(m.printedAt) < lineInterval {
		return
	}
	m.printedAt = time.Now()
	text := fmt.Sprintf("%s: %s %s", m.name, bytesize.Format(n), m.verb)
	if m.total > 0 {
		text = fmt.Sprintf("%s: %s of %s %s", m.name, bytesize.Format(n), bytesize.Format(m.total), m.verb)
	}
	if passed := time.Since(m.startedAt).Seconds(); passed >= 1 {
		text += fmt.Sprintf(", %s/s", bytesize.Format(int64(float64(n)/passed)))
	}
	if m.bar == nil {
		_, _ = fmt.Fprintln(m.w, text)
		return
	}
	m.bar.Describe(text)
	if m.total > 0 {
		n = min(n, m.total)
	}
	_ = m.bar.Set64(n)
}

// printLine prints a separate line.
func (m *byteProgress) printLine(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	_, _ = fmt.Fprintln(m.w, text)
}

func (m *byteProgress) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Exit()
		_, _ = fmt.Fprintln(m.w)
	}
}
