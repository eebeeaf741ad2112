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
	// Limits of one FETCH of texts, in messages and bytes.
	chunkMessages, chunkBytes = 100, 16 << 20
	// Limits of one commit, in messages and bytes.
	batchMessages, batchBytes = 20, 2 << 20
)

// counters are the increments of the counts in a commit.
type counters struct{ done, copied, skipped, failed, bytes int64 }

var (
	addProgressQuery = db.SQL(`UPDATE migration SET messages_done = messages_done + $3, copied = copied + $4, skipped = skipped + $5, failed = failed + $6,
			bytes_copied = bytes_copied + $7, retries = 0, error = '', updated_at = $8
		WHERE id = $1 AND lease = $2 AND state = 'running'`)
	addFolderProgressQuery = db.SQL(`UPDATE migration_folder SET done = done + $3, copied = copied + $4, skipped = skipped + $5, failed = failed + $6
		WHERE migration = $1 AND n = $2`)
	setFolderCursorQuery = db.SQL(`UPDATE migration_folder SET uidvalidity = $3, last_uid = $4 WHERE migration = $1 AND n = $2`)
	insertCopiedQuery    = db.SQL(`INSERT INTO migration_copied (mailbox, source, uidvalidity, uid, digest, migration) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (mailbox, source, uidvalidity, uid) DO NOTHING`)
	// One row for all messages of a folder with the same note.
	insertNoteQuery = db.SQL(`INSERT INTO migration_note (migration, k, folder, uid, note, messages)
		SELECT $1, $2, $3, $4, $5, 1 WHERE (SELECT COUNT(*) FROM migration_note WHERE migration = $1) < $6
			OR EXISTS (SELECT 1 FROM migration_note WHERE migration = $1 AND k = $2)
		ON CONFLICT (migration, k) DO UPDATE SET messages = migration_note.messages + 1`)
	addBytesQuery = db.SQL(`UPDATE migration SET bytes = bytes + $3 WHERE id = $1 AND lease = $2 AND state = 'running'`)
	// The size is written only once.
	setFolderBytesQuery = db.SQL(`UPDATE migration_folder SET bytes = $3 WHERE migration = $1 AND n = $2 AND bytes < 0`)
	countFolderQuery    = db.SQL(`UPDATE migration SET folders_done = folders_done + 1, updated_at = $3 WHERE id = $1 AND lease = $2 AND state = 'running'`)
	finishFolderQuery   = db.SQL(`UPDATE migration_folder SET state = $3, error = $4 WHERE migration = $1 AND n = $2 AND state = 'waiting'`)
	copiedUIDsQuery     = db.SQL(`SELECT uid, migration FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity = $3 AND uid BETWEEN $4 AND $5`)
	// Some UIDVALIDITY before or after this one is enough.
	copiedBeforeQuery   = db.SQL(`SELECT uid FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity < $3 LIMIT 1`)
	copiedAfterQuery    = db.SQL(`SELECT uid FROM migration_copied WHERE mailbox = $1 AND source = $2 AND uidvalidity > $3 LIMIT 1`)
	copiedByDigestQuery = db.SQL(`SELECT COALESCE(MAX(migration), 0) FROM migration_copied WHERE mailbox = $1 AND source = $2 AND digest = $3 AND uidvalidity <> $4`)
)

// errAlreadyCopied reports that another job has filed a message.
var errAlreadyCopied = errors.New("a message was copied already")

// digest identifies a message whose UID has changed.
func digest(id string, l *sourceMessage) int64 {
	return hash64(id, fmt.Sprint(l.size), fmt.Sprint(l.date.Unix()))
}

// copiedUIDs returns the copied messages of a window, and the migration that copied each.
func (m *Service) copiedUIDs(ctx context.Context, source int64, validity, first, last uint32, mailbox db.ID) (map[uint32]db.ID, error) {
	known := map[uint32]db.ID{}
	err := m.options.DB.Each(ctx, copiedUIDsQuery.With(mailbox, source, validity, first, last), func(r db.Row) error {
		var uid uint32
		var by db.ID
		err := r.Scan(&uid, &by)
		known[uid] = by
		return err
	})
	return known, err
}

// hasOtherValidity reports whether messages of a folder were copied under another UIDVALIDITY.
func (m *Service) hasOtherValidity(ctx context.Context, source int64, validity uint32, mailbox db.ID) (bool, error) {
	for _, q := range []*db.Query{copiedBeforeQuery, copiedAfterQuery} {
		if copied, err := db.Exists(ctx, m.options.DB, q.With(mailbox, source, validity)); copied || err != nil {
			return copied, err
		}
	}
	return false, nil
}

