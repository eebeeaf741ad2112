// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"maps"
	"slices"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"
)

// The system calls of a disk. Inodes live as long as the mount, so that unlinked files stay usable.

func (d *disk) Lookup(_ <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	folder, status := d.begin(h.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	n := folder.entries[name]
	if n == nil {
		return fuse.ENOENT
	}
	n.describe(out)
	return fuse.OK
}

func (d *disk) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status == fuse.OK {
		n.attr(&out.Attr)
	}
	return status
}

func (d *disk) SetAttr(_ <-chan struct{}, in *fuse.SetAttrIn, out *fuse.AttrOut) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	if mode, ok := in.GetMode(); ok {
		n.mode = n.mode&syscall.S_IFMT | mode&0o7777
	}
	if size, ok := in.GetSize(); ok {
		n.resize(int(size))
	}
	if at, ok := in.GetATime(); ok {
		n.times[0] = syscall.NsecToTimespec(at.UnixNano())
	}
	if at, ok := in.GetMTime(); ok {
		n.times[1] = syscall.NsecToTimespec(at.UnixNano())
	}
	n.attr(&out.Attr)
	return fuse.OK
}

func (d *disk) add(folder uint64, name string, mode uint32, out *fuse.EntryOut) fuse.Status {
	parent, status := d.begin(folder)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	if parent.entries[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	n := d.make(mode)
	d.change(entry{parent, name, n})
	n.describe(out)
	return fuse.OK
}

func (d *disk) Mkdir(_ <-chan struct{}, in *fuse.MkdirIn, name string, out *fuse.EntryOut) fuse.Status {
	return d.add(in.NodeId, name, syscall.S_IFDIR|in.Mode&0o7777, out)
}

func (d *disk) Mknod(_ <-chan struct{}, in *fuse.MknodIn, name string, out *fuse.EntryOut) fuse.Status {
	return d.add(in.NodeId, name, in.Mode, out)
}

func (d *disk) Create(_ <-chan struct{}, in *fuse.CreateIn, name string, out *fuse.CreateOut) fuse.Status {
	return d.add(in.NodeId, name, syscall.S_IFREG|in.Mode&0o7777, &out.EntryOut)
}

func (d *disk) Link(_ <-chan struct{}, in *fuse.LinkIn, name string, out *fuse.EntryOut) fuse.Status {
	folder, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	n := d.inodes[in.Oldnodeid]
	if n == nil {
		return fuse.ENOENT
	}
	if folder.entries[name] != nil {
		return fuse.Status(syscall.EEXIST)
	}
	d.change(entry{folder, name, n})
	n.describe(out)
	return fuse.OK
}

func (d *disk) Unlink(_ <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	folder, status := d.begin(h.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	n := folder.entries[name]
	if n == nil {
		return fuse.ENOENT
	}
	if len(n.entries) > 0 {
		return fuse.Status(syscall.ENOTEMPTY)
	}
	d.change(entry{folder, name, nil})
	return fuse.OK
}

func (d *disk) Rmdir(cancel <-chan struct{}, h *fuse.InHeader, name string) fuse.Status {
	return d.Unlink(cancel, h, name)
}

func (d *disk) Rename(_ <-chan struct{}, in *fuse.RenameIn, from, to string) fuse.Status {
	folder, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	target := d.inodes[in.Newdir]
	n := folder.entries[from]
	if n == nil || target == nil {
		return fuse.ENOENT
	}
	switch former := target.entries[to]; {
	case in.Flags != 0 && (in.Flags != 1 || former != nil): // RENAME_NOREPLACE
		return fuse.Status(syscall.EEXIST)
	case former == n: // rename(2): no effect
		return fuse.OK
	case former != nil && len(former.entries) > 0:
		return fuse.Status(syscall.ENOTEMPTY)
	}
	d.change(entry{target, to, n}, entry{folder, from, nil})
	return fuse.OK
}

func (d *disk) Open(_ <-chan struct{}, in *fuse.OpenIn, _ *fuse.OpenOut) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status == fuse.OK && in.Flags&syscall.O_TRUNC != 0 {
		n.resize(0)
	}
	return status
}

func (d *disk) Read(_ <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return nil, status
	}
	from := min(int(in.Offset), len(n.data))
	return fuse.ReadResultData(buf[:copy(buf, n.data[from:])]), fuse.OK
}

func (d *disk) Write(_ <-chan struct{}, in *fuse.WriteIn, data []byte) (uint32, fuse.Status) {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return 0, status
	}
	from := int(in.Offset)
	to := from + len(data)
	if to > len(n.data) {
		n.resize(to)
	}
	copy(n.data[from:], data)
	n.touch(from, to)
	return uint32(len(data)), fuse.OK
}

func (d *disk) Fallocate(_ <-chan struct{}, in *fuse.FallocateIn) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	if in.Mode != 0 {
		return fuse.Status(syscall.EOPNOTSUPP)
	}
	if end := int(in.Offset + in.Length); end > len(n.data) {
		n.resize(end)
	}
	return fuse.OK
}

func (d *disk) Fsync(_ <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status == fuse.OK {
		d.sync(n)
	}
	return status
}

func (d *disk) FsyncDir(cancel <-chan struct{}, in *fuse.FsyncIn) fuse.Status {
	return d.Fsync(cancel, in)
}

func (d *disk) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.OK }

func (d *disk) Access(<-chan struct{}, *fuse.AccessIn) fuse.Status { return fuse.OK }

func (d *disk) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	*out = fuse.StatfsOut{Blocks: 1 << 22, Bfree: 1 << 21, Bavail: 1 << 21, Files: 1 << 20, Ffree: 1 << 20, Bsize: pageSize, Frsize: pageSize, NameLen: 255}
	return fuse.OK
}

// OpenDir stores the current entries for ReadDir.
func (d *disk) OpenDir(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	n, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	list := []fuse.DirEntry{{Name: ".", Mode: n.mode, Ino: n.id}, {Name: "..", Mode: n.mode, Ino: n.id}}
	for _, name := range slices.Sorted(maps.Keys(n.entries)) {
		list = append(list, fuse.DirEntry{Name: name, Mode: n.entries[name].mode, Ino: n.entries[name].id})
	}
	d.next++
	out.Fh = d.next
	d.folders[out.Fh] = list
	return fuse.OK
}

func (d *disk) ReadDir(_ <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	_, status := d.begin(in.NodeId)
	defer d.mu.Unlock()
	if status != fuse.OK {
		return status
	}
	list := d.folders[in.Fh]
	for i := int(in.Offset); i < len(list); i++ {
		list[i].Off = uint64(i + 1)
		if !out.AddDirEntry(list[i]) {
			break
		}
	}
	return fuse.OK
}

func (d *disk) ReleaseDir(in *fuse.ReleaseIn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.folders, in.Fh)
}
