// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Pack writes a directory as a tar, for Read: folder and keyword files come before the messages,
// and those are sorted by name. It doesn't follow links. It calls skipped for links and for files
// that disappear meanwhile.
func Pack(w io.Writer, dir string, skipped func(name string)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // only read
	p := &packer{root: root, t: tar.NewWriter(w), skipped: skipped, buf: make([]byte, 64<<10)}
	if err := p.packDir("."); err != nil {
		return err
	}
	return p.t.Close()
}

type packer struct {
	root    *os.Root
	t       *tar.Writer
	skipped func(name string)
	buf     []byte
}

func (p *packer) packDir(dir string) error {
	entries, err := fs.ReadDir(p.root.FS(), dir)
	if err != nil {
		return err
	}
	records, err := p.readRecords(dir)
	if err != nil {
		return err
	}
	if dir != "." {
		if err := p.t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o700}); err != nil {
			return err
		}
	}
	slices.SortStableFunc(entries, func(a, b fs.DirEntry) int {
		if a.IsDir() != b.IsDir() {
			if b.IsDir() {
				return -1
			}
			return 1
		}
		if first := a.Name() == folderListFile; first != (b.Name() == folderListFile) {
			if first {
				return -1
			}
			return 1
		}
		return compareNatural(a.Name(), b.Name())
	})
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		unique, _ := cutInfo(e.Name())
		switch {
		case e.IsDir():
			err = p.packDir(name)
		case e.Name() == recordsFile:
		case e.Type().IsRegular():
			err = p.packFile(name, records[unique])
		default:
			p.skipped(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readRecords reads what Unpack recorded for the files of a directory: the keywords of each, by its
// name without flags, which programs change.
func (p *packer) readRecords(dir string) (map[string]string, error) {
	f, _, err := p.openRegular(path.Join(dir, recordsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxRecords+1))
	if err == nil && len(text) > maxRecords {
		err = fmt.Errorf("%s has more than %d MB", path.Join(dir, recordsFile), maxRecords>>20)
	}
	records := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, words, _ := strings.Cut(strings.TrimSpace(line), " ")
		records[name] = words
	}
	return records, err
}

// maxRecords is the limit for the records of a directory, in bytes.
const maxRecords = 256 << 20

// openRegular opens a regular file. For anything else, like a link or a pipe that may block
// forever, it returns fs.ErrNotExist, as for a missing file.
func (p *packer) openRegular(name string) (*os.File, fs.FileInfo, error) {
	info, err := p.root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fs.ErrNotExist
	}
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	now, err := f.Stat()
	if err == nil && !os.SameFile(info, now) { // it was replaced just now
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close() // opened only for reading
		return nil, nil, err
	}
	return f, now, nil
}

func (p *packer) packFile(name, keywords string) error {
	f, info, err := p.openRegular(name)
	if errors.Is(err, fs.ErrNotExist) {
		p.skipped(name)
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime().Truncate(time.Second)}
	if keywords != "" {
		h.PAXRecords = map[string]string{keywordsRecord: keywords}
	}
	if err := p.t.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.t}, io.LimitReader(f, info.Size()), p.buf)
	if err == nil && n < info.Size() {
		err = fmt.Errorf("%s got shorter while it was read", name)
	}
	return err
}

// compareNatural compares names with numbers in them by value.
func compareNatural(a, b string) int {
	for a != "" && b != "" {
		x, y := digits(a), digits(b)
		if x > 0 && y > 0 {
			m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
			if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n), cmp.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[x:], b[y:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits returns the number of digits at the start.
func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}

// Unpack extracts a tar of directories and files into an empty directory, and returns once all of
// it is on disk. A name that leads out of the directory, or a duplicate name, is an error.
func Unpack(r io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // its files are closed
	u := &unpacker{root: root, buf: make([]byte, 64<<10)}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF { //nolint:errorlint // what tar promises
			break
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(filepath.FromSlash(h.Name))
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the tar holds the name %q, which leads out of it", printableName(h.Name))
		}
		switch h.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(name, 0o700)
			u.created = append(u.created, name)
		case tar.TypeReg:
			err = u.writeFile(name, h.ModTime, t)
			if words := strings.Fields(h.PAXRecords[keywordsRecord]); err == nil && len(words) > 0 {
				err = u.addRecord(name, words)
			}
		default:
			err = fmt.Errorf("the tar holds %q, which is no file", printableName(h.Name))
		}
		if err != nil {
			return err
		}
	}
	// The system has begun to write in the meantime, so this is quick.
	for _, name := range append(u.created, ".") {
		if err := u.sync(name); err != nil {
			return err
		}
	}
	return nil
}

type unpacker struct {
	root        *os.Root
	buf         []byte
	created     []string
	lastRecords string // last recordsFile written to
}

func (u *unpacker) writeFile(name string, changed time.Time, r io.Reader) error {
	f, err := u.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, r, u.buf)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	u.created = append(u.created, name)
	return u.root.Chtimes(name, changed, changed)
}

// addRecord records the keywords of a file beside it.
func (u *unpacker) addRecord(name string, keywords []string) error {
	list := filepath.Join(filepath.Dir(name), recordsFile)
	f, err := u.root.OpenFile(list, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	if u.lastRecords != list {
		u.lastRecords, u.created = list, append(u.created, list)
	}
	unique, _ := cutInfo(filepath.Base(name))
	_, err = fmt.Fprintf(f, "%s %s\n", unique, strings.Join(keywords, " "))
	return errors.Join(err, f.Close())
}

func (u *unpacker) sync(name string) error {
	f, err := u.root.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
