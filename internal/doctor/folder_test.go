// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mailstead/mailstead/internal/doctor"
)

func write(t *testing.T, mode os.FileMode, path ...string) string {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.WriteFile(name, []byte("x"), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, mode); err != nil { // independent of the umask
		t.Fatal(err)
	}
	return name
}

func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	f := doctor.DataDir{Path: dir, SQLite: true, HasKey: true}
	expect(t, f.Check, doctor.Warning, "is not there")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	expect(t, f.Check, doctor.OK, "mode 0700")

	key := write(t, 0o640, dir, "secret.key")
	expect(t, f.Check, doctor.OK, "mode 0700") // the check of the key reports that
	given := f
	given.HasKey = false
	expect(t, given.Check, doctor.Warning, "others may use "+key)
	write(t, 0o600, dir, "secret.key")
	authority := write(t, 0o644, dir, "ca.key")
	expect(t, f.Check, doctor.Warning, "others may use "+authority)
	signs := f
	signs.HasCA = true
	expect(t, signs.Check, doctor.Error, "others may read "+authority+" (mode 0644), with which mailstead serve does not start")
	write(t, 0o600, dir, "ca.key")

	wal := write(t, 0o644, dir, "mailstead.db-wal")
	expect(t, f.Check, doctor.Warning, "others may use "+wal+" (mode 0644)")
	write(t, 0o640, dir, "mailstead.db-wal") // group permissions are a choice
	expect(t, f.Check, doctor.OK, "private")

	for mode, says := range map[os.FileMode]string{0o703: "every user of this machine may change", 0o500: "its owner can't write"} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		expect(t, f.Check, doctor.Error, says)
	}
	expect(t, doctor.DataDir{Path: key}.Check, doctor.Error, "")
}

// A command run as root leaves files that the service can't open.
func TestFolderOfAnother(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "mailstead.db-wal")
	if os.Geteuid() == 0 {
		if err := os.Chown(write(t, 0o600, path), 12345, -1); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Symlink("/usr/bin", path); err != nil { // owned by root
		t.Fatal(err)
	}
	found := look(t, doctor.DataDir{Path: dir, SQLite: true}.Check)
	if last := found[len(found)-1]; last.Status != doctor.Error || !strings.Contains(last.Message, "files of another user than") || !strings.HasSuffix(last.Message, ": mailstead.db-wal") {
		t.Errorf("%+v", found)
	}
}

// Limits for disk usage.
func TestDisk(t *testing.T) {
	expect(t, doctor.Disk{Path: filepath.Join(t.TempDir(), "not", "there"), Space: fixed(doctor.DiskSpace{Size: 100 << 30, Free: 50 << 30, Files: 1e6, FreeFiles: 5e5})}.Check, doctor.OK, "50 GB of 100 GB free")
	for _, c := range []struct {
		space  doctor.DiskSpace
		status doctor.Status
		says   string
	}{
		{doctor.DiskSpace{Size: 100 << 30, Free: 9 << 30}, doctor.Warning, "9.0 GB of 100 GB"},
		{doctor.DiskSpace{Size: 5 << 30, Free: 900 << 20}, doctor.Warning, "900 MB of 5.0 GB"},
		{doctor.DiskSpace{Size: 5 << 30, Free: 1 << 20}, doctor.Error, "too little to write"},
		{doctor.DiskSpace{Size: 100 << 30, Free: 50 << 30, Files: 1e6, FreeFiles: 50}, doctor.Error, "50 inodes left"},
		{doctor.DiskSpace{Size: 100 << 30, Free: 50 << 30, Files: 1e6, FreeFiles: 5e4}, doctor.Warning, "of 1000000 inodes free"},
		{doctor.DiskSpace{Size: 100 << 30, Free: 50 << 30, ReadOnly: true}, doctor.Error, "read-only"},
	} {
		expect(t, doctor.Disk{Path: "/", Space: fixed(c.space)}.Check, c.status, c.says)
	}
	if s, err := doctor.ReadDiskSpace(t.TempDir()); err != nil || s.Size == 0 || s.Free > s.Size {
		t.Errorf("%+v, %v", s, err)
	}
}

func fixed(s doctor.DiskSpace) func(string) (doctor.DiskSpace, error) {
	return func(string) (doctor.DiskSpace, error) { return s, nil }
}

// The owner of a lock is found without trying to take it.
func TestHolder(t *testing.T) {
	path := write(t, 0o600, t.TempDir(), "lock")
	if pid, known := doctor.LockHolder(path); pid != 0 || !known {
		t.Errorf("nobody has it: %d, %v", pid, known)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if pid, known := doctor.LockHolder(path); pid != os.Getpid() || !known {
		t.Errorf("this process, %d, has it: %d, %v", os.Getpid(), pid, known)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if pid, _ := doctor.LockHolder(path); pid != 0 {
		t.Errorf("let go: %d", pid)
	}
}

// A user without permission is told to run as another user, not to restore something.
func TestUnless(t *testing.T) {
	if got := doctor.FixFor(os.ErrNotExist, "restore"); got != "restore" {
		t.Error(got)
	}
	denied := &os.PathError{Op: "open", Path: "x", Err: syscall.EACCES}
	if got := doctor.FixFor(denied, "restore"); !strings.Contains(got, "as root") {
		t.Error(got)
	}
}
