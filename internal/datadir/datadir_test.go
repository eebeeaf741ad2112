// SPDX-License-Identifier: Apache-2.0

package datadir_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/datadir"
)

// A data folder has one process at a time, and keeps its holder and its key.
func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "data")
	var holders, keys []string
	for range 2 {
		d, err := datadir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := datadir.Open(path); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("opened twice: %v", err)
		}
		k, err := d.SecretKey("")
		if err != nil {
			t.Fatal(err)
		}
		holders, keys = append(holders, d.Holder), append(keys, k.Fingerprint())
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if holders[0] == "" || holders[0] != holders[1] || keys[0] != keys[1] {
		t.Errorf("holders %q, keys %q", holders, keys)
	}
}
