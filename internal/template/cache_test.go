// SPDX-License-Identifier: Apache-2.0

package template

import (
	"runtime"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
)

// The cache stays near its limit, even with templates that take ten times the size of their
// sources.
func TestCacheBytes(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for what, source := range map[string]string{
		"tiny tags": strings.Repeat("{{a}}x", 10_000), "long names": strings.Repeat("{{a.b.c.d.e.f.g.h.i.j}}", 2_500), "text": strings.Repeat("Hello, {{name}}! ", 4_000),
	} {
		var all cache
		before := heap()
		for id := range db.ID(40) {
			c, err := Compile(Content{Subject: "x", HTML: source})
			if err != nil {
				t.Fatal(err)
			}
			all.add(cacheKey{id, 1}, c)
		}
		if took := heap() - before; len(all.entries) < 3 || took > maxCacheBytes+maxCacheBytes/4 {
			t.Errorf("%s: %d take %d KiB", what, len(all.entries), took>>10)
		}
		runtime.KeepAlive(&all)
	}
	var all cache
	c, err := Compile(Content{Subject: "x", Text: strings.Repeat("{{a}}", MaxSource/5)})
	if err != nil {
		t.Fatal(err)
	}
	if all.add(cacheKey{1, 1}, c); len(all.entries) > 0 {
		t.Error("it keeps what is too much by itself")
	}
}
