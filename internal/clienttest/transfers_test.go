// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"archive/tar"
	"errors"
	"io"
	"strings"

	"github.com/mailstead/mailstead/client"
)

// transfers tests mail imports and exports.
func (h *fixture) transfers() {
	h.Helper()
	ctx := h.Context()
	const one = "From x Sat Nov 21 17:00:00 2026\nStatus: RO\nSubject: brought in\nMessage-ID: <in@elsewhere.example>\n\nHello.\n\n"
	file := strings.NewReader(one + "From x Sat Nov 21 17:00:00 2026\n\n")
	in, err := h.c.ImportMailbox(ctx, h.boxes[1], file, client.MailImportOptions{Type: "application/mbox", Folder: "Brought"})
	h.want("importing", err)
	if in.Imported != 1 || in.Bytes == 0 || in.Skipped != 0 || in.Failed != 1 || len(in.Failures) != 1 || in.Failures[0].Location != "message 2" {
		h.Errorf("imported %+v", in)
	}
	in, err = h.c.ImportMailbox(ctx, h.boxes[1], file, client.MailImportOptions{Folder: "Brought"}) // it was reset to its start
	if err != nil || in.Imported != 0 || in.Skipped != 1 {
		h.Errorf("imported once more: %+v, %v", in, err)
	}
	in, err = h.c.ImportMailbox(ctx, h.boxes[1], file, client.MailImportOptions{Folder: "Brought", All: true, Quoting: "mboxrd"})
	if err != nil || in.Imported != 1 {
		h.Errorf("imported without looking: %+v, %v", in, err)
	}
	_, err = h.c.ImportMailbox(ctx, h.boxes[1], strings.NewReader("%PDF-1.7"), client.MailImportOptions{})
	refused(h, "what is no mail", err, 422, "not_mail")
	var p *client.Problem
	if !errors.As(err, &p) || p.Import == nil || p.Import.Imported != 0 {
		h.Errorf("it does not tell how far it came: %+v", p)
	}
	_, err = h.c.ImportMailbox(ctx, h.boxes[1], strings.NewReader(one), client.MailImportOptions{Folder: "a//b", Quoting: "none"})
	refused(h, "an unknown quoting", err, 422, "validation_failed", "quoting unknown_value")
	_, err = h.c.ImportMailbox(ctx, h.boxes[1], strings.NewReader(one), client.MailImportOptions{Folder: "a//b"})
	refused(h, "a bad name", err, 422, "validation_failed", "folder bad_folder_name")

	out, err := h.c.ExportMailbox(ctx, h.boxes[1], client.MailExportOptions{Folder: "Brought"})
	h.want("exporting", err)
	text, err := io.ReadAll(out)
	if err != nil || strings.Count(string(text), "Subject: brought in\n") != 2 || !strings.HasPrefix(string(text), "From MAILSTEAD Sat Nov 21 17:00:00 2026\nStatus: RO\n") {
		h.Errorf("exported %s, %v", text, err)
	}
	h.want("closing", out.Close())
	out, err = h.c.ExportMailbox(ctx, h.boxes[1], client.MailExportOptions{Format: "maildir"})
	h.want("exporting", err)
	names := 0
	for t := tar.NewReader(out); ; names++ {
		if _, err = t.Next(); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) || names < 20 {
		h.Errorf("the tar has %d files and ends with %v", names, err)
	}
	h.want("closing", out.Close())
	_, err = h.c.ExportMailbox(ctx, h.boxes[1], client.MailExportOptions{Folder: "Nowhere"})
	refused(h, "a folder that is not there", err, 404, "no_such_folder")
}
