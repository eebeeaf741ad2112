// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain leaves out the examples where no service is given: internal/clienttest starts one and
// runs them. A test here that started it would make every consumer of the package download the
// server's dependencies.
func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv("MAILSTEAD_URL") == "" {
		_ = flag.Set("test.run", "^Test") // a registered flag
	}
	os.Exit(m.Run())
}
