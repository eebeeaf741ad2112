// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
)

// Formats of an export.
const (
	Mbox    = "mbox"    // one file
	Maildir = "maildir" // a tar of Maildirs
)

// ExportOptions is an export.
type ExportOptions struct {
	Account, Mailbox db.ID
	Format           string
	Folder           string // the only one; "" for all
}

// ContentType is the type of an export's stream.
func (o ExportOptions) ContentType() string {
	if o.Format == Maildir {
		return "application/x-tar"
	}
	return "application/mbox"
}

// Extension is how the name of a file with the export ends.
func (o ExportOptions) Extension() string {
	if o.Format == Maildir {
		return ".tar"
	}
	return ".mbox"
}

// Export writes what a mailbox holds: each folder as it was when its turn came.
// What is expunged before it was written is left out, and so is what only the
// mailbox's own protocols give. Nothing is held while w
// waits. A folder that is not there is a fault.NotFound, a format that is none
// a fault.Invalid, too many transfers a fault.RateLimited; then nothing was written.
// After a MissingError what was written is complete but for some messages; after
// another error it breaks off.
func (t *Service) Export(ctx context.Context, o ExportOptions, w io.Writer) error {
	if err := o.Check(ctx, t); err != nil {
		return err
	}
	end, err := t.acquire(o.Account)
	if err != nil {
		return err
	}
	defer end()
	folders, err := t.exportFolders(ctx, o)
	if err != nil {
		return err
	}
	x := &exporter{Service: t, ExportOptions: o, ctx: ctx}
	if o.Format == Mbox {
		err = x.writeMbox(folders, w)
	} else {
		err = x.writeMaildir(folders, w)
	}
	if err == nil && x.missing.Count > 0 {
		return &x.missing
	}
	return err
}

// MissingError is of an export that lacks messages, as their bytes are lost or
// can't be read.
type MissingError struct {
	Count int
	IDs   []string // the ids of the first; the log has all
}

// maxMissingIDs bounds what an answer's trailer holds.
const maxMissingIDs = 20

// Error names them.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("messages that could not be read and are missing: %d (%s", e.Count, strings.Join(e.IDs, ", "))
	if e.Count > len(e.IDs) {
		text += ", and others"
	}
	return text + ")"
}

// Check finds out whether an export is possible: a folder that is not there is
// a fault.NotFound, a format that is none a fault.Invalid.
func (o ExportOptions) Check(ctx context.Context, t *Service) error {
	if o.Format != Mbox && o.Format != Maildir {
		return fault.New(fault.Invalid, "unknown_format", "The format is mbox or maildir.")
	}
	_, err := t.exportFolders(ctx, o)
	return err
}

// exportFolders returns the folders of an export, INBOX first.
func (t *Service) exportFolders(ctx context.Context, o ExportOptions) ([]folder.Folder, error) {
	if o.Folder != "" {
		f, err := t.Folders.Status(ctx, o.Mailbox, o.Folder)
		return []folder.Folder{f}, err
	}
	all, err := t.Folders.Folders(ctx, o.Mailbox)
	slices.SortStableFunc(all, func(a, b folder.Folder) int {
		switch {
		case a.Name == b.Name:
			return 0
		case a.Name == folder.Inbox:
			return -1
		case b.Name == folder.Inbox:
			return 1
		}
		return 0
	})
	return all, err
}

// exporter is an export under way.
type exporter struct {
	*Service
	ExportOptions
	ctx     context.Context
	missing MissingError
}

func (x *exporter) writeMbox(folders []folder.Folder, w io.Writer) error {
	to := mailfile.NewMboxWriter(w)
	to.WithFolders = x.ExportOptions.Folder == ""
	for _, f := range folders {
		err := x.eachMessage(f.Name, func(*folder.View) error { return nil }, func(m *mailfile.Message, _ uint32, text mailfile.SizedReaderAt) error {
			m.Folder, m.SpecialUse = f.Name, f.SpecialUse
			return to.Write(m, text)
		})
		if err != nil {
			return err
		}
	}
	return to.Flush()
}

