// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/fault"
)

// Kind is the format of a stream.
type Kind int

// Values of Kind.
const (
	Detect Kind = iota // by its first bytes
	Mbox
	EML  // a single message
	Tar  // of any of the others, and of Maildirs
	Gzip // of any of the others
)

// Error codes of rejected streams.
const (
	CodeNotMail = "not_mail"
	CodeBomb    = "archive_bomb"
)

// Limits for decompression. A stream that grows far beyond what mail does is not decompressed to
// its end.
const (
	minBombSize = 64 << 20 // bytes; smaller streams are not checked
	bombRatio   = 300
)

// sniffSize is how much of a file is examined to detect its kind, in bytes.
const sniffSize = 1024

// Options control how a stream is read.
type Options struct {
	Kind    Kind
	Quoting Quoting // of mboxes
}

// Read passes the contents of a stream to a sink. If the archive is broken as a whole, or from some
// point on, Read returns a fault.Invalid after everything before that point. It returns errors of r
// and of the sink unchanged.
func Read(r io.Reader, o Options, to Sink) error {
	src := &inputReader{Reader: r}
	x := &reader{options: o, sink: to, src: src, maildirs: newMaildirs(), labelTable: sync.OnceValue(newLabelTable)}
	err := x.readStream(src, o.Kind, true)
	if err != nil && src.err != nil {
		return src.err
	}
	return err
}

// reader reads one stream.
type reader struct {
	options  Options
	sink     Sink
	src      *inputReader
	maildirs *maildirs

	labelTable func() labelTable
}

// readStream reads the stream, or the decompressed stream.
func (x *reader) readStream(r io.Reader, kind Kind, packed bool) error {
	in := bufio.NewReaderSize(r, 64<<10)
	begin, err := in.Peek(sniffSize)
	if err != nil && err != io.EOF { //nolint:errorlint // what bufio promises
		return err
	}
	if kind == Detect {
		kind = detectKind(begin)
	}
	switch {
	case kind == Mbox:
		return (&mboxReader{in: &lineReader{src: in}, sink: x.sink, quoting: x.options.Quoting, labelTable: x.labelTable}).readAll()
	case kind == Tar:
		return x.readTar(in)
	case kind == Gzip && packed:
		z, err := gzip.NewReader(in)
		if err != nil {
			return x.src.errorOrBroken("This is not what gzip writes.")
		}
		return x.readStream(&bombGuard{r: z, src: x.src}, Detect, false)
	case kind == EML && len(begin) > 0:
		skipByteOrderMark(in)
		return x.sink.Message(&Message{Location: "message 1", Body: newCRLFReader(in)})
	case len(begin) == 0: // an mbox without messages is empty
		return nil
	case bytes.HasPrefix(begin, []byte("PK\x03\x04")):
		return fault.New(fault.Invalid, CodeNotMail, "Zip files are not taken, since they can't be read as a stream: unpack it, and send the mail in it as a tar.")
	}
	return fault.New(fault.Invalid, CodeNotMail, "This is no mail: an mbox, a message, or a tar of these or of Maildirs is wanted, packed by gzip or not.")
}

// detectKind detects the kind of a stream by its first bytes.
func detectKind(begin []byte) Kind {
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

// byteOrderMark is what some Windows programs put before UTF-8. It belongs to the file, not to the
// message in it.
const byteOrderMark = "\xef\xbb\xbf"

// skipByteOrderMark consumes a byte order mark before a message.
func skipByteOrderMark(in *bufio.Reader) {
	begin, _ := in.Peek(len(byteOrderMark) + maxFieldName)
	if rest, ok := bytes.CutPrefix(begin, []byte(byteOrderMark)); ok && fieldName(rest) != "" {
		_, _ = in.Discard(len(byteOrderMark)) // already buffered
	}
}

// maxFieldName is the limit for a recognized header field name, in bytes.
const maxFieldName = 200

// isTar reports whether a stream begins with a tar header, by its checksum; tars before POSIX have
// no other mark.
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

// isMail reports whether a file begins with a message header.
func isMail(begin []byte) bool {
	line, _, _ := bytes.Cut(begin, []byte("\n"))
	return fieldName(line) != "" && !bytes.Contains(begin, []byte{0})
}

// bombGuard limits the expansion of a compressed stream.
type bombGuard struct {
	r    io.Reader
	src  *inputReader
	size int64
}

// Read implements io.Reader.
func (u *bombGuard) Read(p []byte) (int, error) {
	n, err := u.r.Read(p)
	if u.size += int64(n); u.size > minBombSize && u.size/bombRatio > u.src.bytesRead {
		return 0, fault.New(fault.Invalid, CodeBomb, "What is packed in this file is larger than any mail would be.")
	}
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		err = u.src.errorOrBroken("The packed file is damaged, or its end is missing.")
	}
	return n, err
}

// readTar reads the files of a tar.
func (x *reader) readTar(r io.Reader) error {
	in := &zeroCounter{Reader: r}
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
			return x.src.errorOrBroken("The tar is damaged, or its end is missing.")
		}
		name := cleanPath(h.Name)
		switch {
		case len(name) > maxPath:
			err = x.sink.Failed(printableName(name), "Its name is too long.")
		case h.Typeflag == tar.TypeDir:
			err = x.addFolder(name)
		case h.Typeflag == tar.TypeXGlobalHeader:
		case h.Typeflag == tar.TypeLink || h.Typeflag == tar.TypeSymlink:
			err = x.reportLink(name)
		case h.Typeflag != tar.TypeReg || isSparse(h):
			err = x.sink.Failed(printableName(name), "It is no ordinary file.")
		default:
			err = x.readFile(name, h, t)
		}
		if err != nil {
			return err
		}
	}
}

