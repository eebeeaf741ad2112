// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// maxFileName is the limit for a file name on most systems, in bytes.
const maxFileName = 255

// MaildirWriter writes folders as a tar of Maildirs in Maildir++ layout: INBOX at the top, and each
// other folder, with all levels of its name, in a directory that begins with a dot. Files have LF
// line endings.
type MaildirWriter struct {
	t             *tar.Writer
	buf           []byte
	now           time.Time
	paths         map[string]string // paths by folder name
	metadataBytes int               // bytes of folder and keyword files

	dir           string // directory of the current folder
	validity      uint32
	keywordFlags  map[string]byte // letters of its keywords
	lastListedUID uint32          // extraKeywordsFile has the further keywords up to this UID
}

// maxMetadata is the limit for the files with further keywords and all other metadata: the rest is
// for the keyword letters of later folders.
const maxMetadata = maxKeywordsFiles - maxKeywordsFile

// NewMaildirWriter begins a tar with directories for all folders. The name of INBOX is "INBOX". now
// is the date of entries without a date.
func NewMaildirWriter(w io.Writer, folders []Folder, now time.Time) (*MaildirWriter, error) {
	m := &MaildirWriter{t: tar.NewWriter(w), buf: make([]byte, 64<<10), now: now.UTC().Truncate(time.Second), paths: map[string]string{}}
	notes := []folderEntry{}
	taken := map[string]bool{}
	for _, f := range folders {
		p := ""
		if f.Name != inbox {
			p = dirName(f.Name)
			for n := 2; taken[strings.ToLower(p)]; n++ { // some file systems are case-insensitive
				p = fmt.Sprintf(".~%d%s", n, hashedName(f.Name))
			}
			taken[strings.ToLower(p)] = true
		}
		m.paths[f.Name] = p
		notes = append(notes, folderEntry{Path: p, Name: f.Name, Special: f.SpecialUse, Subscribed: f.Subscribed})
	}
	text, err := json.MarshalIndent(notes, "", " ")
	if err != nil {
		return nil, err
	}
	if err := m.writeFile(folderListFile, append(text, '\n')); err != nil {
		return nil, err
	}
	for _, f := range folders {
		if p := m.paths[f.Name]; p != "" {
			if err := m.writeDir(p); err != nil {
				return nil, err
			}
		}
		for _, sub := range []string{"cur", "new", "tmp"} {
			if err := m.writeDir(join(m.paths[f.Name], sub)); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

const inbox = "INBOX"

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// dirName returns the directory of a folder.
func dirName(name string) string {
	var b strings.Builder
	for level := range strings.SplitSeq(name, "/") {
		b.WriteString("." + encodeLevel(level))
	}
	if b.Len() > maxFileName {
		return "." + hashedName(name)
	}
	return b.String()
}

// hashedName returns a replacement for a name that is too long; folderListFile has the original.
func hashedName(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return fmt.Sprintf("folder-%016x", h.Sum64())
}

func (m *MaildirWriter) writeDir(name string) error {
	return m.t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o700, ModTime: m.now})
}

func (m *MaildirWriter) writeFile(name string, text []byte) error {
	if err := m.t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, ModTime: m.now, Size: int64(len(text))}); err != nil {
		return err
	}
	m.metadataBytes += len(text)
	_, err := m.t.Write(text)
	return err
}

// MessageKeywords are the keywords of a message.
type MessageKeywords struct {
	UID      uint32
	Keywords []string
}

