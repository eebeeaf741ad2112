// SPDX-License-Identifier: Apache-2.0

package mailio_test

import (
	"archive/tar"
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/mailio"
)

// Keywords are preserved for any order of the files in a tar: mostly the messages come before the
// names of their keywords.
func TestKeywordsInAnyOrder(t *testing.T) {
	each(t, func(h *fixture) {
		files := [][2]string{
			{"cur/1.M1P1.x:2,Sa", "Subject: one\r\n\r\none\r\n"},
			{"cur/2.M2U7V9.x:2,Fbz", "Subject: two\r\n\r\ntwo\r\n"},
			{"cur/3.M3P3.x:2,", "Subject: three\r\n\r\nthree\r\n"},
			{".Work/cur/4.M4P4.x:2,ab", "Subject: four\r\n\r\nfour\r\n"},
			{".Other/cur/5.M5P5.x:2,a", "Subject: five\r\n\r\nfive\r\n"},
			{"dovecot-keywords", "0 $Forwarded\n1 Later\n2 Never\n3 bad]word\n"},
			{"mailstead-keywords", "U7V9 further more\n"},
			{".Work/dovecot-keywords", "0 Customer\n1 $Label1\n"},
		}
		pack := func(order []int) []byte {
			var b bytes.Buffer
			w := tar.NewWriter(&b)
			for _, i := range order {
				h.must(w.WriteHeader(&tar.Header{Name: files[i][0], Typeflag: tar.TypeReg, Size: int64(len(files[i][1])), Mode: 0o600, ModTime: time.Unix(1_700_000_000, 0)}))
				_, err := w.Write([]byte(files[i][1]))
				h.must(err)
			}
			h.must(w.Close())
			return b.Bytes()
		}
		keywords := func(order []int) string {
			box := h.box()
			if r := h.bring(box, pack(order), mailio.ImportOptions{}); r.Imported != 5 || r.Failed != 0 {
				h.Errorf("%+v", r)
			}
			var got []string
			for _, line := range h.all(box) {
				if _, words, ok := strings.Cut(line, "["); ok {
					words, _, _ = strings.Cut(words, "]")
					_, subject, _ := strings.Cut(line, "Subject: ")
					subject, _, _ = strings.Cut(subject, `\r`)
					got = append(got, subject+" "+words)
				}
			}
			slices.Sort(got)
			return strings.Join(got, "|")
		}
		const want = "five |four $Label1 Customer|one $Forwarded|three |two Later further more"
		for _, order := range [][]int{{5, 6, 7, 0, 1, 2, 3, 4}, {0, 1, 2, 3, 4, 5, 6, 7}, {4, 3, 2, 1, 0, 7, 6, 5}, {0, 5, 1, 6, 3, 2, 7, 4}, {1, 6, 0, 2, 5, 3, 4, 7}} {
			if got := keywords(order); got != want {
				h.Errorf("%v: %s", order, got)
			}
		}
	})
}
