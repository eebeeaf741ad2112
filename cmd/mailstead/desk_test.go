// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"
)

// A device that is not a terminal has no user: commands ask nothing there.
func TestIsTerminal(t *testing.T) {
	for path, want := range map[string]bool{"/dev/null": false, "/dev/zero": false, "/dev/ptmx": true, t.TempDir(): false} {
		f, err := os.Open(path) //nolint:gosec // these alone
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // only looked at
		if got := isTerminal(f); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
