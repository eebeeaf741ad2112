// SPDX-License-Identifier: Apache-2.0

package archive

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

// Files that stand beside messages in a Maildir.
const (
	keywordsFile = "dovecot-keywords"   // the letters a to z and what they mean, as Dovecot has it
	moreFile     = "mailstead-keywords" // keywords beyond those, by message
	// keywordsRecord has, in a tar, those of a message for which moreFile had no
	// room.
	keywordsRecord = "MAILSTEAD.keywords"
	// recordsFile has, in a folder of files, what keywordsRecord says of those
	// beside it. Programs pass over what begins with a dot.
	recordsFile = ".mailstead-keywords"
	foldersFile = "mailstead-folders.json" // names and special uses of folders
	maxLetters  = 26
	maildirMark = "Maildir" // what the folder of all folders is called, usually
)

// folderNote is an entry of foldersFile.
type folderNote struct {
	Path       string `json:"path"` // of the folder's Maildir, below the file; "" for where the file is
	Name       string `json:"name"`
	Special    string `json:"special_use,omitempty"`
	Subscribed bool   `json:"subscribed"`
}

// maildirs is what is known of the Maildirs of an archive.
type maildirs struct {
	letters map[string][]string   // keywords of a Maildir, by letter
	more    map[string]*further   // further ones, by Maildir
	notes   map[string]folderNote // by Maildir
	bytes   int                   // read of the files that tell of keywords
	names   int                   // bytes of names in notes
	early   map[string]bool       // Maildirs of which messages came before what names their keywords
}

func newMaildirs() *maildirs {
	return &maildirs{letters: map[string][]string{}, more: map[string]*further{}, notes: map[string]folderNote{}, early: map[string]bool{}}
}

// side reads a file that tells of a Maildir, in dir. known is false if it is
// none.
func (d *maildirs) side(dir, base string, r io.Reader, to Sink) (known bool, err error) {
	switch base {
	case keywordsFile, moreFile:
	case foldersFile:
		return true, d.folders(dir, r, to)
	default:
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxSideFile))
	if err != nil {
		return true, err
	}
	if d.bytes += len(text); d.bytes > maxSides || len(d.letters)+len(d.more) > maxTables {
		return true, broken("The files of the archive that tell of keywords are too large.")
	}
	letters, more := []string(nil), (*further)(nil)
	if base == keywordsFile {
		letters = readLetters(text)
		d.letters[dir] = letters
	} else {
		more = readMore(text)
		d.more[dir] = more
	}
	if !d.early[dir] || to.Named == nil {
		return true, nil
	}
	return true, to.Named(dir, func(u *Unnamed) (words []string) {
		for i, word := range letters {
			if u.Letters&(1<<i) != 0 && word != "" {
				words = append(words, word)
			}
		}
		return append(words, more.words(u.Key)...)
	})
}

// unnamed returns the keywords of a message that are not named yet; nil for none.
func (d *maildirs) unnamed(dir, info, key string) *Unnamed {
	u := &Unnamed{Maildir: dir}
	if d.letters[dir] == nil {
		for _, c := range info {
			if c >= 'a' && c <= 'z' {
				u.Letters |= 1 << (c - 'a')
			}
		}
	}
	if d.more[dir] == nil && moreKey.MatchString(key) {
		u.Key = key
	}
	if u.Letters == 0 && u.Key == "" {
		return nil
	}
	if !d.early[dir] {
		if d.names += len(dir); d.names > maxNames || len(d.early) == maxTables {
			d.names -= len(dir)
			return nil
		}
		d.early[dir] = true
	}
	return u
}

// moreKey is what a message is called in moreFile.
var moreKey = regexp.MustCompile(`^U[0-9]{1,10}V[0-9]{1,10}$`)

// folders reads foldersFile, one folder after the other: all at once would take many
// times the memory of the file.
func (d *maildirs) folders(dir string, r io.Reader, to Sink) error {
	in := &metered{r: io.LimitReader(r, maxFolders), left: maxNote}
	list := json.NewDecoder(in)
	failed := func() error {
		if in.err != nil {
			return in.err
		}
		return to.Failed(place(path.Join(dir, foldersFile)), "This list of folders can't be read.")
	}
	if begin, err := list.Token(); err != nil || begin != json.Delim('[') {
		return failed()
	}
	for list.More() {
		in.left = maxNote
		var n folderNote
		if list.Decode(&n) != nil {
			return failed()
		}
		if len(n.Name) > maxName { // it is fitted again for each message
			n.Name = strings.ToValidUTF8(n.Name[:maxName], "")
		}
		at := clean(path.Join(dir, n.Path))
		d.names += len(n.Name) + len(n.Special) + len(at)
		if len(d.notes) >= maxTables || d.names > maxNames {
			return broken("The archive tells of too many folders.")
		}
		d.notes[at] = n
		if err := to.Folder(Folder{Name: n.Name, Special: use(n.Special), Subscribed: n.Subscribed}); err != nil {
			return err
		}
	}
	if _, err := list.Token(); err != nil {
		return failed()
	}
	return nil
}

// errNote says that a folder has too much to tell.
var errNote = errors.New("too long")

// metered bounds how much is read until left is set again.
type metered struct {
	r    io.Reader
	left int
	err  error // of r, but for its end
}

