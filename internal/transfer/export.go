// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

// Formats of an export.
const (
	Mbox    = "mbox"    // one file
	Maildir = "maildir" // a tar of Maildirs
)

// Out is an export.
type Out struct {
	Account, Mailbox db.ID
	Format           string
	Folder           string // the only one; "" for all
}

// Media is the type of an export's stream.
func (o Out) Media() string {
	if o.Format == Maildir {
		return "application/x-tar"
	}
	return "application/mbox"
}

// Ending is how the name of a file with the export ends.
func (o Out) Ending() string {
	if o.Format == Maildir {
		return ".tar"
	}
	return ".mbox"
}

// Export writes what a mailbox holds: each folder as it was when its turn came.
// What is expunged before it was written is left out, and so is what only the
// mailbox's own protocols give. Nothing is held while w
// waits. A folder that is not there is a fault.NotFound, a format that is none
// a fault.Invalid, too many transfers a fault.Limited; then nothing was written.
// After a MissingError what was written is complete but for some messages; after
// another error it breaks off.
func (t *Transfers) Export(ctx context.Context, o Out, w io.Writer) error {
	if err := o.Check(ctx, t); err != nil {
		return err
	}
	end, err := t.begin(o.Account)
	if err != nil {
		return err
	}
	defer end()
	folders, err := t.chosen(ctx, o)
	if err != nil {
		return err
	}
	x := &exporting{Transfers: t, Out: o, ctx: ctx}
	if o.Format == Mbox {
		err = x.mbox(folders, w)
	} else {
		err = x.maildir(folders, w)
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
	Named []string // the ids of the first; the log has all
}

// maxNamed bounds what an answer's trailer holds.
const maxNamed = 20

// Error names them.
func (e *MissingError) Error() string {
	text := fmt.Sprintf("messages that could not be read and are missing: %d (%s", e.Count, strings.Join(e.Named, ", "))
	if e.Count > len(e.Named) {
		text += ", and others"
	}
	return text + ")"
}

// Check finds out whether an export is possible: a folder that is not there is
// a fault.NotFound, a format that is none a fault.Invalid.
func (o Out) Check(ctx context.Context, t *Transfers) error {
	if o.Format != Mbox && o.Format != Maildir {
		return fault.New(fault.Invalid, "unknown_format", "The format is mbox or maildir.")
	}
	_, err := t.chosen(ctx, o)
	return err
}

// chosen returns the folders of an export, INBOX first.
func (t *Transfers) chosen(ctx context.Context, o Out) ([]folder.Folder, error) {
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

// exporting is an export under way.
type exporting struct {
	*Transfers
	Out
	ctx     context.Context
	missing MissingError
}

func (x *exporting) mbox(folders []folder.Folder, w io.Writer) error {
	to := archive.NewMboxWriter(w)
	to.All = x.Out.Folder == ""
	for _, f := range folders {
		err := x.each(f.Name, func(*folder.View) error { return nil }, func(m *archive.Message, _ uint32, text archive.Text) error {
			m.Folder, m.Special = f.Name, f.Special
			return to.Write(m, text)
		})
		if err != nil {
			return err
		}
	}
	return to.Flush()
}

func (x *exporting) maildir(folders []folder.Folder, w io.Writer) error {
	names, err := x.Folders.Subscriptions(x.ctx, x.Mailbox)
	if err != nil {
		return err
	}
	var list []archive.Folder
	for _, f := range folders {
		name := f.Name
		if x.Out.Folder != "" { // it alone is the inbox of what is written
			name, f.Special = folder.Inbox, ""
		}
		list = append(list, archive.Folder{Name: name, Special: f.Special, Subscribed: slices.Contains(names, f.Name)})
	}
	to, err := archive.NewMaildirWriter(w, list, x.Now())
	if err != nil {
		return err
	}
	for i, f := range folders {
		err := x.each(f.Name, func(v *folder.View) error {
			var failed error
			err := to.Folder(list[i].Name, f.UIDValidity, v.Keywords(), func(yield func(archive.Tagged) bool) { failed = tagged(x.ctx, v, yield) })
			return cmp.Or(err, failed)
		}, to.Write)
		if err != nil {
			return err
		}
	}
	return to.Close()
}

// tagged tells of all messages that have keywords.
func tagged(ctx context.Context, v *folder.View, yield func(archive.Tagged) bool) error {
	more := true
	return v.Fetch(ctx, v.Resolve(everything(), false), 0, func(r *folder.Row) error {
		if more && len(r.Keywords) > 0 {
			more = yield(archive.Tagged{UID: r.UID, Keywords: r.Keywords})
		}
		return nil
	})
}

func everything() []folder.Range { return []folder.Range{{Lo: 1, Hi: folder.Star}} }

// each writes the messages of a folder. One that was deleted meanwhile has
// none; what can't be read is missed.
func (x *exporting) each(name string, begin func(v *folder.View) error, write func(m *archive.Message, uid uint32, text archive.Text) error) error {
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
	return v.Fetch(x.ctx, v.Resolve(everything(), false), folder.WantDates|folder.WantBytes, func(r *folder.Row) error {
		if r.Private {
			return nil
		}
		if r.Bytes == nil {
			return x.absent(name, r)
		}
		text, err := x.open(r.Bytes)
		if x.ctx.Err() != nil {
			return err
		}
		if err != nil {
			return x.miss(name, r, err)
		}
		defer text.Close() //nolint:errcheck // only read
		m := &archive.Message{Date: r.Date, Keywords: r.Keywords}
		for _, f := range pairs() {
			if r.Flags&f.here != 0 {
				m.Flags |= f.outside
			}
		}
		err = write(m, r.UID, text)
		if unread := new(archive.UnreadError); errors.As(err, &unread) {
			return x.miss(name, r, err)
		}
		return err
	})
}

// absent finds out whether a message without bytes was expunged meanwhile.
func (x *exporting) absent(name string, r *folder.Row) error {
	there, err := x.Folders.There(x.ctx, []db.ID{r.Message})
	if err != nil || !there[r.Message] {
		return err
	}
	return x.miss(name, r, blob.ErrNotExist)
}

// miss notes that a message can't be exported.
func (x *exporting) miss(name string, r *folder.Row, why error) error {
	x.Log.Error("exporting a message", "mailbox", x.Mailbox, "folder", name, "uid", r.UID, "message", r.Message, "error", why)
	if x.missing.Count++; x.missing.Count <= maxNamed {
		x.missing.Named = append(x.missing.Named, r.Message.String())
	}
	return nil
}

// open opens a message. The context is looked at here, since an export whose
// client reads fast waits for nothing.
func (x *exporting) open(b *blob.Blob) (*blob.Reader, error) {
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	return b.Open(x.ctx)
}
