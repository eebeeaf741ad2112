// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDriveDoesAsMuchAsItMay(t *testing.T) {
	work := func() error { return nil }
	out, err := runWorkers(runLimit{1000, time.Hour}, []func() error{work, work, work})
	if err != nil || out.done != 1000 || len(out.durations) != 1000 {
		t.Errorf("%d units, %v", out.done, err)
	}
	if out.percentile(50) > out.percentile(99) {
		t.Errorf("p50 %v, p99 %v", out.percentile(50), out.percentile(99))
	}
}

func TestDriveEndsAtTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	_, err := runWorkers(runLimit{1000, time.Hour}, []func() error{func() error {
		if n++; n == 5 {
			return broken
		}
		return nil
	}})
	if !errors.Is(err, broken) || n != 5 {
		t.Errorf("%d units, %v", n, err)
	}
	if _, err := runWorkers(runLimit{10, 0}, []func() error{func() error { return nil }}); err == nil {
		t.Error("a run in which nothing was done has figures")
	}
}

func TestMedian(t *testing.T) {
	if m := median([]float64{9, 1, 5}); m != 5 {
		t.Errorf("got %v", m)
	}
	if m := median[float64](nil); m != 0 {
		t.Errorf("got %v", m)
	}
}

func TestReport(t *testing.T) {
	r := newReport()
	for _, v := range []float64{3000, 1234.4, 1} {
		r.add("a", "one", rateMetric(v), durationMetric("p99", 1500*time.Microsecond), countMetric("backlog", 12345))
	}
	r.note("b", "two", "not measured")
	var out strings.Builder
	if err := r.print(&out, []row{{"a", "work A", "≥ 1"}, {"never", "not done", ""}, {"b", "work B", ""}}); err != nil {
		t.Fatal(err)
	}
	want := `| work | one | two | to reach |
|---|---|---|---|
| work A | 1,234/s, p99 1.50 ms, backlog 12,345 | – | ≥ 1 |
| work B | – | not measured |  |
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestMaterial(t *testing.T) {
	seen := map[string]int{}
	for i, l := range folderMessages(400, 8<<10) {
		m := string(l)
		if len(m) < 7500 || len(m) > 8700 {
			t.Errorf("letter %d has %d bytes", i, len(m))
		}
		for _, word := range []string{rareSubject, rareBody} {
			if strings.Contains(m, word) {
				seen[word]++
			}
		}
		for line := range strings.Lines(m) {
			if !strings.HasSuffix(line, "\r\n") || line[0] == '.' || len(line) > 998 {
				t.Fatalf("letter %d has a bad line %q", i, line)
			}
		}
	}
	if seen[rareSubject] != 4 || seen[rareBody] != 4 {
		t.Errorf("rare words: %v", seen)
	}
	s, err := newSigner()
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s.sign(plainMessage(1, "a@bench-sink.net", "b@bench-home.net"), "bench-sink.net")
	if err != nil || !strings.HasPrefix(string(signed), "DKIM-Signature:") || len(signed) < 4096 {
		t.Errorf("%d bytes, %v", len(signed), err)
	}
}
