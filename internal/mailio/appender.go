// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"context"
	"errors"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

// appender files messages while the importer reads more.
type appender struct {
	*importer
	work    chan []*batch
	stopped chan struct{} // closed after an error
	done    chan struct{}

	imported, bytes, failed int64
	failures                []ImportFailure
	err                     error
	pendingMessages         []messageAwaitingKeywords
	droppedPending          int // number of pending messages dropped
}

func (f *appender) run() {
	defer close(f.done)
	for work := range f.work {
		for _, b := range work {
			if f.err == nil {
				if f.err = f.appendBatch(b); f.err != nil {
					close(f.stopped)
				}
			}
			b.discard(f.ctx) // it no longer has the filed messages
		}
	}
}

// appendBatch files messages: all at once, or one by one if that is not possible, up to the first
// that does not fit.
func (f *appender) appendBatch(b *batch) error {
	err := f.appendFirst(b, len(b.items))
	if fault.Is(err, fault.NotFound) { // the folder was deleted or renamed meanwhile
		if _, err := f.Folders.Create(f.ctx, f.Mailbox, b.target.name); err != nil && !fault.Is(err, fault.Conflict) {
			return err
		}
		err = f.appendFirst(b, len(b.items))
	}
	if err == nil || !isInvalid(err) && !isFolderFull(err) && !fault.Is(err, fault.OverQuota) {
		return err
	}
	for len(b.items) > 0 {
		switch err := f.appendFirst(b, 1); {
		case err == nil:
		case isFolderFull(err):
			f.reject(b, len(b.items), "The folder holds as many messages as it may.")
		case isInvalid(err):
			f.reject(b, 1, "It can't be filed here.")
		default:
			return err
		}
	}
	return nil
}

// reject counts the first n messages as failed, and discards them.
func (f *appender) reject(b *batch, n int, why string) {
	for _, it := range b.items[:n] {
		f.failed++
		if len(f.failures) < MaxFailures {
			f.failures = append(f.failures, ImportFailure{it.location, why})
		}
		it.Blob.Discard(f.ctx)
	}
	b.items = b.items[n:]
}

// isFolderFull reports whether a folder can take no more messages.
func isFolderFull(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == folder.CodeFolderFull
}

// appendFirst files the first n messages, and removes them from the batch.
func (f *appender) appendFirst(b *batch, n int) error {
	if err := f.checkDomain(context.WithoutCancel(f.ctx), f.Mailbox); err != nil {
		return err
	}
	uploads, bytes := make([]folder.Upload, n), int64(0)
	for i, it := range b.items[:n] {
		uploads[i] = it.Upload
		bytes += it.Blob.Size
	}
	// A client that cancels still needs to know how many were filed.
	validity, uids, err := f.Folders.Import(context.WithoutCancel(f.ctx), f.Mailbox, b.target.name, nil, uploads...)
	switch {
	case err == nil:
		f.imported += int64(n)
		f.bytes += bytes
		f.addAwaitingKeywords(b, validity, uids)
		b.items = b.items[n:]
	case fault.KindOf(err) == fault.Internal: // they may have been filed; the sweep finds out
		b.items = nil
	}
	return err
}
