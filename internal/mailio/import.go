// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
	"github.com/mailstead/mailstead/internal/message"
)

// MaxMessageSize is the size limit for imported messages, in bytes. IMAP APPEND has the same limit.
const MaxMessageSize = 50 << 20

// MaxFailures is the maximum number of failures in a Result; all are counted.
const MaxFailures = 100

const (
	// Limits of a batch, in messages and in bytes of small messages.
	batchMessages, batchBytes = 200, 4 << 20
	// maxBatchDelay is the maximum time that a message waits for a batch, however slowly messages
	// come: a file without a row is swept after a while.
	maxBatchDelay = time.Hour
)

// ImportOptions are the options of an import.
type ImportOptions struct {
	Account, Mailbox db.ID
	// Folder receives the messages of the archive's inbox, and those without a folder; the
	// archive's folders become its subfolders. "" uses the archive's own folders; those with a
	// special use go to the local folder with that use.
	Folder string
	// KeepDuplicates reports whether messages that already exist are imported again.
	KeepDuplicates bool
	Kind           mailfile.Kind
	Quoting        mailfile.Quoting
}

// ImportResult is the result of an import.
type ImportResult struct {
	Imported int64
	Skipped  int64 // already there, or marked as deleted
	Failed   int64
	Bytes    int64 // bytes of imported messages
	Failures []ImportFailure
}

// ImportFailure is a message or folder that could not be imported.
type ImportFailure struct {
	Location string // in the archive
	Reason   string
}

// Import files the messages of a stream, in the archive's order. The Result is valid even after an
// error: filed messages stay. Messages for a full folder fail. A full mailbox is a fault.OverQuota;
// a domain suspended before or during the import is a fault.Denied; an invalid folder name or an
// unreadable archive is a fault.Invalid; too many transfers are a fault.RateLimited. Errors of r
// are returned unchanged.
func (t *Service) Import(ctx context.Context, in ImportOptions, r io.Reader) (ImportResult, error) {
	end, err := t.acquireSlot(in.Account)
	if err != nil {
		return ImportResult{}, err
	}
	defer end()
	if err := t.checkDomain(ctx, in.Mailbox); err != nil {
		return ImportResult{}, err
	}
	x := &importer{Service: t, ImportOptions: in, ctx: ctx, pending: map[*targetFolder]*batch{}, buf: make([]byte, 32<<10)}
	if err := x.loadFolders(); err != nil {
		return ImportResult{}, err
	}
	x.startAppender()
	err = mailfile.Read(&contextReader{x, r}, mailfile.Options{Kind: in.Kind, Quoting: in.Quoting}, mailfile.Sink{
		Message:      x.addMessage,
		Folder:       x.addFolder,
		KeywordNames: x.addKeywordNames,
		Failed:       x.addFailure,
	})
	if flushed := x.flush(); err == nil {
		err = flushed
	}
	if filed := x.finish(); filed != nil && (err == nil || errors.Is(err, errStopped)) {
		err = filed
	}
	if named := x.storeKeywords(); err == nil {
		err = named
	}
	return x.ImportResult, err
}

// contextReader ends a stream when the import's context ends, also between chunks.
type contextReader struct {
	importer *importer
	r        io.Reader
}

// Read implements io.Reader.
func (i *contextReader) Read(p []byte) (int, error) {
	x := i.importer
	if x.ctx.Err() != nil {
		return 0, context.Cause(x.ctx)
	}
	if x.pendingCount > 0 && x.Now().Sub(x.pendingSince) > maxBatchDelay {
		if err := x.flush(); err != nil {
			return 0, err
		}
	}
	return i.r.Read(p)
}

// importer runs an import. It reads the archive while an appender files the messages read.
type importer struct {
	*Service
	ImportOptions
	ImportResult
	ctx          context.Context
	folders      *folderMap
	pending      map[*targetFolder]*batch
	pendingOrder []*batch  // batches of pending, in order
	pendingCount int       // messages in pending
	pendingSince time.Time // when the first of them arrived
	pendingBytes int64     // bytes of them in memory

	keywordNames map[string][]func(u *mailfile.PendingKeywords) []string // late keyword names, by Maildir

	buf      []byte // for copying messages
	appender *appender
}

// targetFolder is a local folder.
type targetFolder struct {
	name     string
	contents *folder.DuplicateFinder // contents when the import began; nil if not needed
	failure  string                  // why nothing can be filed there
}

func (x *importer) addFailure(place, why string) error {
	x.Failed++
	if len(x.Failures) < MaxFailures {
		x.Failures = append(x.Failures, ImportFailure{place, why})
	}
	return nil
}

// addFolder creates a folder that the archive lists.
func (x *importer) addFolder(f mailfile.Folder) error {
	_, err := x.targetFor(f)
	return err
}

