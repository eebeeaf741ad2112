// SPDX-License-Identifier: Apache-2.0

package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("text"), 0o600); err == nil {
		t.Error("replaced a folder")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
	if err := WriteFile(filepath.Join(dir, "no", "x"), nil, 0o600); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestMkdirAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 { // the second time it exists
		if err := MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(file, "c")} {
		if err := MkdirAll(path, 0o700); err == nil {
			t.Errorf("made the folder %s where a file is", path)
		}
	}
}
