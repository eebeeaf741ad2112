// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/doctor"
)

// Findings are in the order of the checks; a check that hangs and ignores its context is reported;
// foreign text is safe for a terminal.
func TestRun(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	first := make(chan struct{})
	found := doctor.Run(t.Context(), []doctor.Check{
		{Name: "a", Func: func(_ context.Context, r *doctor.Report) {
			<-first
			r.OK("one\x1b[2J\ntwo")
			r.Warn("do", "three")
		}},
		{Name: "b", Timeout: time.Millisecond, Func: func(context.Context, *doctor.Report) { <-hang }},
		{Name: "c", Func: func(ctx context.Context, r *doctor.Report) {
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("no deadline")
			}
			close(first)
			r.Fail("do", "%s", strings.Repeat("x", 10_000))
		}},
	})
	var names []string
	for _, f := range found {
		names = append(names, f.Check+" "+string(f.Status))
	}
	if got := strings.Join(names, ", "); got != "a ok, a warning, b error, c error" {
		t.Error(got)
	}
	if found[0].Message != "one?[2J two" || !strings.HasPrefix(found[2].Message, "no answer within") || len(found[3].Message) > 1000 {
		t.Errorf("%+v", found)
	}
}
