// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/message"
)

// Files beside the messages in a Maildir.
const (
	keywordsFile      = "dovecot-keywords"   // meanings of the letters a to z, in Dovecot's format
	extraKeywordsFile = "mailstead-keywords" // further keywords, by message
	// keywordsRecord holds, in a tar, the keywords of a message that did not fit in
	// extraKeywordsFile.
	keywordsRecord = "MAILSTEAD.keywords"
	// recordsFile holds, in a directory, the keywordsRecord data of the files beside it. Programs
	// ignore names that begin with a dot.
	recordsFile     = ".mailstead-keywords"
	folderListFile  = "mailstead-folders.json" // names and special uses of folders
	maxKeywordFlags = 26
	maildirRoot     = "Maildir" // usual name of the directory with all folders
)

// folderEntry is an entry of folderListFile.
type folderEntry struct {
	Path       string `json:"path"` // Maildir of the folder, below the file; "" for the file's own
	Name       string `json:"name"`
	Special    string `json:"special_use,omitempty"`
	Subscribed bool   `json:"subscribed"`
}

// maildirs is the state of the Maildirs in an archive.
type maildirs struct {
	keywordFlags map[string][]string       // keywords by letter, by Maildir
	extra        map[string]*extraKeywords // further keywords, by Maildir
	entries      map[string]folderEntry    // by Maildir
	keywordBytes int                       // bytes read from keyword files
	nameBytes    int                       // bytes of names in entries
	pending      map[string]bool           // Maildirs with messages that came before the names of their keywords
}

func newMaildirs() *maildirs {
	return &maildirs{keywordFlags: map[string][]string{}, extra: map[string]*extraKeywords{}, entries: map[string]folderEntry{}, pending: map[string]bool{}}
}

// readMetadata reads a metadata file of a Maildir, in dir. known reports whether the file is one.
func (d *maildirs) readMetadata(dir, base string, r io.Reader, to Sink) (known bool, err error) {
	switch base {
	case keywordsFile, extraKeywordsFile:
	case folderListFile:
		return true, d.readFolders(dir, r, to)
	default:
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxKeywordsFile))
	if err != nil {
		return true, err
	}
	if d.keywordBytes += len(text); d.keywordBytes > maxKeywordsFiles || len(d.keywordFlags)+len(d.extra) > maxMaildirs {
		return true, brokenError("The files of the archive that tell of keywords are too large.")
	}
	mails, more := []string(nil), (*extraKeywords)(nil)
	if base == keywordsFile {
		mails = parseKeywordFlags(text)
		d.keywordFlags[dir] = mails
	} else {
		more = parseExtraKeywords(text)
		d.extra[dir] = more
	}
	if !d.pending[dir] || to.KeywordNames == nil {
		return true, nil
	}
	return true, to.KeywordNames(dir, func(u *PendingKeywords) (words []string) {
		for i, word := range mails {
			if u.Flags&(1<<i) != 0 && word != "" {
				words = append(words, word)
			}
		}
		return append(words, more.lookup(u.Key)...)
	})
}

// pendingKeywords returns the keywords of a message that have no names yet; nil for none.
func (d *maildirs) pendingKeywords(dir, info, key string) *PendingKeywords {
	u := &PendingKeywords{Maildir: dir}
	if d.keywordFlags[dir] == nil {
		for _, c := range info {
			if c >= 'a' && c <= 'z' {
				u.Flags |= 1 << (c - 'a')
			}
		}
	}
	if d.extra[dir] == nil && messageKeyPattern.MatchString(key) {
		u.Key = key
	}
	if u.Flags == 0 && u.Key == "" {
		return nil
	}
	if !d.pending[dir] {
		if d.nameBytes += len(dir); d.nameBytes > maxFolderNames || len(d.pending) == maxMaildirs {
			d.nameBytes -= len(dir)
			return nil
		}
		d.pending[dir] = true
	}
	return u
}

// messageKeyPattern matches the key of a message in extraKeywordsFile.
var messageKeyPattern = regexp.MustCompile(`^U[0-9]{1,10}V[0-9]{1,10}$`)

