// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"time"

	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

// MaxMessage is the largest message that is imported, in bytes: as much as
// IMAP's APPEND takes here.
const MaxMessage = 50 << 20

// MaxFailures is how many failures of an import are told; all are counted.
const MaxFailures = 100

const (
	// What is filed at once is so many messages, or so many bytes of small
	// ones.
	batchMessages, batchBytes = 200, 4 << 20
	// longestWait is how long a message waits for others at most, however slowly
	// they come: a file that no row names is swept after a while.
	longestWait = time.Hour
)

// In is an import.
type In struct {
	Account, Mailbox db.ID
	// Folder takes what the archive has in its inbox, or in no folder, and the
	// archive's folders become folders below it; "" puts everything where it
	// belongs, special uses where they are here.
	Folder string
	// All files also what is there already.
	All     bool
	Kind    archive.Kind
	Quoting archive.Quoting
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
	Place string // in the archive
	Why   string
}

// Import files what a stream holds, in the archive's order. The Result counts
// also if there is an error: what was filed stays. Messages for a folder that holds as
// many as it may have failed. A mailbox without room is a
// fault.OverQuota, one whose domain is suspended, before or meanwhile, a fault.Denied,
// a folder name that can't be or an archive that can't be read
// (any further) a fault.Invalid, too many transfers a fault.Limited; errors of
// r are returned as they are.
func (t *Transfers) Import(ctx context.Context, in In, r io.Reader) (Result, error) {
	end, err := t.begin(in.Account)
	if err != nil {
		return Result{}, err
	}
	defer end()
	if err := t.open(ctx, in.Mailbox); err != nil {
		return Result{}, err
	}
	x := &importing{Transfers: t, In: in, ctx: ctx, pending: map[*target]*batch{}, buf: make([]byte, 32<<10)}
	if err := x.plan(); err != nil {
		return Result{}, err
	}
	x.start()
	err = archive.Read(&interruptible{x, r}, archive.Options{Kind: in.Kind, Quoting: in.Quoting}, archive.Sink{
		Message: x.message,
		Folder:  x.folder,
		Named:   x.nameKeywords,
		Failed:  x.fail,
	})
	if flushed := x.flush(); err == nil {
		err = flushed
	}
	if filed := x.finish(); filed != nil && (err == nil || errors.Is(err, errStopped)) {
		err = filed
	}
	if named := x.addKeywords(); err == nil {
		err = named
	}
	return x.Result, err
}

// interruptible ends a stream with its import's context, also while it goes on.
type interruptible struct {
	x *importing
	r io.Reader
}

// Read is that of io.Reader.
func (i *interruptible) Read(p []byte) (int, error) {
	x := i.x
	if x.ctx.Err() != nil {
		return 0, context.Cause(x.ctx)
	}
	if x.waiting > 0 && x.Now().Sub(x.since) > longestWait {
		if err := x.flush(); err != nil {
			return 0, err
		}
	}
	return i.r.Read(p)
}

// importing is an import under way. Reading the archive and filing what was
// read go side by side.
type importing struct {
	*Transfers
	In
	Result
	ctx     context.Context
	names   *names
	pending map[*target]*batch
	order   []*batch  // of pending, in order
	waiting int       // messages in pending
	since   time.Time // when the first of them came
	bytes   int64     // and how much of them is in memory

	named map[string][]func(u *archive.Unnamed) []string // what named keywords late, by Maildir

	buf   []byte // for a message on its way
	filer *filer
}

// target is a folder here.
type target struct {
	name     string
	contents *folder.Contents // what it held when the import began; nil if that does not matter
	closed   string           // why nothing can be filed there
}

func (x *importing) fail(place, why string) error {
	x.Failed++
	if len(x.Failures) < MaxFailures {
		x.Failures = append(x.Failures, Failure{place, why})
	}
	return nil
}

// folder makes a folder that the archive tells of.
func (x *importing) folder(f archive.Folder) error {
	_, err := x.target(f)
	return err
}

