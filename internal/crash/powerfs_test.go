// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/mailstead/mailstead/internal/needtest"
)

// disk is an in-memory file system that loses power on demand: it then forgets unsynced data. Files
// lose single pages, directories single entries.
//
// Every inode has two states: the live one, which processes see, and the one on disk. A sync of a
// file copies its dirty pages to disk. The effect on a directory's entries depends on the model,
// see mountDisk.
type disk struct {
	fuse.RawFileSystem
	dir     string // mount point
	strict  bool
	chaos   *rand.Rand // chooses the unsynced data that survives; nil: none does
	mounted *fuse.Server

	mu      sync.Mutex
	lost    chan struct{} // closed to make calls fail; nil while there is power
	inodes  map[uint64]*inode
	next    uint64
	folders map[uint64][]fuse.DirEntry // open directories, by handle
	pending []operation                // operations on entries that are not on disk yet
}

// operation is the effect of one call on entries.
type operation []entry

// entry assigns a name in a directory to an inode, or removes it (nil).
type entry struct {
	folder *inode
	name   string
	target *inode
}

const pageSize = 4096

type inode struct {
	id    uint64
	mode  uint32
	times [2]syscall.Timespec // access, change

	data, saved []byte       // of a file: live, on disk
	dirty       map[int]bool // pages that differ

	entries, savedEntries map[string]*inode // of a directory: live, on disk
}

// mountDisk mounts an empty disk in a new directory. In the strict model, an entry is durable once
// its own directory is synced, as POSIX says. Otherwise any sync makes all earlier operations on
// entries durable, in order, as the journals of ext4 and XFS do.
func mountDisk(t *testing.T, strict bool, chaos *rand.Rand) *disk {
	t.Helper()
	d := &disk{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), dir: t.TempDir(), strict: strict, chaos: chaos,
		inodes: map[uint64]*inode{}, folders: map[uint64][]fuse.DirEntry{}, next: fuse.FUSE_ROOT_ID,
	}
	d.make(syscall.S_IFDIR | 0o700)
	d.mount(t)
	t.Cleanup(func() { d.unmount(t) })
	return d
}

func (d *disk) mount(t *testing.T) {
	t.Helper()
	needtest.Root(t)
	if _, err := os.Stat("/dev/fuse"); err != nil {
		needtest.Missing(t, "this test needs FUSE: %v", err)
	}
	s, err := fuse.NewServer(d, d.dir, &fuse.MountOptions{
		FsName: "powerless", DirectMountStrict: true, MaxWrite: 1 << 20, DisableXAttrs: true, DisableReadDirPlus: true,
	})
	if err == nil {
		go s.Serve()
		err = s.WaitMount()
	}
	if err != nil {
		t.Fatalf("mounting a file system: %v", err)
	}
	d.mounted = s
}

func (d *disk) unmount(t *testing.T) {
	t.Helper()
	if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
		t.Errorf("unmounting %s: %v", d.dir, err)
	}
	d.mounted.Wait()
}

// cut turns the power off: no call returns any more.
func (d *disk) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lost = make(chan struct{})
}

// restart turns the power on again after the processes were killed: data that was not on disk is
// gone. It calls dead when the hanging calls have returned.
func (d *disk) restart(t *testing.T, dead func()) {
	t.Helper()
	close(d.lost)
	dead()
	d.unmount(t)
	d.mu.Lock()
	d.forget()
	d.lost = nil
	d.mu.Unlock()
	d.mount(t)
}

// forget replaces the live state by that on disk.
func (d *disk) forget() {
	d.survive()
	d.pending = nil
	clear(d.folders)
	reached := map[uint64]*inode{}
	var walk func(*inode)
	walk = func(n *inode) {
		if reached[n.id] != nil {
			return
		}
		reached[n.id] = n
		for page := range n.dirty {
			if d.chaos != nil && d.chaos.IntN(2) == 0 {
				n.save(page)
			}
		}
		n.data, n.dirty = slices.Clone(n.saved), map[int]bool{}
		n.entries = maps.Clone(n.savedEntries)
		for _, name := range slices.Sorted(maps.Keys(n.entries)) {
			walk(n.entries[name])
		}
	}
	walk(d.inodes[fuse.FUSE_ROOT_ID])
	d.inodes = reached
}