// readFolders reads folderListFile entry by entry: reading all at once would take many times the
// memory of the file.
func (d *maildirs) readFolders(dir string, r io.Reader, to Sink) error {
	in := &limitedReader{r: io.LimitReader(r, maxFolderList), left: maxFolderEntry}
	list := json.NewDecoder(in)
	failed := func() error {
		if in.err != nil {
			return in.err
		}
		return to.Failed(printableName(path.Join(dir, folderListFile)), "This list of folders can't be read.")
	}
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return failed()
	}
	for list.More() {
		in.left = maxFolderEntry
		var n folderEntry
		if list.Decode(&n) != nil {
			return failed()
		}
		if len(n.Name) > maxPath { // it is truncated again for each message
			n.Name = strings.ToValidUTF8(n.Name[:maxPath], "")
		}
		at := cleanPath(path.Join(dir, n.Path))
		d.nameBytes += len(n.Name) + len(n.Special) + len(at)
		if len(d.entries) >= maxMaildirs || d.nameBytes > maxFolderNames {
			return brokenError("The archive tells of too many folders.")
		}
		d.entries[at] = n
		if err := to.Folder(Folder{Name: n.Name, SpecialUse: parseSpecialUse(n.Special), Subscribed: n.Subscribed}); err != nil {
			return err
		}
	}
	if _, err := list.Token(); err != nil {
		return failed()
	}
	return nil
}

// errEntryTooLong reports that an entry is too long.
var errEntryTooLong = errors.New("too long")

// limitedReader limits how much can be read until left is set again.
type limitedReader struct {
	r    io.Reader
	left int
	err  error // error of r, except EOF
}

// Read implements io.Reader.
func (m *limitedReader) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errEntryTooLong
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		m.err = err
	}
	return n, err
}

// parseKeywordFlags parses lines like "0 $Forwarded".
func parseKeywordFlags(text []byte) []string {
	mails := make([]string, maxKeywordFlags)
	for line := range bytes.Lines(text) {
		number, word, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < maxKeywordFlags {
			mails[n] = word
		}
	}
	return mails
}

// extraKeywords are the lines of an extraKeywordsFile, like "U17V1700000000 $Forwarded". They are
// parsed when their message comes: parsing all at once would take many times the memory of the
// file.
type extraKeywords struct {
	text    string
	offsets []uint32 // offsets of the lines in text, sorted by key
}

func parseExtraKeywords(text []byte) *extraKeywords {
	f := &extraKeywords{text: string(text)}
	count := bytes.Count(text, []byte("\n")) + 1
	f.offsets = make([]uint32, 0, min(count, len(text)/len("U1V1 a")+1))
	at := 0
	for line := range strings.Lines(f.text) {
		if key, words := cutExtraLine(line); words != "" {
			if number, rest, ok := strings.Cut(key, "V"); ok && rest != "" && len(number) > 1 && key[0] == 'U' {
				f.offsets = append(f.offsets, uint32(at))
			}
		}
		at += len(line)
	}
	slices.SortStableFunc(f.offsets, func(a, b uint32) int { return cmp.Compare(f.keyAt(a), f.keyAt(b)) })
	return f
}

func cutExtraLine(line string) (key, words string) {
	key, words, _ = strings.Cut(strings.TrimSpace(line), " ")
	return key, words
}

// keyAt returns the key of the line at an offset.
func (f *extraKeywords) keyAt(line uint32) string {
	text, _, _ := strings.Cut(f.text[line:], "\n")
	key, _ := cutExtraLine(text)
	return key
}

// lookup returns the further keywords of a message. Of several lines, the last counts.
func (f *extraKeywords) lookup(key string) []string {
	if f == nil {
		return nil
	}
	after := sort.Search(len(f.offsets), func(i int) bool { return f.keyAt(f.offsets[i]) > key })
	if after == 0 || f.keyAt(f.offsets[after-1]) != key {
		return nil
	}
	line, _, _ := strings.Cut(f.text[f.offsets[after-1]:], "\n")
	_, words := cutExtraLine(line)
	if len(words) > maxMessageKeywords { // foreign, and parsed again for each message with that key
		words = words[:max(0, strings.LastIndexByte(words[:maxMessageKeywords], ' '))]
	}
	return strings.Fields(words)
}