// message takes a message of the archive.
func (x *importing) message(m *archive.Message) error {
	if m.Gone {
		x.Skipped++
		return nil
	}
	to, err := x.target(archive.Folder{Name: m.Folder, Special: m.Special, Subscribed: true})
	if err != nil {
		return err
	}
	if to.closed != "" {
		return x.fail(m.Place, to.closed)
	}
	blob := x.Blobs.Create(x.ctx)
	defer blob.Abort()
	scan, sum := &message.Scanner{}, sha256.New()
	w := &writing{to: io.MultiWriter(blob, scan)}
	if to.contents != nil {
		w.to = io.MultiWriter(blob, scan, sum)
	}
	_, err = io.CopyBuffer(w, message.MaskNUL(m.Body), x.buf)
	switch {
	case errors.Is(err, errTooLarge):
		return x.fail(m.Place, "It is larger than the 50 MB that a message may have.")
	case err != nil:
		return err
	case w.size == 0:
		return x.fail(m.Place, "It is empty.")
	}
	described, err := folder.Describe(scan.Header(), scan.Finish())
	if err != nil {
		return err
	}
	if to.contents != nil {
		had, err := to.contents.Take(x.ctx, described, w.size, folder.Digest(sum.Sum(nil)))
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
	return x.add(to, item{m.Place, m.Unnamed, folder.Upload{
		Blob: b, Description: described, Flags: flagsOf(m.Flags), Keywords: folder.FitKeywords(m.Keywords), Date: dateOf(m, scan.Header()),
	}})
}

var errTooLarge = errors.New("a message is too large")

// writing bounds a message.
type writing struct {
	to   io.Writer
	size int64
}

// Write writes a piece.
func (w *writing) Write(p []byte) (int, error) {
	if w.size += int64(len(p)); w.size > MaxMessage {
		return 0, errTooLarge
	}
	return w.to.Write(p)
}

func flagsOf(from archive.Flags) (to folder.Flags) {
	for _, f := range pairs() {
		if from&f.outside != 0 {
			to |= f.here
		}
	}
	return to
}

type flagPair struct {
	outside archive.Flags
	here    folder.Flags
}

func pairs() []flagPair {
	return []flagPair{
		{archive.Seen, folder.Seen}, {archive.Answered, folder.Answered}, {archive.Flagged, folder.Flagged},
		{archive.Deleted, folder.Deleted}, {archive.Draft, folder.Draft},
	}
}

// dateOf is when a message was received: as the archive says, else as the host
// says that received it, else when it was written.
func dateOf(m *archive.Message, h message.Header) time.Time {
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
	place   string
	unnamed *archive.Unnamed
	folder.Upload
}

// batch are messages for one folder.
type batch struct {
	to    *target
	items []item
}

// add has a message filed with others.
func (x *importing) add(to *target, it item) error {
	b := x.pending[to]
	if b == nil {
		b = &batch{to: to}
		x.pending[to], x.order = b, append(x.order, b)
	}
	b.items = append(b.items, it)
	if x.waiting == 0 {
		x.since = x.Now()
	}
	x.waiting++
	if bytes, inRow := it.Blob.Bytes(); inRow {
		x.bytes += int64(len(bytes))
	}
	if x.waiting < batchMessages && x.bytes < batchBytes {
		return nil
	}
	return x.flush()
}

// flush hands over what waits.
func (x *importing) flush() error {
	if x.waiting == 0 {
		return nil
	}
	work := x.order
	x.pending, x.order, x.waiting, x.bytes = map[*target]*batch{}, nil, 0, 0
	select {
	case x.filer.work <- work:
		return nil
	case <-x.filer.stopped:
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

func (x *importing) start() {
	x.filer = &filer{importing: x, work: make(chan []*batch), stopped: make(chan struct{}), done: make(chan struct{})}
	go x.filer.run()
}

// finish waits until all is filed that was handed over, and adds what that
// came to.
func (x *importing) finish() error {
	close(x.filer.work)
	<-x.filer.done
	x.Imported, x.Bytes = x.filer.imported, x.filer.bytes
	for _, f := range x.filer.failures {
		_ = x.fail(f.Place, f.Why) // never fails
	}
	x.Failed += x.filer.failed - int64(len(x.filer.failures))
	return x.filer.err
}

// invalid reports whether a message itself is to blame that it was not filed.
func invalid(err error) bool { return fault.Is(err, fault.Invalid) || fault.Is(err, fault.TooLarge) }
