// SPDX-License-Identifier: Apache-2.0

// Package needtest decides what happens to a test that needs another program: it is skipped on a
// machine without that program, and by `go test -short`. Where every test must run, it fails.
package needtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Program returns the path of a program, which may be in one of the folders that only root
// searches. Without the program, and with -short, the test ends.
func Program(t testing.TB, name string) (path string) {
	t.Helper()
	Full(t, name)
	for _, dir := range []string{"", "/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	Missing(t, "%s is missing: `make test-packages` installs it", name)
	return ""
}

// Python returns the path of python3 with the given modules. Without them, and with -short, the
// test ends.
func Python(t testing.TB, modules ...string) (path string) {
	t.Helper()
	path = Program(t, "/usr/bin/python3") // Debian's, which has Debian's modules
	for _, m := range modules {
		if exec.CommandContext(t.Context(), path, "-c", "import "+m).Run() != nil {
			Missing(t, "python3 has no module %s: `make test-packages` installs it", m)
		}
	}
	return path
}

// Root ends the test without the rights of root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "this test needs root (or: unshare -rm)")
	}
}

// Full ends the test with -short. The part names what is too slow then.
func Full(t testing.TB, part string) {
	t.Helper()
	if testing.Short() {
		Missing(t, "%s is not tested with -short", part)
	}
}

// Missing ends the test for a reason that says how to get what is missing. The test fails if CI is
// true or MAILSTEAD_TEST_ALL is set, as `make test` does; otherwise it is skipped.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" || os.Getenv("MAILSTEAD_TEST_ALL") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