// maildirFlags are the letters in the names of files.
var maildirFlags = map[rune]Flags{'S': Seen, 'R': Answered, 'F': Flagged, 'T': Deleted, 'D': Draft}

// message derives a message from the name of its file in a Maildir. verbatim reports whether the
// file has the message's own line endings.
func (d *maildirs) message(dir, base string, changed time.Time, size int64) (m *Message, verbatim bool) {
	m = &Message{Date: changed}
	m.Folder, m.SpecialUse = d.folder(dir)
	name, info := cutInfo(base)
	for _, c := range info {
		if m.Flags |= maildirFlags[c]; c == 'P' {
			m.Keywords = append(m.Keywords, "$Forwarded")
		}
		if mails := d.keywordFlags[dir]; c >= 'a' && int(c-'a') < len(mails) && mails[c-'a'] != "" {
			m.Keywords = append(m.Keywords, mails[c-'a'])
		}
	}
	name, sizes, _ := strings.Cut(name, ",")
	parts := strings.Split(name, ".")
	key := ""
	if len(parts) > 1 {
		if at := strings.IndexByte(parts[1], 'U'); at >= 0 {
			key = parts[1][at:]
			m.Keywords = append(m.Keywords, d.extra[dir].lookup(key)...)
		}
	}
	m.PendingKeywords = d.pendingKeywords(dir, info, key)
	if !isPlausible(m.Date) {
		m.Date = time.Time{}
		if n, err := strconv.ParseInt(parts[0], 10, 64); err == nil && isPlausible(time.Unix(n, 0)) {
			m.Date = time.Unix(n, 0).UTC()
		}
	}
	stored, wire := "", ""
	for part := range strings.SplitSeq(sizes, ",") {
		if s, ok := strings.CutPrefix(part, "S="); ok {
			stored = s
		}
		if w, ok := strings.CutPrefix(part, "W="); ok {
			wire = w
		}
	}
	return m, stored != "" && stored == wire && stored == strconv.FormatInt(size, 10)
}

// cutInfo splits the name of a file before the letters of its flags.
func cutInfo(base string) (name, info string) {
	for _, mark := range []string{":2,", "!2,", ";2,"} { // the latter two for systems without colons in names
		if at := strings.LastIndex(base, mark); at >= 0 {
			return base[:at], base[at+len(mark):]
		}
	}
	return base, ""
}

// folder returns the folder of a Maildir. Its path is in Maildir++ form, with dots before the
// levels of a name, or has nested directories.
func (d *maildirs) folder(dir string) (name, special string) {
	if n, ok := d.entries[dir]; ok {
		return n.Name, parseSpecialUse(n.Special)
	}
	if dir == "" {
		return "", ""
	}
	var levels []string
	for i, part := range strings.Split(dir, "/") {
		if i == 0 && (strings.EqualFold(part, maildirRoot) || strings.EqualFold(part, "."+maildirRoot)) {
			continue
		}
		dotted, isDotted := strings.CutPrefix(part, ".")
		if !isDotted {
			levels = append(levels, decodeLevel(part))
			continue
		}
		for level := range strings.SplitSeq(dotted, ".") {
			levels = append(levels, decodeLevel(level))
		}
	}
	return strings.Join(levels, "/"), ""
}

// decodeLevel decodes a level of a name from modified UTF-7, as servers write it, or returns it
// unchanged.
func decodeLevel(level string) string {
	level = strings.ReplaceAll(level, encodedDot, ".")
	if name, err := message.DecodeUTF7(level); err == nil {
		level = name
	}
	return strings.ReplaceAll(level, "/", "_")
}

// encodedDot stands for a dot within a level, which would otherwise begin another.
const encodedDot = "&AC4-"

func encodeLevel(level string) string {
	return strings.ReplaceAll(message.EncodeUTF7(level), ".", encodedDot)
}

// cleanPath turns the name of any file into a path within the archive: no name leads out of it.
func cleanPath(name string) string {
	name = strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", "_"), "_")
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}