// addMessage adds a message from the archive.
func (x *importer) addMessage(m *mailfile.Message) error {
	if m.Expunged {
		x.Skipped++
		return nil
	}
	to, err := x.targetFor(mailfile.Folder{Name: m.Folder, SpecialUse: m.SpecialUse, Subscribed: true})
	if err != nil {
		return err
	}
	if to.failure != "" {
		return x.addFailure(m.Location, to.failure)
	}
	blob := x.Blobs.Create(x.ctx)
	defer blob.Abort()
	scan, sum := &message.Scanner{}, sha256.New()
	w := &sizeLimitWriter{w: io.MultiWriter(blob, scan)}
	if to.contents != nil {
		w.w = io.MultiWriter(blob, scan, sum)
	}
	_, err = io.CopyBuffer(w, message.MaskNUL(m.Body), x.buf)
	switch {
	case errors.Is(err, errTooLarge):
		return x.addFailure(m.Location, "It is larger than the 50 MB that a message may have.")
	case err != nil:
		return err
	case w.size == 0:
		return x.addFailure(m.Location, "It is empty.")
	}
	described, err := folder.NewMetadata(scan.Header(), scan.Finish())
	if err != nil {
		return err
	}
	if to.contents != nil {
		had, err := to.contents.TakeDuplicate(x.ctx, described, w.size, folder.ContentHash(sum.Sum(nil)))
		if err != nil {
			return err
		}
		if had {
			x.Skipped++
			return nil
		}
	}
	b, err := blob.Finish()
	if err != nil {
		return err
	}
	return x.enqueue(to, unfiledMessage{m.Location, m.PendingKeywords, folder.Upload{
		Blob: b, Metadata: described, Flags: folderFlags(m.Flags), Keywords: folder.SanitizeKeywords(m.Keywords), Date: receivedDate(m, scan.Header()),
	}})
}

var errTooLarge = errors.New("a message is too large")

// sizeLimitWriter limits the size of a message.
type sizeLimitWriter struct {
	w    io.Writer
	size int64
}

// Write writes a chunk.
func (w *sizeLimitWriter) Write(p []byte) (int, error) {
	if w.size += int64(len(p)); w.size > MaxMessageSize {
		return 0, errTooLarge
	}
	return w.w.Write(p)
}

func folderFlags(from mailfile.Flags) (to folder.Flags) {
	for _, f := range flagPairs() {
		if from&f.file != 0 {
			to |= f.folder
		}
	}
	return to
}

type flagPair struct {
	file   mailfile.Flags
	folder folder.Flags
}

func flagPairs() []flagPair {
	return []flagPair{
		{mailfile.Seen, folder.Seen}, {mailfile.Answered, folder.Answered}, {mailfile.Flagged, folder.Flagged},
		{mailfile.Deleted, folder.Deleted}, {mailfile.Draft, folder.Draft},
	}
}

// receivedDate returns when a message was received: the archive's date, else that of the receiving
// host, else the message's own.
func receivedDate(m *mailfile.Message, h message.Header) time.Time {
	if !m.Date.IsZero() {
		return m.Date
	}
	if f, ok := h.First("Received"); ok {
		text := f.Unfolded()
		if at := strings.LastIndexByte(text, ';'); at >= 0 {
			if date, ok := message.ParseDate(text[at+1:]); ok {
				return date
			}
		}
	}
	if date, ok := message.ParseDate(h.Unfolded("Date")); ok {
		return date
	}
	return m.FileDate
}

// unfiledMessage is a message that has not been filed yet.
type unfiledMessage struct {
	location        string
	pendingKeywords *mailfile.PendingKeywords
	folder.Upload
}

// batch is a group of messages for one folder.
type batch struct {
	target *targetFolder
	items  []unfiledMessage
}

// enqueue adds a message to a batch.
func (x *importer) enqueue(to *targetFolder, it unfiledMessage) error {
	b := x.pending[to]
	if b == nil {
		b = &batch{target: to}
		x.pending[to], x.pendingOrder = b, append(x.pendingOrder, b)
	}
	b.items = append(b.items, it)
	if x.pendingCount == 0 {
		x.pendingSince = x.Now()
	}
	x.pendingCount++
	if bytes, inRow := it.Blob.Bytes(); inRow {
		x.pendingBytes += int64(len(bytes))
	}
	if x.pendingCount < batchMessages && x.pendingBytes < batchBytes {
		return nil
	}
	return x.flush()
}

// flush passes pending messages to the appender.
func (x *importer) flush() error {
	if x.pendingCount == 0 {
		return nil
	}
	work := x.pendingOrder
	x.pending, x.pendingOrder, x.pendingCount, x.pendingBytes = map[*targetFolder]*batch{}, nil, 0, 0
	select {
	case x.appender.work <- work:
		return nil
	case <-x.appender.stopped:
		for _, b := range work {
			b.discard(x.ctx)
		}
		return errStopped
	}
}

// errStopped reports that the appender ended with an error of its own.
var errStopped = errors.New("filing has stopped")

func (b *batch) discard(ctx context.Context) {
	for _, it := range b.items {
		it.Blob.Discard(ctx)
	}
	b.items = nil
}

func (x *importer) startAppender() {
	x.appender = &appender{importer: x, work: make(chan []*batch), stopped: make(chan struct{}), done: make(chan struct{})}
	go x.appender.run()
}

// finish waits until all messages are filed, and adds the appender's counts.
func (x *importer) finish() error {
	close(x.appender.work)
	<-x.appender.done
	x.Imported, x.Bytes = x.appender.imported, x.appender.bytes
	for _, f := range x.appender.failures {
		_ = x.addFailure(f.Location, f.Reason) // never fails
	}
	x.Failed += x.appender.failed - int64(len(x.appender.failures))
	return x.appender.err
}

// isInvalid reports whether a message was not filed because of its own contents.
func isInvalid(err error) bool { return fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) }
