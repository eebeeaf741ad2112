// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/fault"
)

// Kind says what a stream is.
type Kind int

// The kinds of stream.
const (
	Detect Kind = iota // by how it begins
	Mbox
	EML  // a single message
	Tar  // of any of the others, and of Maildirs
	Gzip // of any of the others
)

// Codes of streams that are not taken.
const (
	CodeNotMail = "not_mail"
	CodeBomb    = "archive_bomb"
)

// A stream that grows beyond all that mail does when it is unpacked is not
// unpacked to its end.
const (
	bombSize  = 64 << 20 // bytes; no less is judged
	bombRatio = 300
)

// head is how much of a file is looked at to see what it is, in bytes.
const head = 1024

// Options say how a stream is read.
type Options struct {
	Kind    Kind
	Quoting Quoting // of mboxes
}

// Read gives all that a stream holds to a sink. What is wrong with the archive
// as a whole, or from a place on, is a fault.Invalid, after all that stood
// before it; errors of r and of the sink are returned as they are.
func Read(r io.Reader, o Options, to Sink) error {
	src := &source{Reader: r}
	x := &reading{o: o, to: to, src: src, dirs: newMaildirs(), labels: sync.OnceValue(newKnown)}
	err := x.stream(src, o.Kind, true)
	if err != nil && src.err != nil {
		return src.err
	}
	return err
}

// reading is a stream while it is read.
type reading struct {
	o    Options
	to   Sink
	src  *source
	dirs *maildirs

	labels func() known
}

// stream reads the stream as a whole, or what was packed in it.
func (x *reading) stream(r io.Reader, kind Kind, packed bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	begin, err := in.Peek(head)
	if err != nil && err != io.EOF { //nolint:errorlint // what bufio promises
		return err
	}
	if kind == Detect {
		kind = detect(begin)
	}
	switch {
	case kind == Mbox:
		return (&mbox{w: &window{src: in}, to: x.to, quoting: x.o.Quoting, labels: x.labels}).read()
	case kind == Tar:
		return x.tar(in)
	case kind == Gzip && packed:
		z, err := gzip.NewReader(in)
		if err != nil {
			return x.src.blame("This is not what gzip writes.")
		}
		return x.stream(&unpacking{r: z, src: x.src}, Detect, false)
	case kind == EML && len(begin) > 0:
		unmark(in)
		return x.to.Message(&Message{Place: "message 1", Body: withCRLF(in)})
	case len(begin) == 0: // an mbox without messages looks like that
		return nil
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		return fault.New(fault.Invalid, CodeNotMail, "Zip files are not taken, since they can't be read as a stream: unpack it, and send the mail in it as a tar.")
	}
	return fault.New(fault.Invalid, CodeNotMail, "This is no mail: an mbox, a message, or a tar of these or of Maildirs is wanted, packed by gzip or not.")
}

// detect finds out what a stream is by how it begins.
func detect(begin []byte) Kind {
	begin = bytes.TrimPrefix(begin, []byte(byteOrderMark))
	switch {
	case bytes.HasPrefix(begin, []byte("\x1f\x8b")):
		return Gzip
	case isTar(begin):
		return Tar
	case bytes.HasPrefix(bytes.TrimLeft(begin, "\r\n"), []byte("From ")):
		return Mbox
	case isMail(begin):
		return EML
	}
	return Detect
}

// byteOrderMark is what some programs of Windows put before UTF-8. It belongs to the
// file, and not to the message in it.
const byteOrderMark = "\xef\xbb\xbf"

// unmark takes a byte order mark before a message.
func unmark(in *bufio.Reader) {
	begin, _ := in.Peek(len(byteOrderMark) + maxFieldName)
	if rest, ok := bytes.CutPrefix(begin, []byte(byteOrderMark)); ok && fieldName(rest) != "" {
		_, _ = in.Discard(len(byteOrderMark)) // they are there
	}
}

// maxFieldName is how long the name of a header field may be to be recognised, in bytes.
const maxFieldName = 200

// isTar reports whether a stream begins with the header of a file in a tar, by
// its checksum; tars before POSIX have no other mark.
func isTar(begin []byte) bool {
	const block, from, to = 512, 148, 156
	if len(begin) < block {
		return false
	}
	sum := int64(0)
	for i, c := range begin[:block] {
		if i >= from && i < to {
			c = ' '
		}
		sum += int64(c)
	}
	var given int64
	_, err := fmt.Sscanf(strings.Trim(string(begin[from:to]), " \x00"), "%o", &given)
	return err == nil && given == sum && sum > 8*' '
}

// isMail reports whether a file begins with the header of a message.
func isMail(begin []byte) bool {
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	return fieldName(line) != "" && !bytes.Contains(begin, []byte{0})
}

// unpacking bounds how much larger than itself a packed stream may get.
type unpacking struct {
	r    io.Reader
	src  *source
	size int64
}

// Read is that of io.Reader.
func (u *unpacking) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if u.size += int64(n); u.size > bombSize && u.size/bombRatio > u.src.read {
		return 0, fault.New(fault.Invalid, CodeBomb, "What is packed in this file is larger than any mail would be.")
	}
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		err = u.src.blame("The packed file is damaged, or its end is missing.")
	}
	return n, err
}

