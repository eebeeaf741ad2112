// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The examples in the package's documentation do what they say, against a running service.
func TestExamples(t *testing.T) {
	s := servertest.Start(t)
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-run", "^Example", "../../client")
	cmd.Env = append(os.Environ(), "MAILSTEAD_URL="+s.Dev.BaseURL, "MAILSTEAD_API_KEY="+s.Dev.APIKey)
	out, err := cmd.CombinedOutput()
	if ran := strings.Count(string(out), "--- PASS: Example"); err != nil || ran < 4 {
		t.Errorf("%d examples passed: %v\n%s", ran, err, out)
	}
}
