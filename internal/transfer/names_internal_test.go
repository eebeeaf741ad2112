// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/folder"
)

// Names longer than any here are not remembered: thousands of them would fill the
// memory.
func TestLongNames(t *testing.T) {
	n := &names{taken: map[string]string{}, here: map[string]*target{}, there: map[archive.Folder]*target{}}
	x := &importing{names: n}
	for _, name := range []string{"Work", strings.Repeat("x", 30<<10)} {
		to := &target{}
		n.here[folder.FitName([]string{name})] = to
		for range 2 {
			if got, err := x.target(archive.Folder{Name: name}); err != nil || got != to {
				t.Errorf("a name of %d bytes: %v, %v", len(name), got, err)
			}
		}
	}
	if len(n.there) != 1 {
		t.Errorf("%d names are remembered", len(n.there))
	}
}
