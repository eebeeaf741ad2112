// SPDX-License-Identifier: Apache-2.0

package needtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
)

// recorder records how a test ends.
type recorder struct {
	testing.TB
	end string
}

func (r *recorder) Helper()                        {}
func (r *recorder) Fatalf(format string, a ...any) { r.stop("failed: ", format, a) }
func (r *recorder) Skipf(format string, a ...any)  { r.stop("skipped: ", format, a) }

func (r *recorder) stop(how, format string, a []any) {
	r.end = how + fmt.Sprintf(format, a...)
	panic(r)
}

func TestMissing(t *testing.T) {
	for _, c := range []struct{ ci, all, want string }{
		{"", "", "skipped: no sh"},
		{"false", "", "skipped: no sh"},
		{"true", "", "failed: no sh"},
		{"", "1", "failed: no sh"},
	} {
		t.Setenv("CI", c.ci)
		t.Setenv("MAILSTEAD_TEST_ALL", c.all)
		if got := end(t, func(t testing.TB) { needtest.Missing(t, "no %s", "sh") }); got != c.want {
			t.Errorf("with CI=%q and MAILSTEAD_TEST_ALL=%q: %q, want %q", c.ci, c.all, got, c.want)
		}
	}
}

func TestProgram(t *testing.T) {
	if path := needtest.Program(t, "sh"); path == "" {
		t.Error("no path of sh")
	}
	got := end(t, func(t testing.TB) { needtest.Program(t, "no-such-program") })
	if !strings.HasSuffix(got, ": no-such-program is missing: `make test-packages` installs it") {
		t.Errorf("without the program: %q", got)
	}
}

// end returns how a test ends.
func end(t *testing.T, test func(t testing.TB)) string {
	r := &recorder{TB: t}
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		test(r)
	}()
	return r.end
}
