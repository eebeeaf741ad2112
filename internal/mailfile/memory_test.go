// SPDX-License-Identifier: Apache-2.0

package mailfile

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/heaptest"
)

// Reading any archive needs little memory. The data of one message is held until the sink has taken
// it.
func TestMemoryOfArchives(t *testing.T) {
	read := func(r io.Reader) any {
		var last *Message
		err := Read(r, Options{}, Sink{
			Message: func(m *Message) error {
				last = m
				_, err := io.Copy(io.Discard, struct{ io.Reader }{m.Body})
				return err
			},
			Folder: func(Folder) error { return nil },
			Failed: func(string, string) error { return nil },
		})
		return []any{last, err}
	}
	heaptest.Check(t, read,
		heaptest.Input{Head: from1, Unit: "x"},
		heaptest.Input{Head: from1, Unit: "X-Keywords: a b c d\n"},
		heaptest.Input{Head: from1 + "\n", Unit: ">"},
		heaptest.Input{Head: from1 + "Content-Length: 1048576\n\n" + from1, Unit: "x"},
		heaptest.Input{Head: largeFile(t, "cur/1.x:2,", "Subject: x\n\n"), Unit: "\x00"},
		heaptest.Input{Head: largeFile(t, folderListFile, ""), Unit: "{},"},
		heaptest.Input{Head: largeFile(t, folderListFile, "["), Unit: `{"path":"a"},`},
		heaptest.Input{Head: largeFile(t, folderListFile, `[{"name":"`), Unit: "x"},
		heaptest.Input{Head: largeFile(t, extraKeywordsFile, ""), Unit: "U1V1 a\n"},
		heaptest.Input{Head: largeFile(t, keywordsFile, ""), Unit: "1 a\n"})
}

// largeFile returns the beginning of a tar, whose first file has 1 GiB and begins with text.
func largeFile(t *testing.T, name, text string) string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	return b.String() + text
}

// As many entries of a folder list are used as can be read, and a damaged list is reported.
func TestFoldersFile(t *testing.T) {
	for text, want := range map[string]struct {
		folders int
		failed  bool
	}{
		`[]`: {0, false}, ` [ {"path":"a","name":"A"} , {"path":"b","name":"B"} ] `: {2, false},
		`[{"path":"a","name":"A"},{"path":1}]`: {1, true}, `[{"path":"a"}`: {1, true}, `{}`: {0, true}, ``: {0, true},
		`[{"name":"` + strings.Repeat("x", 2*maxFolderEntry) + `"}]`: {0, true},
	} {
		n, failed := 0, false
		to := Sink{Folder: func(Folder) error { n++; return nil }, Failed: func(string, string) error { failed = true; return nil }}
		if known, err := newMaildirs().readMetadata("", folderListFile, strings.NewReader(text), to); !known || err != nil || n != want.folders || failed != want.failed {
			t.Errorf("%.60s: %d folders, failed %v, %v", text, n, failed, err)
		}
	}
	many := "[" + strings.Repeat(`{"path":"`+strings.Repeat("x", 1000)+`"},`, maxFolderNames/1000+1) + "]"
	to := Sink{Folder: func(Folder) error { return nil }}
	if _, err := newMaildirs().readMetadata("", folderListFile, strings.NewReader(many), to); err == nil {
		t.Error("too many names are kept")
	}
}
