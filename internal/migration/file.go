// SPDX-License-Identifier: Apache-2.0

package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

const (
	// One FETCH asks for the texts of so many messages, or of so many bytes.
	chunkMessages, chunkBytes = 100, 16 << 20
	// One commit files so many messages, or so many bytes.
	batchMessages, batchBytes = 20, 2 << 20
)

// tally is what a commit adds to the counts.
type tally struct{ done, copied, skipped, failed, bytes int64 }

var (
	advance = db.SQL(`UPDATE migration SET messages_done = messages_done + $3, copied = copied + $4, skipped = skipped + $5, failed = failed + $6,
			bytes_copied = bytes_copied + $7, retries = 0, trouble = '', updated_at = $8
		WHERE id = $1 AND tenure = $2 AND state = 'running'`)
	folderAdvance = db.SQL(`UPDATE migration_folder SET done = done + $3, copied = copied + $4, skipped = skipped + $5, failed = failed + $6
		WHERE migration = $1 AND n = $2`)
	folderMark   = db.SQL(`UPDATE migration_folder SET uidvalidity = $3, last_uid = $4 WHERE migration = $1 AND n = $2`)
	insertCopied = db.SQL(`INSERT INTO migration_copied (mailbox, source, uidvalidity, uid, digest, migration) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (mailbox, source, uidvalidity, uid) DO NOTHING`)
	// One line for all messages of a folder of which the same is to be said.
	insertNote = db.SQL(`INSERT INTO migration_note (migration, k, folder, uid, note, messages)
		SELECT $1, $2, $3, $4, $5, 1 WHERE (SELECT COUNT(*) FROM migration_note WHERE migration = $1) < $6
			OR EXISTS (SELECT 1 FROM migration_note WHERE migration = $1 AND k = $2)
		ON CONFLICT (migration, k) DO UPDATE SET messages = migration_note.messages + 1`)
	weighed = db.SQL(`UPDATE migration SET bytes = bytes + $3 WHERE id = $1 AND tenure = $2 AND state = 'running'`)
	// The bytes are written once only.
	folderWeighed = db.SQL(`UPDATE migration_folder SET bytes = $3 WHERE migration = $1 AND n = $2 AND bytes < 0`)
	countFolder   = db.SQL(`UPDATE migration SET folders_done = folders_done + 1, updated_at = $3 WHERE id = $1 AND tenure = $2 AND state = 'running'`)
	endFolder     = db.SQL(`UPDATE migration_folder SET state = $3, trouble = $4 WHERE migration = $1 AND n = $2 AND state = 'waiting'`)
	copiedUIDs    = db.SQL(`SELECT uid, migration FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity = $3 AND uid BETWEEN $4 AND $5`)
	// Some UIDVALIDITY before or after this one is enough.
	copiedBefore = db.SQL(`SELECT uid FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity < $3 LIMIT 1`)
	copiedAfter  = db.SQL(`SELECT uid FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity > $3 LIMIT 1`)
	copiedDigest = db.SQL(`SELECT COALESCE(MAX(migration), 0) FROM migration_copied WHERE mailbox = $1 AND source = $2 AND digest = $3 AND uidvalidity <> $4`)
)

// errTwice says that another job has filed a message.
var errTwice = errors.New("a message was copied already")

// digest tells a message that has got another UID.
func digest(id string, l *letter) int64 {
	return short(id, fmt.Sprint(l.size), fmt.Sprint(l.date.Unix()))
}

// copied returns the messages of a window that were copied, and by which
// migration.
func (m *Migrations) copied(ctx context.Context, source int64, validity, first, last uint32, mailbox db.ID) (map[uint32]db.ID, error) {
	known := map[uint32]db.ID{}
	err := m.o.DB.Each(ctx, copiedUIDs.With(mailbox, source, validity, first, last), func(r db.Row) error {
		var uid uint32
		var by db.ID
		err := r.Scan(&uid, &by)
		known[uid] = by
		return err
	})
	return known, err
}