// copiedByDigest returns the last migration that copied or found a message under another
// UIDVALIDITY; 0 if there is none.
func (m *Service) copiedByDigest(ctx context.Context, source, digest int64, validity uint32, mailbox db.ID) (by db.ID, err error) {
	err = m.options.DB.One(ctx, copiedByDigestQuery.With(mailbox, source, digest, validity), &by)
	return by, err
}

// fetchedMessage is a message in the blob store that is not filed yet.
type fetchedMessage struct {
	sourceMessage
	folder.Upload
	dateField time.Time // Date field; zero if it can't be parsed
	notes     []string  // differences from the source
}

// copyBodies copies messages. It returns those that could not be copied, and how many were deleted
// at the source meanwhile.
func (f *folderCopy) copyBodies(ctx context.Context, mails []sourceMessage) (lost []Failure, gone int64, err error) {
	for len(mails) > 0 {
		n, bytes := 0, int64(0)
		for n < len(mails) && n < chunkMessages && (n == 0 || bytes+mails[n].size <= chunkBytes) {
			bytes += mails[n].size
			n++
		}
		bad, away, err := f.copyChunk(ctx, mails[:n])
		if err != nil {
			return nil, 0, err
		}
		lost, gone, mails = append(lost, bad...), gone+away, mails[n:]
	}
	return lost, gone, nil
}

// copyChunk copies the messages of one FETCH.
func (f *folderCopy) copyChunk(ctx context.Context, mails []sourceMessage) (lost []Failure, gone int64, err error) {
	b := &batch{folderCopy: f}
	defer func() { b.discard(ctx, err) }()
	missing := map[uint32]sourceMessage{}
	for _, l := range mails {
		missing[l.uid] = l
	}
	// On a second request, a source gives what it mixed up with flag updates.
	for range 2 {
		if err = b.fetch(ctx, missing); err != nil || len(missing) == 0 {
			break
		}
	}
	// Complete messages are filed even if the source breaks off: it may always do so before a batch
	// is full, and the job would never make progress.
	if err == nil || isSourceError(err) && ctx.Err() == nil {
		if failed := b.flush(ctx); failed != nil {
			err = failed
		}
	}
	if err != nil || len(missing) == 0 {
		return b.failures, 0, err
	}
	return f.checkAbsent(b.failures, missing)
}

// fetch reads the texts of messages, and removes from missing those that arrived.
func (b *batch) fetch(ctx context.Context, missing map[uint32]sourceMessage) error {
	f := b.folderCopy
	var came *fetchedMessage // its response has not ended, and its message may be unknown
	over := false
	keep := func(uid uint32, text imap.LiteralReader) error {
		if _, ok := missing[uid]; !ok && uid != 0 {
			return protocolError{errors.New("a message that was not asked for")}
		}
		k, err := f.storeBody(ctx, text)
		if over = errors.Is(err, errTooLarge); over && text.Size() <= 2*MaxMessageSize {
			_, err = io.Copy(io.Discard, text)
			return err
		}
		if over { // too large even to skip
			if uid != 0 {
				f.skip(uid, tooLargeReason)
			}
			return protocolError{err}
		}
		if err == nil {
			came = &k
		}
		return err
	}
	err := f.src.fetchBodies(slices.Sorted(maps.Keys(missing)), func(uid uint32) { f.currentUID = uid }, keep, func(uid uint32) error {
		k := came
		came, f.currentUID = nil, 0
		l, ok := missing[uid]
		switch {
		case !ok && k != nil: // sequence numbers have changed
			k.Blob.Discard(ctx)
		case ok && over:
			b.failures = append(b.failures, Failure{f.name, uid, tooLargeReason})
			delete(missing, uid)
		case ok:
			delete(missing, uid)
			delete(f.failureCount, uid)
			k.addMetadata(l)
			return b.add(ctx, *k)
		}
		return nil
	})
	if came != nil {
		came.Blob.Discard(ctx)
	}
	return err
}

// checkAbsent finds out why the source gave no text for some messages.
func (f *folderCopy) checkAbsent(lost []Failure, missing map[uint32]sourceMessage) ([]Failure, int64, error) {
	still, err := f.src.existing(slices.Sorted(maps.Keys(missing)))
	for _, uid := range still {
		lost = append(lost, Failure{f.name, uid, "The source gives no text of it."})
	}
	return lost, int64(len(missing) - len(still)), err
}

