// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"slices"
	"strings"
)

// diffLine is a line of a comparison.
type diffLine struct {
	Mark string // "+", "-", " ", or "…" for omitted lines
	Text string
}

const (
	// maxDiffCells limits the work of a comparison, in pairs of lines.
	maxDiffCells = 4_000_000
	// contextLines is the number of equal lines shown around differences.
	contextLines = 3
)

// diff compares two texts line by line and returns nil if they are equal. If the texts are too long
// to compare, all lines count as different.
func diff(old, new string) []diffLine {
	if old == new {
		return nil
	}
	a, b := splitLines(old), splitLines(new)
	head, tail := 0, 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	all := markLines(" ", a[:head])
	all = append(all, diffLines(a[head:len(a)-tail], b[head:len(b)-tail])...)
	return collapseEqual(append(all, markLines(" ", a[len(a)-tail:])...))
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func markLines(mark string, lines []string) (out []diffLine) {
	for _, l := range lines {
		out = append(out, diffLine{mark, l})
	}
	return out
}

// diffLines compares lines by their longest common subsequence.
func diffLines(a, b []string) (out []diffLine) {
	if len(a)*len(b) > maxDiffCells || len(a) == 0 || len(b) == 0 {
		return append(markLines("-", a), markLines("+", b)...)
	}
	width := len(b) + 1
	common := make([]int32, (len(a)+1)*width) // lengths for the suffixes at i and j
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
			out = append(out, diffLine{" ", a[i]})
			i, j = i+1, j+1
		case common[(i+1)*width+j] >= common[i*width+j+1]:
			out = append(out, diffLine{"-", a[i]})
			i++
		default:
			out = append(out, diffLine{"+", b[j]})
			j++
		}
	}
	return append(append(out, markLines("-", a[i:])...), markLines("+", b[j:])...)
}

// collapseEqual omits equal lines far from any difference.
func collapseEqual(all []diffLine) (out []diffLine) {
	for i := 0; i < len(all); {
		end := i
		for end < len(all) && all[end].Mark == " " {
			end++
		}
		before, after := contextLines, contextLines
		if i == 0 {
			before = 0
		}
		if end == len(all) {
			after = 0
		}
		if left := end - i - before - after; left > 1 {
			out = append(out, all[i:i+before]...)
			out = append(out, diffLine{"…", fmt.Sprintf("%d equal lines", left)})
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
