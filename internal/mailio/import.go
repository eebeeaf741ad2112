// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
	"github.com/mailstead/mailstead/internal/message"
)

// MaxMessageSize is the largest message that is imported, in bytes: as much as
// IMAP's APPEND takes here.
const MaxMessageSize = 50 << 20

// MaxFailures is how many failures of an import are told; all are counted.
const MaxFailures = 100

const (
	// What is filed at once is so many messages, or so many bytes of small
	// ones.
	batchMessages, batchBytes = 200, 4 << 20
	// maxBatchDelay is how long a message waits for others at most, however slowly
	// they come: a file that no row names is swept after a while.
	maxBatchDelay = time.Hour
)

// ImportOptions is an import.
type ImportOptions struct {
	Account, Mailbox db.ID
	// Folder takes what the archive has in its inbox, or in no folder, and the
	// archive's folders become folders below it; "" puts everything where it
	// belongs, special uses where they are here.
	Folder string
	// KeepDuplicates files also what is there already.
	KeepDuplicates bool
	Kind           mailfile.Kind
	Quoting        mailfile.Quoting
}

// Result is how far an import came.
type Result struct {
	Imported int64
	Skipped  int64 // there already, or marked as deleted
	Failed   int64
	Bytes    int64 // of the imported ones
	Failures []Failure
}

// Failure is something that could not be imported.
type Failure struct {
	Location string // in the archive
	Reason   string
}

// Import files what a stream holds, in the archive's order. The Result counts
// also if there is an error: what was filed stays. Messages for a folder that holds as
// many as it may have failed. A mailbox without room is a
// fault.OverQuota, one whose domain is suspended, before or meanwhile, a fault.Denied,
// a folder name that can't be or an archive that can't be read
// (any further) a fault.Invalid, too many transfers a fault.RateLimited; errors of
// r are returned as they are.
func (t *Service) Import(ctx context.Context, in ImportOptions, r io.Reader) (Result, error) {
	end, err := t.acquire(in.Account)
	if err != nil {
		return Result{}, err
	}
	defer end()
	if err := t.checkDomain(ctx, in.Mailbox); err != nil {
		return Result{}, err
	}
	x := &importer{Service: t, ImportOptions: in, ctx: ctx, pending: map[*target]*batch{}, buf: make([]byte, 32<<10)}
	if err := x.loadFolders(); err != nil {
		return Result{}, err
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
	return x.Result, err
}

// contextReader ends a stream with its import's context, also while it goes on.
type contextReader struct {
	importer *importer
	r        io.Reader
}

// Read is that of io.Reader.
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

// importer is an import under way. Reading the archive and filing what was
// read go side by side.
type importer struct {
	*Service
	ImportOptions
	Result
	ctx          context.Context
	folders      *folderMap
	pending      map[*target]*batch
	pendingOrder []*batch  // of pending, in order
	pendingCount int       // messages in pending
	pendingSince time.Time // when the first of them came
	pendingBytes int64     // and how much of them is in memory

	keywordNames map[string][]func(u *mailfile.PendingKeywords) []string // what named keywords late, by Maildir

	buf      []byte // for a message on its way
	appender *appender
}

// target is a folder here.
type target struct {
	name     string
	contents *folder.DuplicateFinder // what it held when the import began; nil if that does not matter
	failure  string                  // why nothing can be filed there
}

func (x *importer) addFailure(place, why string) error {
	x.Failed++
	if len(x.Failures) < MaxFailures {
		x.Failures = append(x.Failures, Failure{place, why})
	}
	return nil
}

// addFolder makes a folder that the archive tells of.
func (x *importer) addFolder(f mailfile.Folder) error {
	_, err := x.targetFor(f)
	return err
}

// addMessage takes a message of the archive.
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
	return x.enqueue(to, item{m.Location, m.PendingKeywords, folder.Upload{
		Blob: b, Metadata: described, Flags: folderFlags(m.Flags), Keywords: folder.SanitizeKeywords(m.Keywords), Date: receivedDate(m, scan.Header()),
	}})
}

var errTooLarge = errors.New("a message is too large")

// sizeLimitWriter bounds a message.
type sizeLimitWriter struct {
	w    io.Writer
	size int64
}

// Write writes a piece.
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

// receivedDate is when a message was received: as the archive says, else as the host
// says that received it, else when it was written.
func receivedDate(m *mailfile.Message, h message.Header) time.Time {
	if !m.Date.IsZero() {
		return m.Date
	}
	if f, ok := h.First("Received"); ok {
		text := f.Text()
		for at := len(text) - 1; at >= 0; at-- {
			if text[at] != ';' {
				continue
			}
			if date, ok := message.ParseDate(text[at+1:]); ok {
				return date
			}
			break
		}
	}
	if date, ok := message.ParseDate(h.Text("Date")); ok {
		return date
	}
	return m.FileDate
}

// item is a message that is not filed yet.
type item struct {
	location        string
	pendingKeywords *mailfile.PendingKeywords
	folder.Upload
}

// batch are messages for one folder.
type batch struct {
	target *target
	items  []item
}

// enqueue has a message filed with others.
func (x *importer) enqueue(to *target, it item) error {
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

// flush hands over what waits.
func (x *importer) flush() error {
	if x.pendingCount == 0 {
		return nil
	}
	work := x.pendingOrder
	x.pending, x.pendingOrder, x.pendingCount, x.pendingBytes = map[*target]*batch{}, nil, 0, 0
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

// errStopped says that the filer has ended with an error of its own.
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

// finish waits until all is filed that was handed over, and adds what that
// came to.
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

// isInvalid reports whether a message itself is to blame that it was not filed.
func isInvalid(err error) bool { return fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) }
