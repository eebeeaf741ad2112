// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/datadir"
)

// DataDir checks the data directory of a service.
type DataDir struct {
	Path   string
	SQLite bool // the database exists
	HasKey bool // the secret key exists: CheckSecretKey checks it
	HasCA  bool // the CA for self-signed certificates exists
}

const permissionFix = "Run doctor as the user that the service runs as, or as root."

// FixFor returns the fix for an error: to run as another user if permissions are the only problem,
// otherwise do.
func FixFor(err error, do string) string {
	if errors.Is(err, fs.ErrPermission) {
		return permissionFix
	}
	return do
}

// Check checks the directory's owner and permissions.
func (f DataDir) Check(_ context.Context, r *Report) {
	info, err := os.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.Warn("If a service has run before, look whether --data is right, and whether the disk is mounted.",
			"%s is not there; mailstead serve will make it, for a new service", f.Path)
		return
	case errors.Is(err, fs.ErrPermission):
		r.Fail(permissionFix, "%s can't be looked at by this user", f.Path)
		return
	case err != nil:
		r.Fail("Look at the disk.", "%v", err)
		return
	case !info.IsDir():
		r.Fail("Name a folder with --data.", "%s is no folder", f.Path)
		return
	}
	owner, mode := FileOwner(info), info.Mode().Perm()
	if me := os.Geteuid(); me != 0 && owner != me {
		r.Fail(permissionFix,
			"%s belongs to %s, and this is %s: what is in it can't be looked at as the service does", f.Path, userName(owner), userName(me))
		return
	}
	if mode&0o002 != 0 {
		r.Fail(fmt.Sprintf("Run chmod o-w %s.", f.Path), "every user of this machine may change %s (mode %04o)", f.Path, mode)
	}
	if mode&0o300 != 0o300 {
		r.Fail(fmt.Sprintf("Run chmod u+rwx %s.", f.Path), "its owner can't write to %s (mode %04o)", f.Path, mode)
	}
	f.checkFilePermissions(r, owner)
	if r.worst() == OK {
		r.OK("%s, mode %04o, of %s; what is secret in it is private", f.Path, mode, userName(owner))
	}
}

// checkFilePermissions checks the files with secrets or mail. Commands run as root, beside a
// service that is not, leave files that the service can't open.
func (f DataDir) checkFilePermissions(r *Report, owner int) {
	type rule struct {
		name string
		mask fs.FileMode
		fail bool // serve rejects it
	}
	rules := []rule{{"ca.key", 0o077, f.HasCA}, {"host.key", 0o077, false}, {datadir.LockFile, 0o002, false}, {"blobs", 0o007, false}, {"acme", 0o007, false}}
	if !f.HasKey {
		rules = append(rules, rule{datadir.KeyFile, 0o077, false})
	}
	names := []string{datadir.SearchFile}
	if f.SQLite {
		names = append(names, datadir.DatabaseFile)
	}
	for _, name := range names {
		for _, suffix := range []string{"", "-wal", "-shm"} {
			rules = append(rules, rule{name + suffix, 0o007, false})
		}
	}
	var foreign []string
	for _, x := range rules {
		path := filepath.Join(f.Path, x.name)
		info, err := os.Stat(path)
		if err != nil {
			continue // other checks report required files
		}
		if FileOwner(info) != owner {
			foreign = append(foreign, x.name)
		}
		mode := info.Mode().Perm()
		if mode&x.mask == 0 {
			continue
		}
		do := fmt.Sprintf("Run chmod %s %s.", map[fs.FileMode]string{0o077: "600", 0o007: "o=", 0o002: "o-w"}[x.mask], path)
		if x.fail {
			r.Fail(do, "others may read %s (mode %04o), with which mailstead serve does not start", path, mode)
		} else {
			r.Warn(do, "others may use %s (mode %04o)", path, mode)
		}
	}
	if len(foreign) > 0 {
		r.Fail(fmt.Sprintf("Run chown -R %s %s.", userName(owner), f.Path),
			"files of another user than %s, whose the folder is: %s", userName(owner), strings.Join(foreign, ", "))
	}
}

// FileOwner returns the id of the user that owns a file.
func FileOwner(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return os.Geteuid()
}

func userName(uid int) string {
	if u, err := user.LookupId(fmt.Sprint(uid)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("user %d", uid)
}

// Disk checks the file system of a directory.
type Disk struct {
	Path  string
	Space func(path string) (DiskSpace, error) // ReadDiskSpace
}

// DiskSpace is the capacity of a file system.
type DiskSpace struct {
	Size, Free       uint64 // bytes; free: for ordinary users
	Files, FreeFiles uint64 // maximum number of files, and how many more are possible; 0 and 0 if there is no limit
	ReadOnly         bool
}

// ReadDiskSpace returns the capacity of a path's file system.
func ReadDiskSpace(path string) (s DiskSpace, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return s, err
	}
	block := uint64(st.Bsize)
	const readOnly = 1 // ST_RDONLY
	return DiskSpace{
		Size: st.Blocks * block, Free: nonNegative(st.Bavail) * block, Files: st.Files, FreeFiles: nonNegative(st.Ffree), ReadOnly: st.Flags&readOnly != 0,
	}, nil
}

// nonNegative converts a number from Statfs, whose type depends on the system. The space for
// ordinary users may be negative.
func nonNegative[T int64 | uint64](n T) uint64 { return uint64(max(n, 0)) }

// Limits for free disk space. Below the minimum, the next SQLite checkpoint or a large message may
// not fit.
const (
	minFree  = 16 << 20
	lowFree  = 1 << 30
	lowFiles = 10_000
	minFiles = 100
)

// Check checks the free space.
func (d Disk) Check(_ context.Context, r *Report) {
	path := d.Path
	s, err := d.Space(path)
	for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) { // not created yet
		path = filepath.Dir(path)
		s, err = d.Space(path)
	}
	if err != nil {
		r.Fail(FixFor(err, "Look at the disk."), "%s: %v", d.Path, err)
		return
	}
	capacity := fmt.Sprintf("%s of %s free on the disk of %s", bytesize.Format(int64(s.Free)), bytesize.Format(int64(s.Size)), d.Path)
	more := "Make room, or move the folder to a larger disk: without room the service takes no mail in."
	switch {
	case s.ReadOnly:
		r.Fail("Mount it for writing; after errors of the disk Linux itself mounts it so: look at dmesg.", "the disk of %s is mounted read-only", d.Path)
	case s.Free < minFree:
		r.Fail(more, "%s: too little to write", capacity)
	case s.Files > 0 && s.FreeFiles < minFiles:
		r.Fail("Delete files that are not needed: without free inodes the service takes no large mail in.", "%d inodes left on the disk of %s", s.FreeFiles, d.Path)
	case s.Free < lowFree || s.Free < s.Size/10:
		r.Warn(more, "%s", capacity)
	case s.Files > 0 && (s.FreeFiles < lowFiles || s.FreeFiles < s.Files/10):
		r.Warn("Delete files that are not needed: each large message is a file.", "%d of %d inodes free on the disk of %s", s.FreeFiles, s.Files, d.Path)
	default:
		r.OK("%s", capacity)
	}
}

// SameDisk reports whether two directories, existing or not, are on one file system.
func SameDisk(a, b string) bool {
	return device(a) == device(b)
}

func device(path string) uint64 {
	var st syscall.Stat_t
	err := syscall.Stat(path, &st)
	for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
		path = filepath.Dir(path)
		err = syscall.Stat(path, &st)
	}
	return uint64(st.Dev) //nolint:unconvert // int32 elsewhere
}