// renumbered reports whether something of a folder was copied under another
// UIDVALIDITY.
func (m *Migrations) renumbered(ctx context.Context, source int64, validity uint32, mailbox db.ID) (bool, error) {
	for _, q := range []*db.Query{copiedBefore, copiedAfter} {
		err := m.o.DB.One(ctx, q.With(mailbox, source, validity), new(uint32))
		if err == nil || !errors.Is(err, db.ErrNoRow) {
			return err == nil, err
		}
	}
	return false, nil
}

// knows returns the last migration that copied a message under another
// UIDVALIDITY, or found it there; 0 for none.
func (m *Migrations) knows(ctx context.Context, source, digest int64, validity uint32, mailbox db.ID) (by db.ID, err error) {
	err = m.o.DB.One(ctx, copiedDigest.With(mailbox, source, digest, validity), &by)
	return by, err
}

// kept is a message that is in the blob store, and not yet filed.
type kept struct {
	letter
	folder.Upload
	sent  time.Time // its Date field; zero if that can't be read
	notes []string  // what is otherwise than at the source
}

// bodies copies messages. It returns those that could not be, and how many were
// deleted there meanwhile.
func (f *copying) bodies(ctx context.Context, letters []letter) (lost []Failure, gone int64, err error) {
	for len(letters) > 0 {
		n, bytes := 0, int64(0)
		for n < len(letters) && n < chunkMessages && (n == 0 || bytes+letters[n].size <= chunkBytes) {
			bytes += letters[n].size
			n++
		}
		bad, away, err := f.chunk(ctx, letters[:n])
		if err != nil {
			return nil, 0, err
		}
		lost, gone, letters = append(lost, bad...), gone+away, letters[n:]
	}
	return lost, gone, nil
}

// chunk copies the messages of one FETCH.
func (f *copying) chunk(ctx context.Context, letters []letter) (lost []Failure, gone int64, err error) {
	b := &batch{copying: f}
	defer func() { b.discard(ctx, err) }()
	missing := map[uint32]letter{}
	for _, l := range letters {
		missing[l.uid] = l
	}
	// Asked again, a source gives what it mixed up with news of flags.
	for range 2 {
		if err = b.read(ctx, missing); err != nil || len(missing) == 0 {
			break
		}
	}
	// What came whole before the source broke off is filed: it may always do so after
	// fewer than are filed together, and would then never get on.
	if err == nil || theirs(err) && ctx.Err() == nil {
		if failed := b.flush(ctx); failed != nil {
			err = failed
		}
	}
	if err != nil || len(missing) == 0 {
		return b.lost, 0, err
	}
	return f.absent(b.lost, missing)
}

// read reads the texts of messages, and takes those out of missing that came.
func (b *batch) read(ctx context.Context, missing map[uint32]letter) error {
	f := b.copying
	var came *kept // whose message has not ended, and may not be known
	over := false
	keep := func(uid uint32, text imap.LiteralReader) error {
		if _, ok := missing[uid]; !ok && uid != 0 {
			return garbled{errors.New("a message that was not asked for")}
		}
		k, err := f.keep(ctx, text)
		if over = errors.Is(err, errOver); over && text.Size() <= 2*MaxMessage {
			_, err = io.Copy(io.Discard, text)
			return err
		}
		if over { // too much even to pass over
			if uid != 0 {
				f.give(uid, tooLarge)
			}
			return garbled{err}
		}
		if err == nil {
			came = &k
		}
		return err
	}
	err := f.src.texts(slices.Sorted(maps.Keys(missing)), func(uid uint32) { f.at = uid }, keep, func(uid uint32) error {
		k := came
		came, f.at = nil, 0
		l, ok := missing[uid]
		switch {
		case !ok && k != nil: // places have moved
			k.Blob.Discard(ctx)
		case ok && over:
			b.lost = append(b.lost, Failure{f.name, uid, tooLarge})
			delete(missing, uid)
		case ok:
			delete(missing, uid)
			delete(f.suspect, uid)
			k.of(l)
			return b.add(ctx, *k)
		}
		return nil
	})
	if came != nil {
		came.Blob.Discard(ctx)
	}
	return err
}

// absent finds out what became of messages that the source gave no text of.
func (f *copying) absent(lost []Failure, missing map[uint32]letter) ([]Failure, int64, error) {
	still, err := f.src.still(slices.Sorted(maps.Keys(missing)))
	for _, uid := range still {
		lost = append(lost, Failure{f.name, uid, "The source gives no text of it."})
	}
	return lost, int64(len(missing) - len(still)), err
}