// Read is that of io.Reader.
func (m *metered) Read(p []byte) (int, error) {
	if m.left <= 0 {
		return 0, errNote
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	if err != nil && err != io.EOF { //nolint:errorlint // what io.Reader promises
		m.err = err
	}
	return n, err
}

// readLetters reads lines such as "0 $Forwarded".
func readLetters(text []byte) []string {
	letters := make([]string, maxLetters)
	for line := range bytes.Lines(text) {
		number, word, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if n, err := strconv.Atoi(number); err == nil && n >= 0 && n < maxLetters {
			letters[n] = word
		}
	}
	return letters
}

// further are the lines of a moreFile, such as "U17V1700000000 $Forwarded". They are
// taken apart when their message comes: all at once would take many times the memory
// of the file.
type further struct {
	text  string
	lines []uint32 // where they begin in text, in the order of their keys
}

func readMore(text []byte) *further {
	f := &further{text: string(text)}
	count := bytes.Count(text, []byte("\n")) + 1
	f.lines = make([]uint32, 0, min(count, len(text)/len("U1V1 a")+1))
	at := 0
	for line := range strings.Lines(f.text) {
		if key, words := cutMore(line); words != "" {
			if number, rest, ok := strings.Cut(key, "V"); ok && rest != "" && len(number) > 1 && key[0] == 'U' {
				f.lines = append(f.lines, uint32(at))
			}
		}
		at += len(line)
	}
	slices.SortStableFunc(f.lines, func(a, b uint32) int { return cmp.Compare(f.key(a), f.key(b)) })
	return f
}

func cutMore(line string) (key, words string) {
	key, words, _ = strings.Cut(strings.TrimSpace(line), " ")
	return key, words
}

// key is that of the line there.
func (f *further) key(line uint32) string {
	text, _, _ := strings.Cut(f.text[line:], "\n")
	key, _ := cutMore(text)
	return key
}

// words are the further keywords of a message; of several lines the last counts.
func (f *further) words(key string) []string {
	if f == nil {
		return nil
	}
	after := sort.Search(len(f.lines), func(i int) bool { return f.key(f.lines[i]) > key })
	if after == 0 || f.key(f.lines[after-1]) != key {
		return nil
	}
	line, _, _ := strings.Cut(f.text[f.lines[after-1]:], "\n")
	_, words := cutMore(line)
	if len(words) > maxFurther { // of another's making, and taken apart for each message of that name
		words = words[:max(0, strings.LastIndexByte(words[:maxFurther], ' '))]
	}
	return strings.Fields(words)
}

// message describes the message in a file of a Maildir by its name. verbatim
// says that the line ends of the file are those of the message.
func (d *maildirs) message(dir, base string, changed time.Time, size int64) (m *Message, verbatim bool) {
	m = &Message{Date: changed}
	m.Folder, m.Special = d.folder(dir)
	name, info := cutInfo(base)
	for _, c := range info {
		switch c {
		case 'S':
			m.Flags |= Seen
		case 'R':
			m.Flags |= Answered
		case 'F':
			m.Flags |= Flagged
		case 'T':
			m.Flags |= Deleted
		case 'D':
			m.Flags |= Draft
		case 'P':
			m.Keywords = append(m.Keywords, "$Forwarded")
		}
		if letters := d.letters[dir]; c >= 'a' && int(c-'a') < len(letters) && letters[c-'a'] != "" {
			m.Keywords = append(m.Keywords, letters[c-'a'])
		}
	}
	name, sizes, _ := strings.Cut(name, ",")
	parts := strings.Split(name, ".")
	key := ""
	if len(parts) > 1 {
		if at := strings.IndexByte(parts[1], 'U'); at >= 0 {
			key = parts[1][at:]
			m.Keywords = append(m.Keywords, d.more[dir].words(key)...)
		}
	}
	m.Unnamed = d.unnamed(dir, info, key)
	if !sane(m.Date) {
		m.Date = time.Time{}
		if n, err := strconv.ParseInt(parts[0], 10, 64); err == nil && sane(time.Unix(n, 0)) {
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

// cutInfo cuts the name of a file before the letters of its flags.
func cutInfo(base string) (name, info string) {
	for _, mark := range []string{":2,", "!2,", ";2,"} { // the others where a name can't have a colon
		if at := strings.LastIndex(base, mark); at >= 0 {
			return base[:at], base[at+len(mark):]
		}
	}
	return base, ""
}

// folder returns the folder that a Maildir is. Its path is as Maildir++ has it,
// with the levels of a name after dots, or one folder in another.
func (d *maildirs) folder(dir string) (name, special string) {
	if n, ok := d.notes[dir]; ok {
		return n.Name, use(n.Special)
	}
	if dir == "" {
		return "", ""
	}
	var levels []string
	for i, part := range strings.Split(dir, "/") {
		if i == 0 && (strings.EqualFold(part, maildirMark) || strings.EqualFold(part, "."+maildirMark)) {
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

// decodeLevel reads a level of a name: in modified UTF-7, as servers write it,
// or as it stands.
func decodeLevel(level string) string {
	level = strings.ReplaceAll(level, dotCode, ".")
	if name, err := message.DecodeUTF7(level); err == nil {
		level = name
	}
	return strings.ReplaceAll(level, "/", "_")
}

// dotCode is how a dot within a level is written, which would begin another.
const dotCode = "&AC4-"

func encodeLevel(level string) string {
	return strings.ReplaceAll(message.EncodeUTF7(level), ".", dotCode)
}

// clean makes a path within the archive of whatever name a file has: no name
// leads out of it.
func clean(name string) string {
	name = strings.ToValidUTF8(strings.ReplaceAll(name, "\x00", "_"), "_")
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}