// storeBody writes a message to the blob store as it arrives.
func (f *folderCopy) storeBody(ctx context.Context, text imap.LiteralReader) (k fetchedMessage, err error) {
	if text.Size() > MaxMessageSize {
		return k, errTooLarge
	}
	to := f.options.Blobs.Create(ctx)
	defer to.Abort()
	scan := &message.Scanner{}
	w := &storeWriter{w: io.MultiWriter(to, scan)}
	if _, err := io.Copy(w, text); err != nil {
		if w.err != nil {
			return k, internalError{w.err}
		}
		return k, f.src.wrapError(err)
	}
	if to.Size() != text.Size() {
		return k, f.src.wrapError(io.ErrUnexpectedEOF)
	}
	described, err := folder.NewMetadata(scan.Header(), scan.Finish())
	if err != nil {
		return k, internalError{err}
	}
	b, err := to.Finish()
	if err != nil {
		return k, internalError{err}
	}
	k.identity = messageIdentity(scan.Header())
	k.dateField, _ = message.ParseDate(scan.Header().Unfolded("Date"))
	k.Upload = folder.Upload{Blob: b, Metadata: described}
	return k, nil
}

// addMetadata adds the message's metadata.
func (k *fetchedMessage) addMetadata(l sourceMessage) {
	l.identity = k.identity
	l.digest = digest(l.identity, &l)
	k.sourceMessage, k.Date = l, l.date
	k.Flags, k.Keywords, k.notes = parseFlags(l.flags)
	switch {
	case !l.date.IsZero() && l.dateValid:
	case !l.date.IsZero():
		k.notes = append(k.notes, "The source writes its date in another form than IMAP has. It was read as well as possible.")
	case !k.dateField.IsZero():
		k.Date = k.dateField
		k.notes = append(k.notes, "The source tells no date that can be read. The message got the one in its Date field.")
	default: // it gets the date of filing
		k.notes = append(k.notes, "The source tells no date that can be read, and neither does the message. It got the date of its copying.")
	}
}

// storeWriter distinguishes the store's errors from the source's. A NUL, which messages must not
// contain (RFC 9051 §4.3), becomes what Dovecot makes of it.
type storeWriter struct {
	w   io.Writer
	err error
}