// tar reads the files of a tar.
func (x *reading) tar(r io.Reader) error {
	in := &trailing{Reader: r}
	t := tar.NewReader(in)
	for {
		h, err := t.Next()
		if err == io.EOF && in.zeros >= tarBlock { //nolint:errorlint // what tar promises
			return nil
		}
		if err != nil {
			if fault.KindOf(err) == fault.Invalid {
				return err
			}
			return x.src.blame("The tar is damaged, or its end is missing.")
		}
		name := clean(h.Name)
		switch {
		case len(name) > maxName:
			err = x.to.Failed(place(name), "Its name is too long.")
		case h.Typeflag == tar.TypeDir:
			err = x.directory(name)
		case h.Typeflag == tar.TypeXGlobalHeader:
		case h.Typeflag == tar.TypeLink || h.Typeflag == tar.TypeSymlink:
			err = x.link(name)
		case h.Typeflag != tar.TypeReg || sparse(h):
			err = x.to.Failed(place(name), "It is no ordinary file.")
		default:
			err = x.file(name, h, t)
		}
		if err != nil {
			return err
		}
	}
}

// tarBlock is the size of a tar's blocks. It ends with two of zeros, which some
// programs make one; what fills up the last block of a file is less. The tar package
// takes one that ends after any file for whole.
const tarBlock = 512

// trailing counts the zeros that a stream has ended with so far.
type trailing struct {
	io.Reader
	zeros int
}

// Read is that of io.Reader.
func (t *trailing) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	rest := len(bytes.TrimRight(p[:n], "\x00"))
	if rest > 0 {
		t.zeros = 0
	}
	t.zeros += n - rest
	return n, err
}

// sparse files would be as large as they claim to be.
func sparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// directory tells of a Maildir, which may be empty.
func (x *reading) directory(name string) error {
	if path.Base(name) != "cur" {
		return nil
	}
	folder, special := x.dirs.folder(dirOf(path.Dir(name)))
	return x.to.Folder(Folder{Name: folder, Special: special, Subscribed: true})
}

// dirOf is a directory as a key: "" for the top.
func dirOf(dir string) string {
	if dir == "." {
		return ""
	}
	return dir
}

func (x *reading) link(name string) error {
	switch path.Base(path.Dir(name)) {
	case "cur", "new":
		return x.to.Failed(place(name), "It is a link to another file; pack the files themselves (tar --hard-dereference).")
	}
	return nil
}

// file reads a file of a tar.
func (x *reading) file(name string, h *tar.Header, r io.Reader) error {
	dir, base := dirOf(path.Dir(name)), path.Base(name)
	r = &packed{r, x.src}
	parent := path.Base(dir)
	if parent == "cur" || parent == "new" {
		if base == "" || base[0] == '.' {
			return nil
		}
		m, verbatim := x.dirs.message(dirOf(path.Dir(dir)), base, h.ModTime, h.Size)
		m.Keywords = append(m.Keywords, strings.Fields(h.PAXRecords[keywordsRecord])...)
		m.Place = place(name)
		if m.Body = r; !verbatim {
			in := bufio.NewReader(r)
			unmark(in)
			m.Body = withCRLF(in)
		}
		return x.to.Message(m)
	}
	aside := parent == "tmp" || skipped(base)
	if !aside {
		if known, err := x.dirs.side(dir, base, r, x.to); known {
			return err
		}
	}
	in := bufio.NewReaderSize(r, 64<<10)
	begin, err := in.Peek(head)
	if err != nil && err != io.EOF { //nolint:errorlint // what bufio promises
		return err
	}
	switch kind := detect(begin); {
	case aside && kind != Mbox && !(kind == EML && strings.EqualFold(path.Ext(base), emlEnding)):
		return nil
	case kind == Mbox, len(begin) == 0 && strings.HasSuffix(base, mboxEnding):
		folder := mboxFolder(name)
		if err := x.to.Folder(Folder{Name: folder, Subscribed: true}); err != nil {
			return err
		}
		return (&mbox{w: &window{src: in}, to: x.to, name: place(name), folder: folder, quoting: x.o.Quoting, labels: x.labels}).read()
	case kind == EML:
		unmark(in)
		return x.to.Message(&Message{Place: place(name), Folder: dir, FileDate: h.ModTime, Body: withCRLF(in)})
	}
	return x.to.Failed(place(name), "It is no mail.")
}

const mboxEnding, emlEnding = ".mbox", ".eml"

// mboxFolder is the folder that an mbox holds, by its name. Apple Mail keeps
// each in a folder of its own, Thunderbird what is below one in another.
func mboxFolder(name string) string {
	levels := strings.Split(name, "/")
	if last := len(levels) - 1; last > 0 && levels[last] == "mbox" && strings.HasSuffix(levels[last-1], mboxEnding) {
		levels = levels[:last]
	}
	for i := range levels {
		level := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(levels[i], ".sbd"), mboxEnding), ".mbx")
		if level != "" {
			levels[i] = level
		}
	}
	return strings.Join(levels, "/")
}

// skipped reports whether a file has a name as mail programs and systems give to
// what they keep beside the mail. A folder may be called so, too.
func skipped(base string) bool {
	switch base {
	case "subscriptions", "maildirfolder", "maildirsize", ".DS_Store", "Thumbs.db", ".uidvalidity", ".mh_sequences", "msgFilterRules.dat", ".mbsyncstate":
		return true
	case keywordsFile:
		return false
	}
	for _, begin := range []string{"dovecot", "courier", "._", ".lock", "popstate"} {
		if strings.HasPrefix(base, begin) {
			return true
		}
	}
	for _, end := range []string{".msf", ".lock", ".tmp", ".plist"} {
		if strings.HasSuffix(base, end) {
			return true
		}
	}
	return false
}

// packed tells a file that ends early from one that is whole.
type packed struct {
	io.Reader
	src *source
}

// Read is that of io.Reader.
func (p *packed) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil && err != io.EOF && fault.KindOf(err) != fault.Invalid { //nolint:errorlint // what io.Reader promises
		err = p.src.blame("The tar is damaged, or its end is missing.")
	}
	return n, err
}