func (x *exporter) writeMaildir(folders []folder.Folder, w io.Writer) error {
	names, err := x.Folders.Subscriptions(x.ctx, x.Mailbox)
	if err != nil {
		return err
	}
	var list []mailfile.Folder
	for _, f := range folders {
		name := f.Name
		if x.ExportOptions.Folder != "" { // it alone is the inbox of what is written
			name, f.SpecialUse = folder.Inbox, ""
		}
		list = append(list, mailfile.Folder{Name: name, SpecialUse: f.SpecialUse, Subscribed: slices.Contains(names, f.Name)})
	}
	to, err := mailfile.NewMaildirWriter(w, list, x.Now())
	if err != nil {
		return err
	}
	for i, f := range folders {
		err := x.eachMessage(f.Name, func(v *folder.View) error {
			var failed error
			err := to.BeginFolder(list[i].Name, f.UIDValidity, v.Keywords(), func(yield func(mailfile.MessageKeywords) bool) { failed = eachKeywords(x.ctx, v, yield) })
			return cmp.Or(err, failed)
		}, to.Write)
		if err != nil {
			return err
		}
	}
	return to.Close()
}

// eachKeywords tells of all messages that have keywords.
func eachKeywords(ctx context.Context, v *folder.View, yield func(mailfile.MessageKeywords) bool) error {
	more := true
	return v.Fetch(ctx, v.Resolve(allUIDs(), false), 0, func(r *folder.MessageRow) error {
		if more && len(r.Keywords) > 0 {
			more = yield(mailfile.MessageKeywords{UID: r.UID, Keywords: r.Keywords})
		}
		return nil
	})
}

func allUIDs() []folder.Range { return []folder.Range{{Lo: 1, Hi: folder.Star}} }

// eachMessage writes the messages of a folder. One that was deleted meanwhile has
// none; what can't be read is missed.
func (x *exporter) eachMessage(name string, begin func(v *folder.View) error, write func(m *mailfile.Message, uid uint32, text mailfile.SizedReaderAt) error) error {
	v, err := x.Folders.Open(x.ctx, x.Mailbox, name, true)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close()
	if err := begin(v); err != nil {
		return err
	}
	return v.Fetch(x.ctx, v.Resolve(allUIDs(), false), folder.FetchDates|folder.FetchContent, func(r *folder.MessageRow) error {
		if r.Private {
			return nil
		}
		if r.Content == nil {
			return x.checkAbsent(name, r)
		}
		text, err := x.openBlob(r.Content)
		if x.ctx.Err() != nil {
			return err
		}
		if err != nil {
			return x.addMissing(name, r, err)
		}
		defer text.Close() //nolint:errcheck // only read
		m := &mailfile.Message{Date: r.Date, Keywords: r.Keywords}
		for _, f := range flagPairs() {
			if r.Flags&f.folder != 0 {
				m.Flags |= f.file
			}
		}
		err = write(m, r.UID, text)
		if unread := new(mailfile.ReadError); errors.As(err, &unread) {
			return x.addMissing(name, r, err)
		}
		return err
	})
}

// checkAbsent finds out whether a message without bytes was expunged meanwhile.
func (x *exporter) checkAbsent(name string, r *folder.MessageRow) error {
	there, err := x.Folders.ExistingMessages(x.ctx, []db.ID{r.Message})
	if err != nil || !there[r.Message] {
		return err
	}
	return x.addMissing(name, r, blob.ErrNotExist)
}

// addMissing notes that a message can't be exported.
func (x *exporter) addMissing(name string, r *folder.MessageRow, why error) error {
	x.Log.Error("exporting a message", "mailbox", x.Mailbox, "folder", name, "uid", r.UID, "message", r.Message, "error", why)
	if x.missing.Count++; x.missing.Count <= maxMissingIDs {
		x.missing.IDs = append(x.missing.IDs, r.Message.String())
	}
	return nil
}

// openBlob opens a message. The context is looked at here, since an export whose
// client reads fast waits for nothing.
func (x *exporter) openBlob(b *blob.Blob) (*blob.Reader, error) {
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	return b.Open(x.ctx)
}
