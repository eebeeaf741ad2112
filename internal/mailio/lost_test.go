// SPDX-License-Identifier: Apache-2.0

package mailio_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/mailio"
)

var loseRow = db.SQL(`DELETE FROM blob WHERE id = (SELECT m.blob FROM message AS m JOIN folder_message AS f ON f.message = m.id WHERE m.mailbox = $1 AND f.uid = $2)`)

// An export has all readable messages, and reports the missing ones.
func TestExportOfLost(t *testing.T) {
	each(t, func(h *fixture) {
		box := h.box()
		for _, text := range []string{"Subject: one\r\n\r\n1\r\n", "Subject: two\r\n\r\n2\r\n", "Subject: three\r\n\r\n" + strings.Repeat("3\r\n", 50_000), "Subject: four\r\n\r\n4\r\n"} {
			h.put(box, "INBOX", text, time.Unix(1e9, 0), 0)
		}
		files, err := filepath.Glob(filepath.Join(h.s.Config.Blobs, "??", "*"))
		h.must(err)
		for _, file := range files {
			h.must(os.Remove(file))
		}
		dbtest.Exec(h, h.s.DB, loseRow.With(box, 2))
		export := func(format string) string {
			var b bytes.Buffer
			err := h.s.Transfers.Export(h.Context(), mailio.ExportOptions{Account: h.account, Mailbox: box, Format: format}, &b)
			var missing *mailio.MissingError
			if !errors.As(err, &missing) || missing.Count != 2 || len(missing.IDs) != 2 || !strings.Contains(err.Error(), missing.IDs[1]) {
				h.Errorf("%s: %v", format, err)
			}
			return b.String()
		}
		for _, text := range []string{export(mailio.Mbox), mailsOf(h, export(mailio.Maildir))} {
			for subject, there := range map[string]bool{"one": true, "two": false, "three": false, "four": true} {
				if strings.Contains(text, "Subject: "+subject+"\n") != there {
					h.Errorf("%s is there: %v in\n%s", subject, !there, text)
				}
			}
		}
	})
}

// mailsOf returns the messages of a tar, which must be complete.
func mailsOf(h *fixture, text string) string {
	h.Helper()
	var all []string
	in := tar.NewReader(strings.NewReader(text))
	for {
		head, err := in.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(all, "\n")
		}
		h.must(err)
		if strings.Contains(head.Name, "cur/") {
			file, err := io.ReadAll(in)
			h.must(err)
			all = append(all, string(file))
		}
	}
}