// keep puts a message into the blob store while it comes.
func (f *copying) keep(ctx context.Context, text imap.LiteralReader) (k kept, err error) {
	if text.Size() > MaxMessage {
		return k, errOver
	}
	to := f.o.Blobs.Create(ctx)
	defer to.Abort()
	scan := &message.Scanner{}
	w := &writing{to: io.MultiWriter(to, scan)}
	if _, err := io.Copy(w, text); err != nil {
		if w.err != nil {
			return k, ours{w.err}
		}
		return k, f.src.did(err)
	}
	if to.Size() != text.Size() {
		return k, f.src.did(io.ErrUnexpectedEOF)
	}
	described, err := folder.Describe(scan.Header(), scan.Finish())
	if err != nil {
		return k, ours{err}
	}
	b, err := to.Finish()
	if err != nil {
		return k, ours{err}
	}
	k.id = identity(scan.Header())
	k.sent, _ = message.ParseDate(scan.Header().Text("Date"))
	k.Upload = folder.Upload{Blob: b, Description: described}
	return k, nil
}

// of says which message it is.
func (k *kept) of(l letter) {
	l.id = k.id
	l.digest = digest(l.id, &l)
	k.letter, k.Date = l, l.date
	k.Flags, k.Keywords, k.notes = flagsOf(l.flags)
	switch {
	case !l.date.IsZero() && l.exact:
	case !l.date.IsZero():
		k.notes = append(k.notes, "The source writes its date in another form than IMAP has. It was read as well as possible.")
	case !k.sent.IsZero():
		k.Date = k.sent
		k.notes = append(k.notes, "The source tells no date that can be read. The message got the one in its Date field.")
	default: // it gets that of its filing
		k.notes = append(k.notes, "The source tells no date that can be read, and neither does the message. It got the date of its copying.")
	}
}

// writing tells errors of the store from those of the source. A NUL, which no
// message may have (RFC 9051 §4.3), becomes what Dovecot makes of it.
type writing struct {
	to  io.Writer
	err error
}

// Write writes a piece.
func (w *writing) Write(p []byte) (int, error) {
	if slices.Contains(p, 0) {
		p = slices.Clone(p)
		for i := range p {
			if p[i] == 0 {
				p[i] = 0x80
			}
		}
	}
	n, err := w.to.Write(p)
	w.err = err
	return n, err
}

// batch are messages that are filed together.
type batch struct {
	*copying
	all   []kept
	bytes int64
	lost  []Failure
}

func (b *batch) add(ctx context.Context, k kept) error {
	b.all = append(b.all, k)
	if b.bytes += k.Blob.Size; len(b.all) < batchMessages && b.bytes < batchBytes {
		return nil
	}
	return b.flush(ctx)
}

// flush files what is there: all at once, or each alone if one of them is to
// blame that it did not go.
func (b *batch) flush(ctx context.Context) error {
	if len(b.all) == 0 {
		return nil
	}
	if b.full {
		b.noPlace(ctx)
		return nil
	}
	err := b.file(ctx, b.all)
	if fault.Is(err, fault.NotFound) { // the folder here was deleted or renamed
		if err := b.prepare(ctx, b.task); err != nil {
			return own(err)
		}
		err = b.file(ctx, b.all)
	}
	if err == nil {
		b.all, b.bytes = nil, 0
		return nil
	}
	if !fault.Is(err, fault.Invalid) && !errors.Is(err, errTwice) && !folderFull(err) {
		return own(err)
	}
	for len(b.all) > 0 {
		k := b.all[0]
		err := b.file(ctx, []kept{k})
		if folderFull(err) {
			b.full = true
			b.noPlace(ctx)
			break
		}
		b.all = b.all[1:] // what was filed is not to be discarded
		if err == nil {
			continue
		}
		k.discard(ctx, err)
		switch {
		case errors.Is(err, errTwice):
		case fault.Is(err, fault.Invalid):
			b.lost = append(b.lost, Failure{b.name, k.uid, "It can't be filed here."})
		default:
			return own(err)
		}
	}
	b.bytes = 0
	return nil
}

