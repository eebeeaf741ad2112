// SPDX-License-Identifier: Apache-2.0

// Package crash runs the real binary, loads it through every listener, and takes away its process,
// its disk or its power. Afterwards, every acknowledged message must be in its place.
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

// service is the program, running or stopped.
type service struct {
	*servertest.Process
	t testing.TB
}

// newService creates a service with a data directory and a database URL from dbtest, and stops it
// after the test.
func newService(t testing.TB, data, url string) *service {
	return &service{servertest.NewProcess(t, binary, data, url), t}
}
