// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
)

// entry is a file of a tar.
type entry struct {
	name, text string
	kind       byte // 0: a file, or a directory if the name ends in a slash
}

func tarOf(t testing.TB, entries ...entry) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.text)), Mode: 0o600, ModTime: time.Unix(1e9, 0)}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
			if strings.HasSuffix(e.name, "/") {
				h.Typeflag = tar.TypeDir
			}
		} else {
			h.Linkname = "elsewhere"
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func gzipOf(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Tars of common programs, and the folder of each message.
func TestTars(t *testing.T) {
	const eml = "Subject: x\n\nx\n"
	for _, c := range []struct {
		name   string
		files  []entry
		want   []string // folder: flags keywords
		failed int
	}{
		{"Maildir++ of Dovecot", []entry{
			{"Maildir/", "", 0}, {"Maildir/dovecot-keywords", "0 $Forwarded\n1 NonJunk\nx y\n99 z\n", 0}, {"Maildir/dovecot.index.cache", "\x00\x01", 0}, {"Maildir/subscriptions", "V\t2\n\nSent\n", 0},
			{"Maildir/cur/1000000001.M1P2.host,S=14,W=17:2,RSab", eml, 0}, {"Maildir/new/1000000002.M1P2.host", eml, 0}, {"Maildir/tmp/1000000003.M1P2.host", eml, 0},
			{"Maildir/.Sent.2019.Entw&APw-rfe/cur/1000000001.x:2,FTDP", eml, 0}, {"Maildir/.empty/cur/", "", 0}, {"Maildir/cur/.hidden", "x", 0},
		}, []string{": 3 $Forwarded NonJunk", ": 0 ", "Sent/2019/Entwürfe: 28 $Forwarded"}, 0},
		{"one folder in another", []entry{{"mail/Work/cur/1:2,S", eml, 0}, {"./mail/Work/Old/new/2", eml, 0}, {"cur/3;2,F", eml, 0}}, []string{"mail/Work: 1 ", "mail/Work/Old: 0 ", ": 4 "}, 0},
		{"single messages", []entry{{"a.eml", eml, 0}, {"Old/b.EML", eml, 0}, {"c", eml, 0}, {"picture.jpg", "\xff\xd8\xff", 0}, {"readme.txt", "Hello.\n", 0}, {".DS_Store", "x", 0}}, []string{": 0 ", "Old: 0 ", ": 0 "}, 2},
		{"mboxes", []entry{{"Inbox.mbox", from1 + eml, 0}, {"Archives.sbd/2019", from1 + "X-Mozilla-Status: 0001\n" + eml, 0}, {"Inbox.msf", "x", 0}, {"Letters.mbox/mbox", from1 + eml, 0}, {"none.mbox", "", 0}}, []string{"Inbox: 0 ", "Archives/2019: 1 ", "Letters: 0 "}, 0},
		{"no ordinary files", []entry{
			{"cur/1", "", tar.TypeSymlink}, {"cur/2", "", tar.TypeLink}, {"etc", "", tar.TypeSymlink}, {"dev", "", tar.TypeChar}, {"fifo", "", tar.TypeFifo}, {"cur/3", eml, 0},
		}, []string{": 0 "}, 4},
		{"names that lead elsewhere", []entry{{"../../etc/cur/1:2,S", eml, 0}, {"/root/cur/2", eml, 0}, {"a/../../b/../c/x.eml", eml, 0}, {"\xff\xfe/new/3", eml, 0}}, []string{"etc: 1 ", "root: 0 ", "c: 0 ", "_: 0 "}, 0},
		{"mail that is called as what is no mail", []entry{
			{"lists/dovecot", from1 + eml, 0}, {"subscriptions", from1 + eml, 0}, {"courier, please call.eml", eml, 0}, {"tmp/old.mbox", from1 + eml, 0},
			{"tmp/1000000003.M1P2.host", eml, 0}, {".mh_sequences", "cur: 1\n", 0}, {"courierimapuiddb", "1 2 3\n", 0},
		}, []string{"lists/dovecot: 0 ", "subscriptions: 0 ", ": 0 ", "tmp/old: 0 "}, 0},
		{"a bad list of folders", []entry{{folderListFile, "[{", 0}, {"cur/1", eml, 0}}, []string{": 0 "}, 1},
	} {
		for _, packed := range []bool{false, true} {
			stream := tarOf(t, c.files...)
			if packed {
				stream = gzipOf(t, stream)
			}
			g := gather(t, stream, Options{})
			var got []string
			for _, m := range g.messages {
				got = append(got, m.Folder+": "+string(rune('0'+m.Flags))+" "+strings.Join(m.Keywords, " "))
				if m.text != "Subject: x\r\n\r\nx\r\n" && !strings.Contains(m.Location, "hidden") {
					t.Errorf("%s: %q", c.name, m.text)
				}
			}
			for i := range c.want {
				if n, rest, ok := strings.Cut(c.want[i], ": 28 "); ok {
					c.want[i] = n + ": " + string(rune('0'+28)) + " " + rest
				}
			}
			if !slices.Equal(got, c.want) || len(g.failed) != c.failed {
				t.Errorf("%s: %q, failed %q", c.name, got, g.failed)
			}
		}
	}
	if g := gather(t, tarOf(t, entry{"Maildir/.empty/cur/", "", 0}), Options{}); !slices.Contains(g.folders, Folder{Name: "empty", Subscribed: true}) {
		t.Errorf("an empty folder is lost: %+v", g.folders)
	}
	if g := gather(t, tarOf(t, entry{"cur/1000000007.x", eml, 0}), Options{}); !g.messages[0].Date.Equal(time.Unix(1e9, 0)) {
		t.Errorf("the date is %v", g.messages[0].Date)
	}
}

// Streams that are broken, no mail, or too large after decompression are reported, after the
// messages before.
func TestBrokenStreams(t *testing.T) {
	whole := tarOf(t, entry{"cur/1", "Subject: x\n\nx\n", 0}, entry{"cur/2", strings.Repeat("Subject: y\n", 1000), 0})
	for name, c := range map[string]struct {
		stream string
		kind   Kind
		code   string
		n      int
	}{
		"a tar without its end":     {whole[:3000], Detect, CodeBroken, 2},
		"no tar":                    {strings.Repeat("x", 2000), Tar, CodeBroken, 0},
		"no gzip":                   {"x", Gzip, CodeBroken, 0},
		"a gzip without its end":    {gzipOf(t, whole)[:100], Detect, CodeBroken, -1},
		"gzip in gzip":              {gzipOf(t, gzipOf(t, whole)), Detect, CodeNotMail, 0},
		"a zip":                     {"PK\x03\x04xxxx", Detect, CodeNotMail, 0},
		"html":                      {"<html>", Detect, CodeNotMail, 0},
		"a bomb":                    {gzipOf(t, "Subject: x\n\n"+strings.Repeat(strings.Repeat("x", 1<<20-1)+"\n", 80)), Detect, CodeBomb, -1},
		"a sparse file of 8 EB":     {sparseTar(), Detect, "", 0},
		"a message that is no mbox": {"Subject: x\n\n", Mbox, CodeBroken, 0},
	} {
		n := 0
		g := &gathered{}
		sink := g.sink()
		sink.Message = func(m *Message) error {
			n++
			_, err := io.Copy(io.Discard, m.Body)
			return err
		}
		err := Read(strings.NewReader(c.stream), Options{Kind: c.kind}, sink)
		code := ""
		if f, ok := err.(*fault.Error); ok { //nolint:errorlint // it is returned as it is
			code = f.Code
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if code != c.code || c.n >= 0 && n != c.n {
			t.Errorf("%s: %v after %d messages, failed %q", name, err, n, g.failed)
		}
	}
}

// No folder has a name longer than systems allow: thousands of names are remembered.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 1<<19) + "/"
	g := gather(t, gzipOf(t, tarOf(t, entry{long + keywordsFile, "0 a\n", 0}, entry{long + folderListFile, `[{"path": "y"}]`, 0}, entry{long + "x.eml", "Subject: x\n\n", 0},
		entry{long + "cur/", "", 0}, entry{"y.eml", "Subject: y\n\n", 0})), Options{})
	for _, f := range g.folders {
		if len(f.Name) > maxPath {
			t.Errorf("a folder has a name of %d bytes", len(f.Name))
		}
	}
	if len(g.messages) != 1 || len(g.failed) != 4 {
		t.Errorf("%d messages, failed: %q", len(g.messages), g.failed)
	}
}

// sparseTar returns a tar with a sparse file that takes no space, in GNU tar's format.
func sparseTar() string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "x", Typeflag: tar.TypeReg, Size: 0, Format: tar.FormatGNU})
	_ = w.Close()
	block := b.Bytes()[:512]
	block[156] = tar.TypeGNUSparse
	copy(block[386:], "00000000000\x0000000000000\x00") // one empty piece
	copy(block[483:], "\x80\x00\x00\x00\x70\x00\x00\x00\x00\x00\x00\x00")
	sum := int64(0)
	for i, c := range block {
		if i >= 148 && i < 156 {
			c = ' '
		}
		sum += int64(c)
	}
	copy(block[148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return b.String()
}

// A directory that is packed, read, written and unpacked is identical.
func TestPackAndUnpack(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"cur/9.x:2,S": "Subject: 9\n\n", "cur/10.x:2,Sa": "Subject: 10\n\n", "dovecot-keywords": "0 word\n", ".Sent/cur/1.y:2,": "Subject: 1\n\n", "tmp/x": "",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, ".etc")); err != nil {
		t.Fatal(err)
	}
	for _, pipe := range []string{"tmp/pipe", ".Sent/" + recordsFile} { // opening it blocks until there is a writer
		if err := syscall.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	var skipped []string
	if err := Pack(&out, dir, func(name string) { skipped = append(skipped, name) }); err != nil || !slices.Equal(skipped, []string{".etc", "tmp/pipe"}) {
		t.Fatal(err, skipped)
	}
	stream := out.String()
	g := gather(t, stream, Options{})
	var got []string
	for _, m := range g.messages {
		got = append(got, m.Location+" "+m.Folder+" "+strings.Join(m.Keywords, " "))
	}
	if want := []string{".Sent/cur/1.y:2, Sent ", "cur/9.x:2,S  ", "cur/10.x:2,Sa  word"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	to := t.TempDir()
	if err := Unpack(strings.NewReader(stream), to); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := Pack(&again, to, func(string) {}); err != nil || again.String() != stream {
		t.Errorf("unpacked and packed it is not the same: %v", err)
	}
	for _, e := range []entry{{"../x", "x", 0}, {"/etc/x", "x", 0}, {"a/../../x", "x", 0}, {"link", "", tar.TypeSymlink}, {"cur/9.x:2,S", "twice", 0}} {
		if err := Unpack(strings.NewReader(tarOf(t, e)), to); err == nil {
			t.Errorf("%s was unpacked", e.name)
		}
	}
}

// A single message, as programs save it.
func TestEML(t *testing.T) {
	for text, want := range map[string]string{
		"Subject: x\n\nx\r\ny\rz":                                              "Subject: x\r\n\r\nx\r\ny\rz",
		"Subject: x":                                                           "Subject: x",
		"\xef\xbb\xbfSubject: x\n\n\xef\xbb\xbfx\n":                            "Subject: x\r\n\r\n\xef\xbb\xbfx\r\n",
		"\xef\xbb\xbf" + from1 + "Subject: x\n\nx\n":                           "Subject: x\r\n\r\nx\r\n",
		tarOf(t, entry{"a.eml", "\xef\xbb\xbfSubject: x\n\nx\n", 0}):           "Subject: x\r\n\r\nx\r\n",
		tarOf(t, entry{"cur/1.x:2,S", "\xef\xbb\xbfSubject: x\n\nx\n", 0}):     "Subject: x\r\n\r\nx\r\n",
		tarOf(t, entry{"cur/1.x,S=11,W=11:2,S", "\xef\xbb\xbfA: b\n\nx\n", 0}): "\xef\xbb\xbfA: b\n\nx\n", // unchanged
	} {
		if g := gather(t, text, Options{}); !slices.Equal(g.texts(), []string{want}) {
			t.Errorf("%q: %q", text, g.texts())
		}
	}
}

// A tar cut off between two files is not taken for a complete one: the missing part would go
// unnoticed. The files before are read all the same.
func TestTarWithoutEnd(t *testing.T) {
	long := strings.Repeat("deep/", 60) + "b.eml" // has an extra header before its own
	whole := tarOf(t, entry{name: "a.eml", text: "Subject: a\n\na\n"}, entry{name: long, text: "Subject: b\n\nb\n"})
	const block = 512
	blocks := len(whole) / block
	for n := 1; n <= blocks; n++ {
		var got []string
		err := Read(strings.NewReader(whole[:n*block]), Options{Kind: Tar}, Sink{
			Message: func(m *Message) error {
				_, err := io.Copy(io.Discard, m.Body)
				got = append(got, m.Location)
				return err
			},
			Folder: func(Folder) error { return nil },
			Failed: func(string, string) error { return nil },
		})
		if ended := n >= blocks-1; ended != (err == nil) || err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("of %d blocks %d: %v, after %q", blocks, n, err, got)
		}
		if n >= 2 && len(got) == 0 {
			t.Errorf("of %d blocks %d: nothing was given", blocks, n)
		}
	}
}
