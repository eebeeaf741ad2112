// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
)

// Names longer than the local limit are not remembered: thousands of them would fill the memory.
func TestLongNames(t *testing.T) {
	n := &folderMap{sourceOf: map[string]string{}, byName: map[string]*targetFolder{}, byFolder: map[mailfile.Folder]*targetFolder{}}
	x := &importer{folders: n}
	for _, name := range []string{"Work", strings.Repeat("x", 30<<10)} {
		to := &targetFolder{}
		n.byName[folder.SanitizeName([]string{name})] = to
		for range 2 {
			if got, err := x.targetFor(mailfile.Folder{Name: name}); err != nil || got != to {
				t.Errorf("a name of %d bytes: %v, %v", len(name), got, err)
			}
		}
	}
	if len(n.byFolder) != 1 {
		t.Errorf("%d names are remembered", len(n.byFolder))
	}
}
