// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// The files that tell of keywords take little more memory than their size.
func TestMemoryOfKeywords(t *testing.T) {
	var lines strings.Builder
	for n := int64(1); lines.Len() < maxSideFile-20; n++ {
		lines.WriteString(strconv.FormatInt(n, 36) + " a\n")
	}
	var ours strings.Builder
	for n := int64(1); ours.Len() < maxSideFile-20; n++ {
		ours.WriteString("U" + strconv.FormatInt(n, 36) + "V1 a\n")
	}
	for name, text := range map[string]string{"words": "U1V1" + strings.Repeat(" a", maxSideFile/2-2), "lines": lines.String(), "our lines": ours.String()} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := newMaildirs()
		for n := range 4 {
			if _, err := d.side(fmt.Sprint(n), moreFile, strings.NewReader(text[:min(len(text), maxSideFile-1)]), Sink{}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := int64(after.HeapAlloc - before.HeapAlloc); n > 8*4*maxSideFile {
			t.Errorf("%s: %d MB are kept", name, n>>20)
		}
		runtime.KeepAlive(d)
	}
}
