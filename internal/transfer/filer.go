// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

// filer files what was read while more is read.
type filer struct {
	*importing
	work    chan []*batch
	stopped chan struct{} // closed after an error
	done    chan struct{}

	imported, bytes, failed int64
	failures                []Failure
	err                     error
	early                   []early
	forgotten               int // more of them
}

func (f *filer) run() {
	defer close(f.done)
	for work := range f.work {
		for _, b := range work {
			if f.err == nil {
				if f.err = f.file(b); f.err != nil {
					close(f.stopped)
				}
			}
			b.discard(f.ctx) // what was filed is no longer in it
		}
	}
}

// file files messages: all at once, or one after the other if that is not
// possible, up to the one that does not fit.
func (f *filer) file(b *batch) error {
	err := f.commit(b, len(b.items))
	if fault.Is(err, fault.NotFound) { // the folder was deleted or renamed meanwhile
		if _, err := f.Folders.Create(f.ctx, f.Mailbox, b.to.name); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
		err = f.commit(b, len(b.items))
	}
	if err == nil || !invalid(err) && !folderFull(err) && !fault.Is(err, fault.OverQuota) {
		return err
	}
	for len(b.items) > 0 {
		switch err := f.commit(b, 1); {
		case err == nil:
		case folderFull(err):
			f.lose(b, len(b.items), "The folder holds as many messages as it may.")
		case invalid(err):
			f.lose(b, 1, "It can't be filed here.")
		default:
			return err
		}
	}
	return nil
}

// lose counts the first of the messages as failed, and throws them away.
func (f *filer) lose(b *batch, n int, why string) {
	for _, it := range b.items[:n] {
		f.failed++
		if len(f.failures) < MaxFailures {
			f.failures = append(f.failures, Failure{it.place, why})
		}
		it.Blob.Discard(f.ctx)
	}
	b.items = b.items[n:]
}

// folderFull reports whether a folder can take no more messages.
func folderFull(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == folder.CodeFolderFull
}

// commit files the first of the messages, and takes them away.
func (f *filer) commit(b *batch, n int) error {
	if err := f.open(context.WithoutCancel(f.ctx), f.Mailbox); err != nil {
		return err
	}
	uploads, bytes := make([]folder.Upload, n), int64(0)
	for i, it := range b.items[:n] {
		uploads[i] = it.Upload
		bytes += it.Blob.Size
	}
	// Whoever gives up wants to know how far it came.
	validity, uids, err := f.Folders.Import(context.WithoutCancel(f.ctx), f.Mailbox, b.to.name, nil, uploads...)
	switch {
	case err == nil:
		f.imported += int64(n)
		f.bytes += bytes
		f.note(b, validity, uids)
		b.items = b.items[n:]
	case fault.KindOf(err) == fault.Internal: // they may have been filed all the same; the sweep finds out
		b.items = nil
	}
	return err
}
