// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"

	"github.com/mailstead/mailstead/internal/bytesize"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/mailio"
	"github.com/mailstead/mailstead/internal/web"
)

const (
	// maxMailFile is the maximum size of a mail file, in bytes: browsers can't resume an upload.
	// The API and the command line have no limit.
	maxMailFile = 4 << 30
	// maxDrainBytes is how much of a file is read and dropped after an error, so that the browser
	// shows the error.
	maxDrainBytes = 256 << 20
)

// mailFileRoutes registers the import and export of a mailbox as a file.
func (d *Dashboard) mailFileRoutes(r *router) {
	r.viewFor(permWrite, "/mailboxes/{id}/files", d.mailFiles)
	r.upload("/mailboxes/{id}/import", maxMailFile, d.importMail, d.mailFiles)
	r.downloadFor(permWrite|permReadMail, "/mailboxes/{id}/export", d.exportMail)
}

type mailFilesPage struct {
	Box     mailbox.Mailbox
	Folders []string
}

func (d *Dashboard) mailFiles(v *requestContext) (page, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return page{}, err
	}
	s := mailFilesPage{Box: m}
	all, err := d.Folders.List(v.ctx, m.ID)
	for _, f := range all {
		s.Folders = append(s.Folders, f.Name)
	}
	return page{Template: "mail-files", Title: "Import and export " + m.Address, Section: "mailboxes", Data: s}, err
}

// mailImportPage is the result of an import.
type mailImportPage struct {
	Box mailbox.Mailbox
	mailio.ImportResult
	Trouble string // why it ended early
}

// importMail imports a file while it arrives. The form's folder field comes before the file.
func (d *Dashboard) importMail(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	body := v.uploadBody()
	form, err := v.r.MultipartReader()
	if err != nil {
		return actionResult{}, badForm()
	}
	in := mailio.ImportOptions{Account: v.session.Account, Mailbox: m.ID}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return actionResult{}, missingMailFile()
		}
		if err != nil {
			return actionResult{}, mailUploadError(err)
		}
		switch part.FormName() {
		case "folder":
			text, err := io.ReadAll(io.LimitReader(part, folder.MaxNameBytes+1))
			if err != nil {
				return actionResult{}, mailUploadError(err)
			}
			in.Folder = string(text)
			v.form = url.Values{"folder": {in.Folder}}
		case "file":
			if part.FileName() == "" {
				return actionResult{}, missingMailFile()
			}
			result, err := d.MailIO.Import(v.ctx, in, part)
			if err != nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(body, maxDrainBytes)) // the error is already known
			}
			body.PrepareResponse(err == nil)
			return d.importResult(m, result, mailUploadError(err))
		}
	}
}

// importResult shows the result of an import, including one that ended early.
func (d *Dashboard) importResult(m mailbox.Mailbox, result mailio.ImportResult, err error) (actionResult, error) {
	shown := mailImportPage{Box: m, ImportResult: result}
	var f *fault.Error
	status := http.StatusOK
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Code == folder.CodeBadName:
		var bad fault.FieldErrors
		bad.Add("folder", f.Code, "%s", f.Message)
		return actionResult{}, bad.Err()
	case errors.As(err, &f) && f.Kind != fault.Internal:
		shown.Trouble, status = f.Message, http.StatusUnprocessableEntity
	default:
		return actionResult{}, err
	}
	return actionResult{
		Summary: fmt.Sprintf("Imported %s into the mailbox %s.", plural(int(result.Imported), "message"), m.Address),
		Page:    &page{Template: "mail-imported", Title: "Imported", Section: "mailboxes", Status: status, Data: shown},
	}, nil
}

func missingMailFile() error {
	var bad fault.FieldErrors
	bad.Add("file", "required", "Choose a file with mail.")
	return bad.Err()
}

// mailUploadError converts an error of a streamed upload.
func mailUploadError(err error) error {
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		return fault.New(fault.TooLarge, "file_too_large", "A browser can bring in %s at once; the command line takes any size.", bytesize.Format(maxMailFile))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unavailable, "upload_broken", "The file stopped coming. Send it again: what was imported is left out then.")
	}
	return err
}

// exportMail responds with a mailbox as a download.
func (d *Dashboard) exportMail(v *requestContext) error {
	m, err := d.findMailbox(v)
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	order := mailio.ExportOptions{Account: v.session.Account, Mailbox: m.ID, Format: q.Get("format"), Folder: q.Get("folder")}
	if order.Format == "" {
		order.Format = mailio.Mbox
	}
	told := "Exported the mailbox " + m.Address + "."
	if order.Folder != "" {
		told = fmt.Sprintf("Exported the folder %q of the mailbox %s.", order.Folder, m.Address)
	}
	out := mailio.NewStreamWriter(v.w, func() {
		v.w.Header().Set("Content-Type", order.ContentType())
		v.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": m.Address + order.Extension()}))
	})
	// The entry comes first: the download may break off after most of the mail was sent.
	if err := order.Check(v.ctx, d.MailIO); err != nil {
		return err
	}
	if v.r.Method == http.MethodHead { // nothing is exported
		out.Finish()
		return nil
	}
	if err := d.Audit.Write(v.ctx, v.auditEntry(told)); err != nil {
		return err
	}
	if err = d.MailIO.Export(v.ctx, order, &revalidatingStream{v: v, w: out}); err == nil {
		out.Finish()
		return nil
	}
	if !out.Begun {
		return err
	}
	web.AbortResponse(v.w, v.r, d.Log, err)
	return nil
}

// revalidatingStream is an upload or download, which may take hours. It fails when the user is
// signed out or leaves the account, or when the account is suspended.
type revalidatingStream struct {
	v          *requestContext
	r          io.Reader
	w          io.Writer
	untilCheck int // bytes until the next check
}

// uploadBody wraps the request's body in a revalidatingStream.
func (v *requestContext) uploadBody() *mailio.RequestBodyReader {
	body := mailio.NewRequestBodyReader(v.w, v.r)
	v.r.Body = struct {
		io.Reader
		io.Closer
	}{&revalidatingStream{v: v, r: body}, v.r.Body}
	return body
}

// revalidateBytes is the number of bytes between two checks.
const revalidateBytes = 1 << 20

// Read implements io.Reader.
func (a *revalidatingStream) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if gone := a.revalidate(n); gone != nil {
		return 0, gone
	}
	return n, err
}

// Write implements io.Writer.
func (a *revalidatingStream) Write(p []byte) (int, error) {
	if err := a.revalidate(len(p)); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

// revalidate returns fault.Unauthenticated once the session has ended. If a check itself fails, the
// session counts as valid.
func (a *revalidatingStream) revalidate(n int) error {
	if a.untilCheck -= n; a.untilCheck > 0 {
		return nil
	}
	a.untilCheck = revalidateBytes
	v := a.v
	if err := v.d.Users.CheckSession(v.ctx, v.session); fault.Is(err, fault.Unauthenticated) {
		return err
	}
	if active, err := v.d.Accounts.IsActive(v.ctx, v.session.Account); err == nil && !active {
		return fault.New(fault.Unauthenticated, "account_suspended", "This account is suspended. Ask the operator of the service.")
	}
	return nil
}