// BeginFolder begins one of the folders passed to NewMaildirWriter. A keyword has no letter if it
// is not in keywords or is beyond the first 26. tagged must yield all messages that have keywords,
// in UID order. It is called once all letters are assigned.
func (m *MaildirWriter) BeginFolder(name string, validity uint32, keywords []string, tagged func(yield func(MessageKeywords) bool)) error {
	m.dir, m.validity, m.keywordFlags = m.paths[name], validity, map[string]byte{} // by lower-case keyword: keywords are case-insensitive
	m.lastListedUID = math.MaxUint32
	if len(keywords) == 0 {
		return nil
	}
	var list bytes.Buffer
	for i, word := range keywords[:min(len(keywords), maxKeywordFlags)] {
		m.keywordFlags[strings.ToLower(word)] = 'a' + byte(i)
		fmt.Fprintf(&list, "%d %s\n", i, word)
	}
	if err := m.writeFile(join(m.dir, keywordsFile), list.Bytes()); err != nil {
		return err
	}
	var more bytes.Buffer
	capacity := min(maxKeywordsFile, maxMetadata-m.metadataBytes)
	for t := range tagged {
		words := m.joinExtra(t.Keywords)
		if words == "" {
			continue
		}
		line := m.messageKey(t.UID) + " " + words + "\n"
		if more.Len()+len(line) > capacity { // readers accept no more; Write records the others
			m.lastListedUID = t.UID - 1
			break
		}
		more.WriteString(line)
	}
	if more.Len() == 0 {
		return nil
	}
	return m.writeFile(join(m.dir, extraKeywordsFile), more.Bytes())
}

// joinExtra returns the keywords without a letter, separated by spaces.
func (m *MaildirWriter) joinExtra(keywords []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(keywords), func(w string) bool { return m.keywordFlags[strings.ToLower(w)] != 0 }), " ")
}

func (m *MaildirWriter) messageKey(uid uint32) string { return fmt.Sprintf("U%dV%d", uid, m.validity) }

// Write writes a message to the current folder; its Folder and Body are not used. Errors are those
// of MboxWriter.Write.
func (m *MaildirWriter) Write(msg *Message, uid uint32, t SizedReaderAt) error {
	s, err := scanLineEndings(t, m.buf)
	if err != nil {
		return &ReadError{err}
	}
	size := t.Size()
	if s.allCRLF {
		size -= s.lines
	}
	date := clampDate(msg.Date)
	name := fmt.Sprintf("%d.%s.mailstead,S=%d,W=%d:2,%s", date.Unix(), m.messageKey(uid), size, t.Size(), m.info(msg))
	h := &tar.Header{Typeflag: tar.TypeReg, Name: join(join(m.dir, "cur"), name), Mode: 0o600, ModTime: date, Size: size}
	if uid > m.lastListedUID {
		if words := m.joinExtra(msg.Keywords); words != "" {
			h.PAXRecords = map[string]string{keywordsRecord: words}
		}
	}
	if err := m.t.WriteHeader(h); err != nil {
		return err
	}
	in := io.NewSectionReader(t, 0, t.Size())
	if !s.allCRLF {
		_, err = io.CopyBuffer(struct{ io.Writer }{m.t}, struct{ io.Reader }{in}, m.buf)
		return err
	}
	out := &lfWriter{w: m.t}
	if _, err = io.CopyBuffer(out, struct{ io.Reader }{in}, m.buf); err != nil {
		return err
	}
	return out.flush()
}

// info returns the letters of a message's flags, in order.
func (m *MaildirWriter) info(msg *Message) string {
	var b []byte
	for _, f := range []struct {
		flag Flags
		mail byte
	}{{Draft, 'D'}, {Flagged, 'F'}, {Answered, 'R'}, {Seen, 'S'}, {Deleted, 'T'}} {
		if msg.Flags&f.flag != 0 {
			b = append(b, f.mail)
		}
	}
	for _, word := range msg.Keywords {
		if mail := m.keywordFlags[strings.ToLower(word)]; mail != 0 {
			b = append(b, mail)
		}
	}
	slices.SortFunc(b, func(a, c byte) int { return cmp.Compare(a, c) })
	return string(b)
}

// Close ends the tar, which is incomplete without it.
func (m *MaildirWriter) Close() error { return m.t.Close() }
