// SPDX-License-Identifier: Apache-2.0

package dbtest_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// starts makes TestServerEnds start a server and wait.
const starts = "MAILSTEAD_TEST_STARTS_SERVER"

// A server that the tests started ends with their process, even if that is killed.
func TestServerEnds(t *testing.T) {
	if os.Getenv(starts) != "" {
		fmt.Println("server " + dbtest.Server(t))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	dbtest.Server(t) // fails or skips without PostgreSQL
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServerEnds$", "-test.v")
	child.Env = append(os.Environ(), starts+"=1", "MAILSTEAD_TEST_POSTGRES=")
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	url, lines := "", bufio.NewScanner(out)
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "server ")
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // the server has ended
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if _, err := conn.WaitForNotification(t.Context()); err == nil {
		t.Error("the server sent a notification")
	}
}
