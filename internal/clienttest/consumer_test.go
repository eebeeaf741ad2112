// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// A program that imports only the client downloads no dependency of the server: it builds, and its
// go.mod is complete, with an empty module cache and no proxy.
func TestConsumer(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": fmt.Sprintf("module example.com/consumer\n\ngo 1.26\n\nrequire github.com/mailstead/mailstead v0.0.0\n\nreplace github.com/mailstead/mailstead => %s\n", root),
		"main.go": "package main\n\nimport \"github.com/mailstead/mailstead/client\"\n\n" +
			"func main() { _, _ = client.New(\"https://mail.example.com\", \"key\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", os.DevNull, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOFLAGS=-modcacherw", "GOPROXY=off", "GOSUMDB=off", "GOWORK=off", "GOMODCACHE="+filepath.Join(dir, "cache"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %v: %v\n%s", args, err, out)
		}
	}
}