// survive lets some of the pending operations reach the disk, in order: in the strict model, some
// of each directory.
func (d *disk) survive() {
	if d.chaos == nil {
		return
	}
	if !d.strict {
		d.commit(d.pending[:d.chaos.IntN(len(d.pending)+1)])
		return
	}
	over := map[*inode]bool{}
	for _, o := range d.pending {
		if folder := o[0].folder; !over[folder] {
			if d.chaos.IntN(4) == 0 {
				over[folder] = true
				continue
			}
			d.commit([]operation{o})
		}
	}
}

func (d *disk) commit(done []operation) {
	for _, o := range done {
		for _, e := range o {
			if e.target == nil {
				delete(e.folder.savedEntries, e.name)
			} else {
				e.folder.savedEntries[e.name] = e.target
			}
		}
	}
}

// change performs an operation on entries.
func (d *disk) change(o ...entry) {
	for _, e := range o {
		if e.target == nil {
			delete(e.folder.entries, e.name)
		} else {
			e.folder.entries[e.name] = e.target
		}
		if d.strict {
			d.pending = append(d.pending, operation{e})
		}
	}
	if !d.strict {
		d.pending = append(d.pending, o)
	}
}

// sync writes an inode to disk, and pending operations according to the model.
func (d *disk) sync(n *inode) {
	for page := range n.dirty {
		n.save(page)
	}
	if n.entries == nil {
		n.saved = resize(n.saved, len(n.data))
	}
	n.dirty = map[int]bool{}
	var rest []operation
	for _, o := range d.pending {
		if d.strict && o[0].folder != n {
			rest = append(rest, o)
			continue
		}
		d.commit([]operation{o})
	}
	d.pending = rest
}

// save writes a page to disk. A page beyond the end extends the file, with zeros before it.
func (n *inode) save(page int) {
	from, to := page*pageSize, min((page+1)*pageSize, len(n.data))
	if from >= to {
		return
	}
	if to > len(n.saved) {
		n.saved = resize(n.saved, to)
	}
	copy(n.saved[from:to], n.data[from:to])
}

// resize zeroes truncated data, so that it never reappears.
func resize(b []byte, size int) []byte {
	if size <= len(b) {
		return b[:size:size]
	}
	return append(b, make([]byte, size-len(b))...)
}

func (n *inode) resize(size int) {
	n.touch(min(size, len(n.data)), max(size, len(n.data)))
	n.data = resize(n.data, size)
}

func (n *inode) touch(from, to int) {
	for page := from / pageSize; page*pageSize < to; page++ {
		n.dirty[page] = true
	}
	n.now()
}

func (n *inode) now() {
	n.times[1] = syscall.NsecToTimespec(time.Now().UnixNano())
}

func (d *disk) make(mode uint32) *inode {
	n := &inode{id: d.next, mode: mode, dirty: map[int]bool{}}
	n.now()
	n.times[0] = n.times[1]
	if mode&syscall.S_IFMT == syscall.S_IFDIR {
		n.entries, n.savedEntries = map[string]*inode{}, map[string]*inode{}
	}
	d.inodes[n.id] = n
	d.next++
	return n
}

// begin locks the disk for a call on an inode. Without power it blocks until the end.
func (d *disk) begin(id uint64) (*inode, fuse.Status) {
	d.mu.Lock()
	if lost := d.lost; lost != nil {
		d.mu.Unlock()
		<-lost
		d.mu.Lock()
		return nil, fuse.EIO
	}
	n := d.inodes[id]
	if n == nil {
		return nil, fuse.Status(syscall.ESTALE)
	}
	return n, fuse.OK
}

func (n *inode) attr(a *fuse.Attr) {
	links := uint32(1)
	if n.entries != nil {
		links = 2
	}
	*a = fuse.Attr{
		Ino: n.id, Mode: n.mode, Size: uint64(len(n.data)), Blksize: pageSize, Blocks: uint64(len(n.data)+511) / 512, Nlink: links,
		Atime: uint64(n.times[0].Sec), Atimensec: uint32(n.times[0].Nsec),
		Mtime: uint64(n.times[1].Sec), Mtimensec: uint32(n.times[1].Nsec),
		Ctime: uint64(n.times[1].Sec), Ctimensec: uint32(n.times[1].Nsec),
		Owner: fuse.Owner{Uid: uint32(os.Getuid()), Gid: uint32(os.Getgid())},
	}
}

func (n *inode) describe(out *fuse.EntryOut) {
	out.NodeId, out.Generation = n.id, 1
	n.attr(&out.Attr)
}
