// SPDX-License-Identifier: Apache-2.0

package dbtest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/needtest"
)

// Server returns the URL of the PostgreSQL server that MAILSTEAD_TEST_POSTGRES names. Without the
// variable, all tests of the process share a server that the first one starts. On a machine
// without PostgreSQL, and with -short, the test ends.
func Server(t testing.TB) string {
	t.Helper()
	needtest.Full(t, "PostgreSQL")
	if url := os.Getenv("MAILSTEAD_TEST_POSTGRES"); url != "" {
		return url
	}
	server, err := ownServer()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == exitMissing {
		needtest.Missing(t, "%s", strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		t.Fatal(err)
	}
	return server.url
}

// exitMissing is the exit status of script/with-postgres without a PostgreSQL.
const exitMissing = 69

type server struct {
	url   string
	stdin io.Closer // of the script; if it were garbage, it would be closed
}

// ownServer starts a server for this process. The server ends with the process, however that ends:
// the script stops it when its command has read the end of its standard input. No goroutine stays,
// as some tests look for leaked ones.
var ownServer = sync.OnceValues(func() (*server, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	script := filepath.Join(root, "script/with-postgres")
	cmd := exec.Command(script, "sh", "-c", `echo "$MAILSTEAD_TEST_POSTGRES" && exec cat`)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out := bufio.NewReader(stdout)
	line, _ := out.ReadString('\n')
	if strings.HasPrefix(line, "postgres://") {
		return &server{strings.TrimSpace(line), stdin}, nil
	}
	rest, _ := io.ReadAll(out)
	said := line + string(rest)
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		exit.Stderr = []byte(said)
	}
	return nil, fmt.Errorf("%s: %w\n%s", script, err, said)
})

// findRoot returns the path of this repository, which has the working directory of every test.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err = os.Stat(filepath.Join(dir, "script/with-postgres")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", err
		}
		dir = filepath.Dir(dir)
	}
}
