// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// meter shows how many bytes went by: a bar on a terminal, and lines elsewhere.
type meter struct {
	mu    sync.Mutex
	to    io.Writer
	name  string
	did   string // with them
	bar   *progressbar.ProgressBar
	n     int64
	total int64 // 0 if that is not known
	begun time.Time
	said  time.Time
}

func newMeter(to *os.File, name, did string) *meter {
	m := &meter{to: to, name: printable(name, 60), did: did, begun: time.Now(), said: time.Now()}
	if isTerminal(to) {
		m.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(to), progressbar.OptionSetPredictTime(false), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond))
	}
	return m
}

// expect says how many bytes there will be.
func (m *meter) expect(total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.total = total; m.bar != nil && total > 0 {
		m.bar.ChangeMax64(total)
	}
}

func (m *meter) add(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show(m.n + int64(n))
}

func (m *meter) set(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.show(n)
}

func (m *meter) show(n int64) {
	m.n = n
	if m.bar == nil && time.Since(m.said) < linesEvery {
		return
	}
	m.said = time.Now()
	text := fmt.Sprintf("%s: %s %s", m.name, size(n), m.did)
	if m.total > 0 {
		text = fmt.Sprintf("%s: %s of %s %s", m.name, size(n), size(m.total), m.did)
	}
	if passed := time.Since(m.begun).Seconds(); passed >= 1 {
		text += fmt.Sprintf(", %s/s", size(int64(float64(n)/passed)))
	}
	if m.bar == nil {
		_, _ = fmt.Fprintln(m.to, text)
		return
	}
	m.bar.Describe(text)
	if m.total > 0 {
		n = min(n, m.total)
	}
	_ = m.bar.Set64(n)
}

// say writes a line of its own.
func (m *meter) say(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Clear()
	}
	_, _ = fmt.Fprintln(m.to, text)
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bar != nil {
		_ = m.bar.Exit()
		_, _ = fmt.Fprintln(m.to)
	}
}
