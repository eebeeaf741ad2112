// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maildir is a tree of Maildirs of a program that synchronizes mail.
type maildir struct {
	t    testing.TB
	dir  string
	name func(folder string) string // the program's name for a folder
}

func newMaildir(t testing.TB, dir string, name func(string) string) *maildir {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &maildir{t, dir, name}
}

func (m *maildir) path(folder string) string { return filepath.Join(m.dir, m.name(folder)) }

func (m *maildir) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// files returns the paths of a folder's messages.
func (m *maildir) files(folder string) (paths []string) {
	m.t.Helper()
	for _, sub := range []string{"cur", "new"} {
		entries, err := os.ReadDir(filepath.Join(folder, sub))
		m.must(err)
		for _, e := range entries {
			paths = append(paths, filepath.Join(folder, sub, e.Name()))
		}
	}
	return paths
}

// find returns the file with a subject, "" if there is none.
func (m *maildir) find(folder, subject string) (path string) {
	m.t.Helper()
	for _, p := range m.files(m.path(folder)) {
		text, err := os.ReadFile(p)
		m.must(err)
		if strings.Contains(string(text), "Subject: "+subject+"\n") || strings.Contains(string(text), "Subject: "+subject+"\r\n") {
			if path != "" {
				m.t.Fatalf("%s has %q twice", folder, subject)
			}
			path = p
		}
	}
	return path
}

// flags returns the letters of a message's flags; a missing message fails the test.
func (m *maildir) flags(folder, subject string) string {
	m.t.Helper()
	path := m.find(folder, subject)
	if path == "" {
		m.t.Fatalf("%s has no %q", folder, subject)
	}
	_, info, _ := strings.Cut(filepath.Base(path), ":2,")
	return info
}

// flag sets a message's flags, like a reader of the Maildir.
func (m *maildir) flag(folder, subject, mails string) {
	m.t.Helper()
	path := m.find(folder, subject)
	name, _, _ := strings.Cut(filepath.Base(path), ":2,")
	m.must(os.Rename(path, filepath.Join(m.path(folder), "cur", name+":2,"+mails)))
}

// remove deletes a message.
func (m *maildir) remove(folder, subject string) {
	m.t.Helper()
	m.must(os.Remove(m.find(folder, subject)))
}

// move moves a message to another folder, where it is new.
func (m *maildir) move(folder, subject, to string) {
	m.t.Helper()
	path := m.find(folder, subject)
	_, info, _ := strings.Cut(filepath.Base(path), ":2,")
	m.must(os.Rename(path, filepath.Join(m.path(to), "cur", "moved."+strings.ReplaceAll(subject, " ", "_")+":2,"+info)))
}

// put files a message, in a folder that is created with its parents if necessary.
func (m *maildir) put(folder, name, text string) {
	m.t.Helper()
	at := m.dir
	for _, piece := range strings.Split(m.name(folder), "/") {
		at = filepath.Join(at, piece)
		for _, sub := range []string{"cur", "new", "tmp"} {
			m.must(os.MkdirAll(filepath.Join(at, sub), 0o700))
		}
	}
	m.must(os.WriteFile(filepath.Join(at, "new", name), []byte(text), 0o600))
}

// all returns every message of every folder with its flags.
func (m *maildir) all() (paths []string) {
	m.t.Helper()
	m.must(filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "cur" {
			paths = append(paths, m.files(filepath.Dir(path))...)
		}
		return err
	}))
	slices.Sort(paths)
	return paths
}
