// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// All keywords are written and read, however many there are.
func TestManyKeywords(t *testing.T) {
	long := strings.Repeat("x", 90)
	all := make([]string, 64)
	for i := range all {
		all[i] = fmt.Sprint(long, i)
	}
	folders := []Folder{{Name: "INBOX"}, {Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	const each = 1300 // 4.5 MB of further keywords in each folder
	in, out := io.Pipe()
	go func() {
		out.CloseWithError(func() error {
			w, err := NewMaildirWriter(out, folders, time.Now())
			if err != nil {
				return err
			}
			for _, f := range folders {
				err := w.BeginFolder(f.Name, 7, all, func(yield func(MessageKeywords) bool) {
					for uid := uint32(1); uid <= each && yield(MessageKeywords{uid, all}); uid++ {
						continue
					}
				})
				if err != nil {
					return err
				}
				for uid := uint32(1); uid <= each; uid++ {
					if err := w.Write(&Message{Keywords: all}, uid, text{strings.NewReader("Subject: x\r\n\r\n")}); err != nil {
						return err
					}
				}
			}
			return w.Close()
		}())
	}()
	n := 0
	g := &gathered{}
	to := g.sink()
	to.Message = func(m *Message) error {
		n++
		if slices.Sort(m.Keywords); len(slices.Compact(m.Keywords)) != len(all) {
			t.Fatalf("message %d has %d keywords", n, len(m.Keywords))
		}
		return nil
	}
	if err := Read(in, Options{}, to); err != nil || n != each*len(folders) {
		t.Fatalf("%v after %d messages", err, n)
	}
}

// A message may have keywords that are not in the folder's list.
func TestUnlistedKeywords(t *testing.T) {
	var out bytes.Buffer
	w, err := NewMaildirWriter(&out, []Folder{{Name: "INBOX"}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"listed", "other"}
	if err := w.BeginFolder("INBOX", 7, all[:1], func(yield func(MessageKeywords) bool) { yield(MessageKeywords{1, all}) }); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(&Message{Keywords: all}, 1, text{strings.NewReader("Subject: x\r\n\r\n")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := gather(t, out.String(), Options{}).messages[0].Keywords; !slices.Equal(got, all) {
		t.Errorf("it has %q", got)
	}
}

// The cost of a message's keyword line doesn't grow with the number of messages with the same key.
func TestKeywordsOfOneName(t *testing.T) {
	d := newMaildirs()
	if _, err := d.readMetadata("", extraKeywordsFile, strings.NewReader("U1V1"+strings.Repeat(" (", maxKeywordsFile/2-2)), Sink{}); err != nil {
		t.Fatal(err)
	}
	if m, _ := d.message("", "1.U1V1.x:2,", time.Time{}, 0); len(m.Keywords) == 0 || len(m.Keywords) > maxMessageKeywords {
		t.Errorf("the message has %d keywords", len(m.Keywords))
	}
	to := (&gathered{}).sink()
	if _, err := d.readMetadata("", folderListFile, strings.NewReader(`[{"name": "`+strings.Repeat("x", maxFolderEntry/2)+`"}]`), to); err != nil {
		t.Fatal(err)
	}
	if m, _ := d.message("", "1.x:2,", time.Time{}, 0); m.Folder == "" || len(m.Folder) > maxPath {
		t.Errorf("its folder has a name of %d bytes", len(m.Folder))
	}
}

// Keyword files take little more memory than their size.
func TestMemoryOfKeywords(t *testing.T) {
	var lines strings.Builder
	for n := int64(1); lines.Len() < maxKeywordsFile-20; n++ {
		lines.WriteString(strconv.FormatInt(n, 36) + " a\n")
	}
	var ours strings.Builder
	for n := int64(1); ours.Len() < maxKeywordsFile-20; n++ {
		ours.WriteString("U" + strconv.FormatInt(n, 36) + "V1 a\n")
	}
	for name, text := range map[string]string{"words": "U1V1" + strings.Repeat(" a", maxKeywordsFile/2-2), "lines": lines.String(), "our lines": ours.String()} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		d := newMaildirs()
		for n := range 4 {
			if _, err := d.readMetadata(fmt.Sprint(n), extraKeywordsFile, strings.NewReader(text[:min(len(text), maxKeywordsFile-1)]), Sink{}); err != nil {
				t.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if n := int64(after.HeapAlloc - before.HeapAlloc); n > 2*4*maxKeywordsFile {
			t.Errorf("%s: %d MB are kept", name, n>>20)
		}
		runtime.KeepAlive(d)
	}
}

// Keywords that a tar stores beside its files stay with them in a directory, also after another
// program has changed a message's flags.
func TestUnpackedKeywords(t *testing.T) {
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []*tar.Header{
		{Typeflag: tar.TypeDir, Name: "cur/", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: "cur/1.U1V7.x:2,S", PAXRecords: map[string]string{keywordsRecord: "one two"}},
		{Typeflag: tar.TypeReg, Name: "cur/2.U2V7.x:2,"},
		{Typeflag: tar.TypeReg, Name: "cur/3.U3V7.x:2,", PAXRecords: map[string]string{keywordsRecord: "three"}},
		{Typeflag: tar.TypeDir, Name: ".a/cur/", Mode: 0o700},
		{Typeflag: tar.TypeReg, Name: ".a/cur/1.U1V7.x:2,", PAXRecords: map[string]string{keywordsRecord: "four"}},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := Unpack(&in, dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "cur/1.U1V7.x:2,S"), filepath.Join(dir, "cur/1.U1V7.x:2,FS")); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Pack(&out, dir, func(name string) { t.Error(name) }); err != nil {
		t.Fatal(err)
	}
	g := gather(t, out.String(), Options{})
	var got []string
	for _, m := range g.messages {
		got = append(got, m.Location+" "+strings.Join(m.Keywords, " "))
	}
	want := []string{".a/cur/1.U1V7.x:2, four", "cur/1.U1V7.x:2,FS one two", "cur/2.U2V7.x:2, ", "cur/3.U3V7.x:2, three"}
	if !slices.Equal(got, want) || len(g.failed) > 0 {
		t.Errorf("%q, failed: %q", got, g.failed)
	}
}