// tarBlock is the size of a tar's blocks. A tar ends with two blocks of zeros, or one from some
// programs; the padding of a file is shorter. The tar package accepts a tar that ends after any
// file.
const tarBlock = 512

// zeroCounter counts the zeros at the end of a stream.
type zeroCounter struct {
	io.Reader
	zeros int
}

// Read implements io.Reader.
func (t *zeroCounter) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	rest := len(bytes.TrimRight(p[:n], "\x00"))
	if rest > 0 {
		t.zeros = 0
	}
	t.zeros += n - rest
	return n, err
}

// isSparse reports whether a file is sparse: it would be as large as it claims.
func isSparse(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return h.Typeflag == tar.TypeGNUSparse
}

// addFolder passes a Maildir, which may be empty, to the sink.
func (x *reader) addFolder(name string) error {
	if path.Base(name) != "cur" {
		return nil
	}
	folder, special := x.maildirs.folder(dirKey(path.Dir(name)))
	return x.sink.Folder(Folder{Name: folder, SpecialUse: special, Subscribed: true})
}

// dirKey returns a directory as a key: "" for the top.
func dirKey(dir string) string {
	if dir == "." {
		return ""
	}
	return dir
}

func (x *reader) reportLink(name string) error {
	switch path.Base(path.Dir(name)) {
	case "cur", "new":
		return x.sink.Failed(printableName(name), "It is a link to another file; pack the files themselves (tar --hard-dereference).")
	}
	return nil
}

// readFile reads a file of a tar.
func (x *reader) readFile(name string, h *tar.Header, r io.Reader) error {
	dir, base := dirKey(path.Dir(name)), path.Base(name)
	r = &entryReader{r, x.src}
	parent := path.Base(dir)
	if parent == "cur" || parent == "new" {
		if base == "" || base[0] == '.' {
			return nil
		}
		m, verbatim := x.maildirs.message(dirKey(path.Dir(dir)), base, h.ModTime, h.Size)
		m.Keywords = append(m.Keywords, strings.Fields(h.PAXRecords[keywordsRecord])...)
		m.Location = printableName(name)
		if m.Body = r; !verbatim {
			in := bufio.NewReader(r)
			skipByteOrderMark(in)
			m.Body = newCRLFReader(in)
		}
		return x.sink.Message(m)
	}
	aside := parent == "tmp" || isMetadataFile(base)
	if !aside {
		if known, err := x.maildirs.readMetadata(dir, base, r, x.sink); known {
			return err
		}
	}
	in := bufio.NewReaderSize(r, 64<<10)
	begin, err := in.Peek(sniffSize)
	if err != nil && err != io.EOF { //nolint:errorlint // what bufio promises
		return err
	}
	switch kind := detectKind(begin); {
	case aside && kind != Mbox && !(kind == EML && strings.EqualFold(path.Ext(base), emlExt)):
		return nil
	case kind == Mbox, len(begin) == 0 && strings.HasSuffix(base, mboxExt):
		folder := mboxFolderName(name)
		if err := x.sink.Folder(Folder{Name: folder, Subscribed: true}); err != nil {
			return err
		}
		return (&mboxReader{in: &lineReader{src: in}, sink: x.sink, name: printableName(name), folder: folder, quoting: x.options.Quoting, labelTable: x.labelTable}).readAll()
	case kind == EML:
		skipByteOrderMark(in)
		return x.sink.Message(&Message{Location: printableName(name), Folder: dir, FileDate: h.ModTime, Body: newCRLFReader(in)})
	}
	return x.sink.Failed(printableName(name), "It is no mail.")
}

const mboxExt, emlExt = ".mbox", ".eml"

// mboxFolderName returns the folder of an mbox by its name. Apple Mail stores each in its own
// directory; Thunderbird stores subfolders in a separate one.
func mboxFolderName(name string) string {
	levels := strings.Split(name, "/")
	if last := len(levels) - 1; last > 0 && levels[last] == "mbox" && strings.HasSuffix(levels[last-1], mboxExt) {
		levels = levels[:last]
	}
	for i := range levels {
		level := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(levels[i], ".sbd"), mboxExt), ".mbx")
		if level != "" {
			levels[i] = level
		}
	}
	return strings.Join(levels, "/")
}

// isMetadataFile reports whether a file's name is one that mail programs and systems give to
// metadata. A folder may have that name, too.
func isMetadataFile(base string) bool {
	switch base {
	case "subscriptions", "maildirfolder", "maildirsize", ".DS_Store", "Thumbs.db", ".uidvalidity", ".mh_sequences", "msgFilterRules.dat", ".mbsyncstate":
		return true
	case keywordsFile:
		return false
	}
	return slices.ContainsFunc([]string{"dovecot", "courier", "._", ".lock", "popstate"}, func(begin string) bool { return strings.HasPrefix(base, begin) }) ||
		slices.ContainsFunc([]string{".msf", ".lock", ".tmp", ".plist"}, func(end string) bool { return strings.HasSuffix(base, end) })
}

// entryReader distinguishes a truncated file from a complete one.
type entryReader struct {
	io.Reader
	src *inputReader
}

// Read implements io.Reader.
func (p *entryReader) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil && err != io.EOF && fault.KindOf(err) != fault.Invalid { //nolint:errorlint // what io.Reader promises
		err = p.src.errorOrBroken("The tar is damaged, or its end is missing.")
	}
	return n, err
}