// Write writes a piece to the store.
func (w *storeWriter) Write(p []byte) (int, error) {
	if slices.Contains(p, 0) {
		p = slices.Clone(p)
		for i := range p {
			if p[i] == 0 {
				p[i] = 0x80
			}
		}
	}
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// batch is a group of messages to file in one commit.
type batch struct {
	*folderCopy
	fetched  []fetchedMessage
	bytes    int64
	failures []Failure
}

func (b *batch) add(ctx context.Context, k fetchedMessage) error {
	b.fetched = append(b.fetched, k)
	if b.bytes += k.Blob.Size; len(b.fetched) < batchMessages && b.bytes < batchBytes {
		return nil
	}
	return b.flush(ctx)
}

// flush files the batch: all messages at once, or one by one if one of them causes an error.
func (b *batch) flush(ctx context.Context) error {
	if len(b.fetched) == 0 {
		return nil
	}
	if b.targetFull {
		b.failFolderFull(ctx)
		return nil
	}
	err := b.commit(ctx, b.fetched)
	if fault.Is(err, fault.NotFound) { // the local folder was deleted or renamed
		if err := b.createTarget(ctx, b.folderTask); err != nil {
			return wrapInternal(err)
		}
		err = b.commit(ctx, b.fetched)
	}
	if err == nil {
		b.fetched, b.bytes = nil, 0
		return nil
	}
	if !fault.Is(err, fault.Invalid) && !errors.Is(err, errAlreadyCopied) && !isFolderFull(err) {
		return wrapInternal(err)
	}
	for len(b.fetched) > 0 {
		k := b.fetched[0]
		err := b.commit(ctx, []fetchedMessage{k})
		if isFolderFull(err) {
			b.targetFull = true
			b.failFolderFull(ctx)
			break
		}
		b.fetched = b.fetched[1:] // a filed message must not be discarded
		if err == nil {
			continue
		}
		k.discard(ctx, err)
		switch {
		case errors.Is(err, errAlreadyCopied):
		case fault.Is(err, fault.Invalid):
			b.failures = append(b.failures, Failure{b.name, k.uid, "It can't be filed here."})
		default:
			return wrapInternal(err)
		}
	}
	b.bytes = 0
	return nil
}

// isFolderFull reports whether a folder can take no more messages.
func isFolderFull(err error) bool {
	var f *fault.Error
	return errors.As(err, &f) && f.Code == folder.CodeFolderFull
}

// failFolderFull discards the messages because the folder is full.
func (b *batch) failFolderFull(ctx context.Context) {
	for i := range b.fetched {
		b.fetched[i].Blob.Discard(ctx)
		b.failures = append(b.failures, Failure{b.name, b.fetched[i].uid, folderFullReason})
	}
	b.fetched, b.bytes = nil, 0
}

const folderFullReason = "The folder here holds as many messages as it may."

// discard discards a message that was not filed because of err. After a database error it may have
// been filed: the sweep finds out.
func (k *fetchedMessage) discard(ctx context.Context, err error) {
	if fault.KindOf(err) != fault.Internal || errors.Is(err, errAlreadyCopied) || errors.Is(err, errLeaseLost) {
		k.Blob.Discard(ctx)
	}
}

// discard discards the unfiled messages because of err.
func (b *batch) discard(ctx context.Context, err error) {
	for i := range b.fetched {
		b.fetched[i].discard(ctx, err)
	}
}

// commit files messages and records in the same commit that they were copied.
func (b *batch) commit(ctx context.Context, all []fetchedMessage) error {
	sum := counters{done: int64(len(all)), copied: int64(len(all))}
	uploads := make([]folder.Upload, len(all))
	for i, k := range all {
		uploads[i] = k.Upload
		sum.bytes += k.Blob.Size
	}
	_, _, err := b.options.Folders.Import(ctx, b.Mailbox, b.target, func(q *db.Batch) {
		b.queueProgress(q, sum)
		for _, k := range all {
			q.Queue(insertCopiedQuery.With(b.Mailbox, b.sourceFolder, b.uidValidity, k.uid, k.digest, b.ID)).OrFail(errAlreadyCopied)
			for _, text := range k.notes {
				q.Queue(insertNoteQuery.With(b.ID, hash64(b.name, text), b.name, k.uid, text, MaxFailures))
			}
		}
	}, uploads...)
	if err == nil {
		b.skippedInRow, b.sourceDoubted, b.readableUID = 0, false, all[0].uid
		b.recordProgress()
	}
	return err
}

// queueProgress queues the counts. The commit fails unless the migration is running and this node
// holds its lease.
func (f *folderCopy) queueProgress(q *db.Batch, n counters) {
	q.Queue(addProgressQuery.With(f.ID, f.leaseID, n.done, n.copied, n.skipped, n.failed, n.bytes, db.Micros(f.options.Now()))).OrFail(errLeaseLost)
	q.Queue(addFolderProgressQuery.With(f.ID, f.number, n.done, n.copied, n.skipped, n.failed))
}

// finishWindow records that a folder is done up to a message.
func (f *folderCopy) finishWindow(ctx context.Context, n counters, last uint32, again []sourceMessage, lost []Failure) error {
	err := f.options.DB.Write(ctx, f.Mailbox, &db.Mutation{
		Guard: func(q *db.Batch) { f.queueProgress(q, n) },
		Apply: func(q *db.Batch) {
			q.Queue(setFolderCursorQuery.With(f.ID, f.number, f.uidValidity, last))
			for _, l := range again {
				q.Queue(insertCopiedQuery.With(f.Mailbox, f.sourceFolder, f.uidValidity, l.uid, l.digest, f.ID))
			}
			for _, x := range lost {
				q.Queue(insertFailureQuery.With(f.ID, x.Folder, x.UID, x.Reason))
			}
		},
	})
	if err != nil {
		return wrapInternal(err)
	}
	for _, x := range lost {
		delete(f.unreadable, x.UID)
	}
	f.lastUID = last
	// Otherwise the source may be unreadable, or its UIDVALIDITY may never be stable.
	if n.done > n.failed || f.Retries < stuckRetries && len(again) == 0 {
		f.recordProgress()
	}
	f.changed.Store(true)
	return nil
}

// finishFolder records that a folder is done or has failed.
func (j *job) finishFolder(ctx context.Context, t *folderTask, state, why string) error {
	err := j.options.DB.Write(ctx, j.Mailbox, &db.Mutation{
		Guard: func(q *db.Batch) {
			q.Queue(countFolderQuery.With(j.ID, j.leaseID, db.Micros(j.options.Now()))).OrFail(errLeaseLost)
		},
		Apply: func(q *db.Batch) {
			q.Queue(finishFolderQuery.With(j.ID, t.number, state, why))
			if why != "" {
				q.Queue(insertFailureQuery.With(j.ID, t.name, 0, why))
			}
		},
	})
	if err == nil {
		j.recordProgress()
	}
	return wrapInternal(err)
}
