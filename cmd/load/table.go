// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// unit is the unit of a figure, as it is printed.
type unit string

const (
	perSecond    unit = "/s"
	milliseconds unit = " ms"
	kibibytes    unit = " KiB"
	megabytes    unit = " MB"
	seconds      unit = " s"
	number       unit = ""
	ratio        unit = " " // printed with significant digits only
)

// metric is a number in a cell, such as "p99".
type metric struct {
	label string
	value float64
	unit  unit
}

func rateMetric(v float64) metric                { return metric{"", v, perSecond} }
func labeledRate(label string, v float64) metric { return metric{label, v, perSecond} }
func durationMetric(label string, d time.Duration) metric {
	return metric{label, d.Seconds() * 1e3, milliseconds}
}
func countMetric(label string, n int64) metric { return metric{label, float64(n), number} }

func (f metric) String() string {
	text := significant(f.value)
	if f.unit == perSecond || f.unit == number {
		text = thousands(f.value)
	}
	return strings.TrimSpace(f.label + " " + text + string(f.unit))
}

// significant formats a number with about three digits.
func significant(v float64) string {
	switch {
	case v >= 1000:
		return thousands(v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// report collects the figures of all runs; a cell shows their medians.
type report struct {
	systems []string
	cells   map[[2]string]*cell // by row and system
}

type cell struct {
	metrics []metric
	samples map[string][]float64
	note    string
}

func newReport() *report { return &report{cells: map[[2]string]*cell{}} }

func (r *report) at(row, system string) *cell {
	if !slices.Contains(r.systems, system) {
		r.systems = append(r.systems, system)
	}
	key := [2]string{row, system}
	if r.cells[key] == nil {
		r.cells[key] = &cell{samples: map[string][]float64{}}
	}
	return r.cells[key]
}

// add adds the figures of a run.
func (r *report) add(row, system string, figures ...metric) {
	c := r.at(row, system)
	for _, f := range figures {
		if _, known := c.samples[f.label]; !known {
			c.metrics = append(c.metrics, f)
		}
		c.samples[f.label] = append(c.samples[f.label], f.value)
	}
}

// note sets the reason why a cell has no figures.
func (r *report) note(row, system, text string) { r.at(row, system).note = text }

func (c *cell) String() string {
	if c == nil {
		return "–"
	}
	var parts []string
	for _, f := range c.metrics {
		f.value = median(c.samples[f.label])
		parts = append(parts, f.String())
	}
	if c.note != "" {
		parts = append(parts, c.note)
	}
	return strings.Join(parts, ", ")
}

// print prints, as Markdown, the rows with a result from any system.
func (r *report) print(w io.Writer, rows []row) error {
	var b strings.Builder
	fmt.Fprintf(&b, "| work | %s | to reach |\n|---|%s---|\n", strings.Join(r.systems, " | "), strings.Repeat("---|", len(r.systems)))
	for _, row := range rows {
		line, any := "| "+row.work, false
		for _, s := range r.systems {
			c := r.cells[[2]string{row.id, s}]
			any = any || c != nil
			line += " | " + c.String()
		}
		if any {
			b.WriteString(line + " | " + row.target + " |\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
