// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
	"strings"
)

// change is a line of a comparison.
type change struct {
	Mark string // "+", "-", " ", or "…" for lines that were left out
	Text string
}

const (
	// maxDiff bounds the work of a comparison, in pairs of lines.
	maxDiff = 4_000_000
	// nearby is how many equal lines are shown around those that differ.
	nearby = 3
)

// diff compares two texts line by line; nil if they are equal. Of texts that
// are too long to be compared all lines differ.
func diff(old, new string) []change {
	if old == new {
		return nil
	}
	a, b := lines(old), lines(new)
	head, tail := 0, 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	all := marked(" ", a[:head])
	all = append(all, differ(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return folded(append(all, marked(" ", a[len(a)-tail:])...))
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func marked(mark string, lines []string) (out []change) {
	for _, l := range lines {
		out = append(out, change{mark, l})
	}
	return out
}

// differ finds the longest common subsequence.
func differ(a, b []string) (out []change) {
	if len(a)*len(b) > maxDiff || len(a) == 0 || len(b) == 0 {
		return append(marked("-", a), marked("+", b)...)
	}
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width) // of the rests from i and j
	for i, x := range slices.Backward(a) {
		for j, y := range slices.Backward(b) {
			if x == y {
				common[i*width+j] = common[(i+1)*width+j+1] + 1
			} else {
				common[i*width+j] = max(common[(i+1)*width+j], common[i*width+j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] == b[j]:
			out = append(out, change{" ", a[i]})
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, change{"-", a[i]})
			i++
		default:
			out = append(out, change{"+", b[j]})
			j++
		}
	}
	return append(append(out, marked("-", a[i:])...), marked("+", b[j:])...)
}

// folded leaves out equal lines that are far from those that differ.
func folded(all []change) (out []change) {
	for i := 0; i < len(all); {
		end := i
		for end < len(all) && all[end].Mark == " " {
			end++
		}
		before, after := nearby, nearby
		if i == 0 {
			before = 0
		}
		if end == len(all) {
			after = 0
		}
		if left := end - i - before - after; left > 1 {
			out = append(out, all[i:i+before]...)
			out = append(out, change{"…", fmt.Sprintf("%d equal lines", left)})
			out = append(out, all[end-after:end]...)
		} else {
			out = append(out, all[i:end]...)
		}
		if end < len(all) {
			out = append(out, all[end])
			end++
		}
		i = end
	}
	return out
}