// folderFull reports whether a folder can take no more messages.
func folderFull(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == folder.CodeFolderFull
}

// noPlace throws away messages for a folder that is full.
func (b *batch) noPlace(ctx context.Context) {
	for i := range b.all {
		b.all[i].Blob.Discard(ctx)
		b.lost = append(b.lost, Failure{b.name, b.all[i].uid, fullFolder})
	}
	b.all, b.bytes = nil, 0
}

const fullFolder = "The folder here holds as many messages as it may."

// discard throws a message away that was not filed, because of an error. Of the
// database's it may have been filed all the same: then the sweep finds out.
func (k *kept) discard(ctx context.Context, err error) {
	if fault.KindOf(err) != fault.Internal || errors.Is(err, errTwice) || errors.Is(err, errLost) {
		k.Blob.Discard(ctx)
	}
}

// discard throws away what was not filed, because of an error.
func (b *batch) discard(ctx context.Context, err error) {
	for i := range b.all {
		b.all[i].discard(ctx, err)
	}
}

// file files messages in one commit with the note that they were copied.
func (b *batch) file(ctx context.Context, all []kept) error {
	sum := tally{done: int64(len(all)), copied: int64(len(all))}
	uploads := make([]folder.Upload, len(all))
	for i, k := range all {
		uploads[i] = k.Upload
		sum.bytes += k.Blob.Size
	}
	_, _, err := b.o.Folders.Import(ctx, b.Mailbox, b.target, func(q *db.Batch) {
		b.count(q, sum)
		for _, k := range all {
			q.Queue(insertCopied.With(b.Mailbox, b.from, b.validity, k.uid, k.digest, b.ID)).Else(errTwice)
			for _, text := range k.notes {
				q.Queue(insertNote.With(b.ID, short(b.name, text), b.name, k.uid, text, MaxFailures))
			}
		}
	}, uploads...)
	if err == nil {
		b.passed, b.doubted, b.given = 0, false, all[0].uid
		b.gained()
	}
	return err
}

// count queues what a commit adds to the counts. It declines the commit unless
// the migration is still in this node's hand, and runs.
func (f *copying) count(q *db.Batch, n tally) {
	q.Queue(advance.With(f.ID, f.tenure, n.done, n.copied, n.skipped, n.failed, n.bytes, db.Micros(f.o.Now()))).Else(errLost)
	q.Queue(folderAdvance.With(f.ID, f.n, n.done, n.copied, n.skipped, n.failed))
}

// settle notes that a folder is done up to a message.
func (f *copying) settle(ctx context.Context, n tally, last uint32, again []letter, lost []Failure) error {
	err := f.o.DB.Write(ctx, f.Mailbox, &db.Job{
		Guard: func(q *db.Batch) { f.count(q, n) },
		Apply: func(q *db.Batch) {
			q.Queue(folderMark.With(f.ID, f.n, f.validity, last))
			for _, l := range again {
				q.Queue(insertCopied.With(f.Mailbox, f.from, f.validity, l.uid, l.digest, f.ID))
			}
			for _, x := range lost {
				q.Queue(insertFailure.With(f.ID, x.Folder, x.UID, x.Why))
			}
		},
	})
	if err != nil {
		return own(err)
	}
	for _, x := range lost {
		delete(f.broken, x.UID)
	}
	f.last = last
	// Else it may be the source that can't be read, or whose UIDVALIDITY never stays.
	if n.done > n.failed || f.Retries < stuck && len(again) == 0 {
		f.gained()
	}
	f.changed.Store(true)
	return nil
}

// closeFolder notes that a folder is done, or can't be.
func (j *job) closeFolder(ctx context.Context, t *task, state, why string) error {
	err := j.o.DB.Write(ctx, j.Mailbox, &db.Job{
		Guard: func(q *db.Batch) {
			q.Queue(countFolder.With(j.ID, j.tenure, db.Micros(j.o.Now()))).Else(errLost)
		},
		Apply: func(q *db.Batch) {
			q.Queue(endFolder.With(j.ID, t.n, state, why))
			if why != "" {
				q.Queue(insertFailure.With(j.ID, t.name, 0, why))
			}
		},
	})
	if err == nil {
		j.gained()
	}
	return own(err)
}
