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

// Export formats.
const (
	Mbox    = "mbox"    // one file
	Maildir = "maildir" // a tar of Maildirs
)

// ExportOptions are the options of an export.
type ExportOptions struct {
	Account, Mailbox db.ID
	Format           string
	Folder           string // only this folder; "" for all
}

// ContentType returns the media type of an export.
func (o ExportOptions) ContentType() string {
	if o.Format == Maildir {
		return "application/x-tar"
	}
	return "application/mbox"
}

// Extension returns the file name extension of an export.
func (o ExportOptions) Extension() string {
	if o.Format == Maildir {
		return ".tar"
	}
	return ".mbox"
}

// Export writes a mailbox's messages, each folder as it is when its turn comes. It omits messages
// expunged before they are written, and private messages (folder.Delivery.Private). It holds no
// lock while w blocks. A missing folder is a fault.NotFound, an unknown format a fault.Invalid, too
// many transfers a fault.RateLimited; in these cases nothing is written. After a MissingError the
// output is complete except for some messages; after any other error it is truncated.
func (t *Service) Export(ctx context.Context, o ExportOptions, w io.Writer) error {
	if err := o.Check(ctx, t); err != nil {
		return err
	}
	end, err := t.acquireSlot(o.Account)
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

// MissingError reports messages missing from an export because their bytes are lost or unreadable.
type MissingError struct {
	Count int
	IDs   []string // ids of the first; the log has all
}

// maxMissingIDs is the maximum number of ids in a response's trailer.
const maxMissingIDs = 20

// Error lists the ids.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("messages that could not be read and are missing: %d (%s", e.Count, strings.Join(e.IDs, ", "))
	if e.Count > len(e.IDs) {
		text += ", and others"
	}
	return text + ")"
}

// Check checks whether an export is possible: a missing folder is a fault.NotFound, an unknown
// format a fault.Invalid.
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
	all, err := t.Folders.List(ctx, o.Mailbox)
	if at := slices.IndexFunc(all, func(f folder.Folder) bool { return f.Name == folder.Inbox }); at > 0 {
		inbox := all[at]
		all = slices.Insert(slices.Delete(all, at, at+1), 0, inbox)
	}
	return all, err
}

// exporter runs an export.
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
		if x.ExportOptions.Folder != "" { // a single folder becomes the export's inbox
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

// eachKeywords yields all messages with keywords.
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

// eachMessage writes the messages of a folder. It skips messages deleted meanwhile, and records
// unreadable ones as missing.
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

// checkAbsent checks whether a message without bytes was expunged meanwhile.
func (x *exporter) checkAbsent(name string, r *folder.MessageRow) error {
	there, err := x.Folders.ExistingMessages(x.ctx, []db.ID{r.Message})
	if err != nil || !there[r.Message] {
		return err
	}
	return x.addMissing(name, r, blob.ErrNotExist)
}

// addMissing records that a message can't be exported.
func (x *exporter) addMissing(name string, r *folder.MessageRow, why error) error {
	x.Log.Error("exporting a message", "mailbox", x.Mailbox, "folder", name, "uid", r.UID, "message", r.Message, "error", why)
	if x.missing.Count++; x.missing.Count <= maxMissingIDs {
		x.missing.IDs = append(x.missing.IDs, r.Message.String())
	}
	return nil
}

// openBlob opens a message. It checks the context because an export with a fast client never
// blocks.
func (x *exporter) openBlob(b *blob.Blob) (*blob.Reader, error) {
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	return b.Open(x.ctx)
}
