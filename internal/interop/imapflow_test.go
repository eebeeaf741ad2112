// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// imapflow, the IMAP client of many web applications, in scripts that check themselves: all IMAP
// features that it uses, and its notifications during IDLE.
func TestImapflow(t *testing.T) {
	s := servertest.Start(t)
	packages := npmPackages(t, "testdata/imapflow")
	for _, script := range []string{"work.js", "pushes.js"} {
		t.Run(script, func(t *testing.T) {
			p := newProgram(t, "DEV="+filepath.Join(s.Config.Data, "dev.json"), "NODE_PATH="+packages)
			t.Log(p.must("", "node", absolute(t, filepath.Join("testdata", "imapflow", script))))
		})
	}
}

// npmPackages returns where the packages of a directory's lock file are installed.
func npmPackages(t testing.TB, folder string) string {
	t.Helper()
	needtest.Program(t, "node")
	out, err := exec.Command("../../script/npm-packages", "--find", folder).Output()
	if err != nil {
		needtest.Missing(t, "the npm packages of %s are missing: `make test-packages` installs them", folder)
	}
	return strings.TrimSpace(string(out))
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}
