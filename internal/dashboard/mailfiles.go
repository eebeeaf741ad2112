// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/transfer"
)

const (
	// maxMailFile bounds a file with mail, in bytes: browsers can't go on with
	// an upload that broke off. The API and the command line have no bound.
	maxMailFile = 4 << 30
	// drained is how much of a file is read and dropped after an error, so that
	// the browser gets to see what is wrong.
	drained = 256 << 20
)

// fileRoutes bring mail in files into a mailbox and out of it.
func (d *Dashboard) fileRoutes(r *router) {
	r.viewFor(working, "/mailboxes/{id}/files", d.mailFiles)
	r.upload("/mailboxes/{id}/import", maxMailFile, d.importMail, d.mailFiles)
	r.fileFor(working|readsMail, "/mailboxes/{id}/export", d.exportMail)
}

type shownMailFiles struct {
	Box     mailbox.Mailbox
	Folders []string
}

func (d *Dashboard) mailFiles(v *visit) (page, error) {
	m, err := d.box(v)
	if err != nil {
		return page{}, err
	}
	s := shownMailFiles{Box: m}
	all, err := d.Folders.Folders(v.ctx, m.ID)
	for _, f := range all {
		s.Folders = append(s.Folders, f.Name)
	}
	return page{Template: "mail-files", Title: "Import and export " + m.Address, Section: "mailboxes", Data: s}, err
}

// importedMail is how far an import came.
type importedMail struct {
	Box mailbox.Mailbox
	transfer.Result
	Trouble string // why it did not come to the end
}

// importMail takes a file in as it arrives. The form's folder stands before it.
func (d *Dashboard) importMail(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	body := v.arriving()
	form, err := v.r.MultipartReader()
	if err != nil {
		return done{}, badForm()
	}
	in := transfer.In{Account: v.in.Account, Mailbox: m.ID}
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return done{}, noMailFile()
		}
		if err != nil {
			return done{}, unreadMail(err)
		}
		switch part.FormName() {
		case "folder":
			text, err := io.ReadAll(io.LimitReader(part, folder.MaxName+1))
			if err != nil {
				return done{}, unreadMail(err)
			}
			in.Folder = string(text)
			v.form = url.Values{"folder": {in.Folder}}
		case "file":
			if part.FileName() == "" {
				return done{}, noMailFile()
			}
			result, err := d.Transfers.Import(v.ctx, in, part)
			if err != nil {
				_, _ = io.Copy(io.Discard, io.LimitReader(body, drained)) // what is wrong is known already
			}
			body.End(err == nil)
			return d.tellImport(m, result, unreadMail(err))
		}
	}
}

// tellImport shows what an import did, also one that did not come to the end.
func (d *Dashboard) tellImport(m mailbox.Mailbox, result transfer.Result, err error) (done, error) {
	shown := importedMail{Box: m, Result: result}
	var f *fault.Error
	status := http.StatusOK
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Code == folder.CodeBadName:
		var bad fault.Fields
		bad.Add("folder", f.Code, "%s", f.Message)
		return done{}, bad.Err()
	case errors.As(err, &f) && f.Kind != fault.Internal:
		shown.Trouble, status = f.Message, http.StatusUnprocessableEntity
	default:
		return done{}, err
	}
	return done{
		Told: fmt.Sprintf("Imported %s into the mailbox %s.", plural(int(result.Imported), "message"), m.Address),
		Show: &page{Template: "mail-imported", Title: "Imported", Section: "mailboxes", Status: status, Data: shown},
	}, nil
}

func noMailFile() error {
	var bad fault.Fields
	bad.Add("file", "required", "Choose a file with mail.")
	return bad.Err()
}

// unreadMail tells an error of a file that comes in as a stream.
func unreadMail(err error) error {
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		return fault.New(fault.TooLarge, "file_too_large", "A browser can bring in %s at once; the command line takes any size.", size(maxMailFile))
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unavailable, "upload_broken", "The file stopped coming. Send it again: what was imported is left out then.")
	}
	return err
}

// exportMail offers a mailbox as a download.
func (d *Dashboard) exportMail(v *visit) error {
	m, err := d.box(v)
	if err != nil {
		return err
	}
	q := v.r.URL.Query()
	order := transfer.Out{Account: v.in.Account, Mailbox: m.ID, Format: q.Get("format"), Folder: q.Get("folder")}
	if order.Format == "" {
		order.Format = transfer.Mbox
	}
	told := "Exported the mailbox " + m.Address + "."
	if order.Folder != "" {
		told = fmt.Sprintf("Exported the folder %q of the mailbox %s.", order.Folder, m.Address)
	}
	out := transfer.Leave(v.w, func() {
		v.w.Header().Set("Content-Type", order.Media())
		v.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": m.Address + order.Ending()}))
	})
	// Noted first: it may be broken off when most of the mail is out.
	if err := order.Check(v.ctx, d.Transfers); err != nil {
		return err
	}
	if v.r.Method == http.MethodHead { // nothing is taken out
		out.End()
		return nil
	}
	if err := d.Audit.Write(v.ctx, v.entry(told)); err != nil {
		return err
	}
	if err = d.Transfers.Export(v.ctx, order, &attended{v: v, w: out}); err == nil {
		out.End()
		return nil
	}
	if !out.Begun {
		return err
	}
	// Half of the mail must not look whole.
	if v.ctx.Err() == nil && !errors.Is(err, context.Canceled) && !errors.Is(err, os.ErrDeadlineExceeded) && !fault.Is(err, fault.Unknown) {
		d.Log.ErrorContext(v.ctx, "an export broke off", "request", v.requestID(), "error", err)
	}
	_ = http.NewResponseController(v.w).Flush() // what was read is all given
	panic(http.ErrAbortHandler)
}

// attended is a file that comes or goes, maybe for hours: it breaks off when its
// visitor is signed out, has left the account, or that is suspended.
type attended struct {
	v     *visit
	r     io.Reader
	w     io.Writer
	until int // bytes until that is looked at again
}

// arriving has the visit's body read as such a file.
func (v *visit) arriving() *transfer.Arriving {
	body := transfer.Arrive(v.w, v.r)
	v.r.Body = struct {
		io.Reader
		io.Closer
	}{&attended{v: v, r: body}, v.r.Body}
	return body
}

// lookEvery is how much of a file may come or go between two looks, in bytes.
const lookEvery = 1 << 20

// Read is that of io.Reader.
func (a *attended) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	if gone := a.look(n); gone != nil {
		return 0, gone
	}
	return n, err
}

// Write is that of io.Writer.
func (a *attended) Write(p []byte) (int, error) {
	if err := a.look(len(p)); err != nil {
		return 0, err
	}
	return a.w.Write(p)
}

// look returns fault.Unknown once the visit has ended. That nobody can tell does not
// end it.
func (a *attended) look(n int) error {
	if a.until -= n; a.until > 0 {
		return nil
	}
	a.until = lookEvery
	v := a.v
	if err := v.d.Users.Still(v.ctx, v.in); fault.Is(err, fault.Unknown) {
		return err
	}
	if active, err := v.d.Accounts.Active(v.ctx, v.in.Account); err == nil && !active {
		return fault.New(fault.Unknown, "account_suspended", "This account is suspended. Ask the operator of the service.")
	}
	return nil
}
