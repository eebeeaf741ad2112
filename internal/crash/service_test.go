// SPDX-License-Identifier: Apache-2.0

// Package crash runs the real binary, loads it through every door, and takes
// away what it stands on: the process, the disk. What was acknowledged must be
// where it belongs afterwards.
package crash

import (
	"fmt"
	"os"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// binary is the built program; TestMain sets it.
var binary string

func TestMain(m *testing.M) {
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mailstead-crash-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary folder
		binary, err = servertest.Build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// service is the program, as it runs now or will run again.
type service struct {
	*servertest.Process
	t testing.TB
}

// newService makes a service on a data folder, whose database is a URL from
// dbtest, and ends it with the test.
func newService(t testing.TB, data, url string) *service {
	return &service{servertest.NewProcess(t, binary, data, url), t}
}
