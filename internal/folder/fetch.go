// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/message"
)

// FetchFields selects what Fetch reads. UID, sequence number, flags, keywords, mod-sequence and
// size always come and need no SQL.
type FetchFields uint8

// The optional fields.
const (
	FetchDates      FetchFields = 1 << iota // Date and SavedAt
	FetchEnvelope                           // Envelope
	FetchStructure                          // Structure
	FetchBlobID                             // BlobID
	FetchContent                            // Content, and BlobID
	FetchThread                             // Thread
	FetchReferences                         // what ThreadKeys returns, and Envelope
)

// MessageRow is a message as Fetch returns it.
type MessageRow struct {
	FlagChange              // Seq, UID, Flags, Keywords, ModSeq as the session knows them
	Size          uint32    // bytes
	Message       db.ID     // set with any FetchFields
	Date          time.Time // internal date
	SavedAt       time.Time // when it came into this folder (RFC 8514)
	Envelope      []byte
	Structure     []byte
	Thread        string     // the account's thread that it is in, as ThreadRef has it; "" for none
	referenceKeys []byte     // what encodeReferences returns for its header; empty if not stored
	BlobID        db.ID      // for blob.Store.Load
	Content       *blob.Blob // nil if the bytes are gone
	Private       bool       // as in Delivery; set with any FetchFields but FetchDates and FetchThread
}

// Parts of the queries that join the rows with their messages.
const (
	messageColumns = `f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private`
	messagesInSpan = ` FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`
	messagesInList = ` FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid ` + inList + ` ORDER BY f.uid`
)

// Queries for rows alone, and with the message's envelope, structure or both.
var (
	readRowsQuery     = db.SQL(`SELECT uid, message, internal_date, saved_at FROM folder_message WHERE folder = $3 AND uid BETWEEN $1 AND $2 ORDER BY uid`)
	readRowsListQuery = db.SQL(`SELECT uid, message, internal_date, saved_at FROM folder_message
		WHERE folder = $17 AND uid ` + inList + ` ORDER BY uid`)
	readBlobsQuery          = db.SQL(`SELECT ` + messageColumns + messagesInSpan)
	readBlobsListQuery      = db.SQL(`SELECT ` + messageColumns + messagesInList)
	readEnvelopesQuery      = db.SQL(`SELECT ` + messageColumns + `, m.envelope` + messagesInSpan)
	readEnvelopesListQuery  = db.SQL(`SELECT ` + messageColumns + `, m.envelope` + messagesInList)
	readStructuresQuery     = db.SQL(`SELECT ` + messageColumns + `, m.structure` + messagesInSpan)
	readStructuresListQuery = db.SQL(`SELECT ` + messageColumns + `, m.structure` + messagesInList)
	readAllQuery            = db.SQL(`SELECT ` + messageColumns + `, m.envelope, m.structure` + messagesInSpan)
	readAllListQuery        = db.SQL(`SELECT ` + messageColumns + `, m.envelope, m.structure` + messagesInList)
	readReferencesQuery     = db.SQL(`SELECT ` + messageColumns + `, m.envelope, m.reply_references` + messagesInSpan)
	readReferencesListQuery = db.SQL(`SELECT ` + messageColumns + `, m.envelope, m.reply_references` + messagesInList)
	// readMessageQuery reads one message with its bytes.
	readMessageQuery = db.SQL(`SELECT f.message, f.internal_date, f.saved_at, m.private, m.structure, b.id, b.size, b.file, b.bytes
		FROM folder_message f JOIN message m ON m.id = f.message JOIN blob b ON b.id = m.blob
		WHERE f.folder = $1 AND f.uid = $2`)
	messageBlobQuery = db.SQL(`SELECT blob, private FROM message WHERE id = $1`)
)

// Limits of a page. A read transaction must be short, and a page must fit in memory.
const (
	fetchPageMessages = 1_000   // messages
	fetchPageBytes    = 2 << 20 // of envelopes and structures
)

// queries returns the queries that read the wanted fields, and appends their scan destinations to
// dst.
func (want FetchFields) queries(row *MessageRow, dst []any) (ranges, list *db.Query, _ []any) {
	switch {
	case want&FetchReferences != 0:
		return readReferencesQuery, readReferencesListQuery, append(dst, &row.BlobID, &row.Private, &row.Envelope, &row.referenceKeys)
	case want&(FetchEnvelope|FetchStructure) == FetchEnvelope|FetchStructure:
		return readAllQuery, readAllListQuery, append(dst, &row.BlobID, &row.Private, &row.Envelope, &row.Structure)
	case want&FetchStructure != 0:
		return readStructuresQuery, readStructuresListQuery, append(dst, &row.BlobID, &row.Private, &row.Structure)
	case want&FetchEnvelope != 0:
		return readEnvelopesQuery, readEnvelopesListQuery, append(dst, &row.BlobID, &row.Private, &row.Envelope)
	case want&(FetchBlobID|FetchContent) != 0:
		return readBlobsQuery, readBlobsListQuery, append(dst, &row.BlobID, &row.Private)
	}
	return readRowsQuery, readRowsListQuery, dst
}

// Fetch calls f with each of the messages, which must be in ascending order of UID. No cursor is
// open and no lock is held while f runs, so f may write to a slow client, but it must not Sync the
// View. f may use the MessageRow only until it returns. Fetch leaves out messages that the session
// does not know. It also leaves out messages that another session expunged meanwhile, if it needs
// their rows.
func (v *View) Fetch(ctx context.Context, uids []uint32, want FetchFields, f func(*MessageRow) error) error {
	r := rowReader{v: v, uids: uids, want: want, limit: fetchPageMessages}
	if v.shared.keywords.IsFull() {
		r.limit = MaxFillKeywords
	} else if want == 0 {
		var row MessageRow
		for index, e := range v.snap.EachOf(uids) {
			row = MessageRow{FlagChange: v.flagChange(index, e), Size: e.Size}
			if err := f(&row); err != nil {
				return err
			}
		}
		return nil
	}
	defer func() { v.missedExpunge = v.missedExpunge || r.missedExpunge }()
	for rows, err := range r.batches(ctx) {
		if err != nil {
			return err
		}
		for i := range rows {
			if err := f(&rows[i]); err != nil {
				return err
			}
			rows[i].Content = nil
		}
	}
	return nil
}

// rowReader reads rows for Fetch.
type rowReader struct {
	v             *View
	uids          []uint32 // whose rows were not read yet
	want          FetchFields
	limit         int
	page          []MessageRow // whose bytes were not read yet
	missedExpunge bool         // whether a row that the session knows was missing
}

// batches returns the rows in batches. It reads the next batch while the caller uses the current
// one, usually to send it to the client.
func (r *rowReader) batches(ctx context.Context) iter.Seq2[[]MessageRow, error] {
	return func(yield func([]MessageRow, error) bool) {
		if rows, err := r.next(ctx); !yield(rows, err) || err != nil || !r.hasMore() {
			return
		}
		waiting := 0
		if r.want&FetchContent != 0 {
			waiting = prefetchBatches
		}
		type group struct {
			rows []MessageRow
			err  error
		}
		ahead, done := make(chan group, waiting), make(chan struct{})
		go func() {
			defer close(ahead)
			for r.hasMore() {
				rows, err := r.next(ctx)
				select {
				case ahead <- group{rows, err}:
				case <-done:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		defer func() {
			close(done)
			for range ahead { // until the reader no longer uses the view
			}
		}()
		for g := range ahead {
			if !yield(g.rows, g.err) {
				return
			}
		}
	}
}

// hasMore reports whether there may be more rows.
func (r *rowReader) hasMore() bool { return len(r.uids) > 0 || len(r.page) > 0 }

// next reads some rows, possibly none.
func (r *rowReader) next(ctx context.Context) (rows []MessageRow, err error) {
	if r.want|singleReadFields == singleReadFields && r.want&FetchContent != 0 && len(r.page) == 0 && len(r.uids) == 1 {
		if rows := r.v.readMessage(ctx, r.uids[0], r.want); rows != nil {
			r.uids = nil
			return rows, nil
		}
	}
	if len(r.page) == 0 && len(r.uids) > 0 {
		page := r.uids[:min(len(r.uids), r.limit)]
		rows, left, err := r.v.readPage(ctx, page, r.want)
		if err == nil {
			err = r.v.fillKeywords(ctx, len(rows), func(i int) *FlagChange { return &rows[i].FlagChange })
		}
		if err != nil {
			return nil, err
		}
		read := len(page) - left
		r.missedExpunge = r.missedExpunge || r.want != 0 && len(rows) < read
		r.page, r.uids = rows, r.uids[read:]
	}
	n := len(r.page)
	if r.want&FetchContent != 0 {
		if n, err = r.v.loadContent(ctx, r.page); err != nil {
			return nil, err
		}
	}
	rows, r.page = r.page[:n], r.page[n:]
	return rows, nil
}

// Limits of the message content that is read ahead.
const (
	prefetchBatches  = 3 // besides the one that is being read
	prefetchMessages = 16
	prefetchBytes    = 192 << 10
)

// loadContent reads the bytes of the first rows, of at least one if there is one, and returns their
// number.
func (v *View) loadContent(ctx context.Context, rows []MessageRow) (n int, err error) {
	ids, size := make([]db.ID, 0, prefetchMessages), 0
	for ; n < len(rows) && n < prefetchMessages; n++ {
		if size += int(min(rows[n].Size, blob.MaxInline)); size > prefetchBytes && n > 0 {
			break
		}
		ids = append(ids, rows[n].BlobID)
	}
	blobs, err := v.store.Blobs.LoadAll(ctx, ids)
	if err != nil {
		return 0, err
	}
	for i, b := range blobs {
		rows[i].Content = b
	}
	return n, nil
}

// singleReadFields are the fields that readMessage reads.
const singleReadFields = FetchDates | FetchBlobID | FetchContent | FetchStructure

// readMessage reads a message and its bytes in one query, for the most common FETCH of mail
// clients. If it returns nothing, reading rows and bytes separately reveals the error.
func (v *View) readMessage(ctx context.Context, uid uint32, want FetchFields) []MessageRow {
	index, known := v.snap.IndexOfUID(uid)
	if !known || v.shared.keywords.IsFull() {
		return nil
	}
	e := v.snap.At(index)
	row := MessageRow{FlagChange: v.flagChange(index, e), Size: e.Size}
	var date, saved int64
	bytes, dst := v.store.Blobs.ScanTargets()
	err := v.store.DB.One(ctx, readMessageQuery.With(v.shared.id, uid), append([]any{&row.Message, &date, &saved, &row.Private, &row.Structure}, dst...)...)
	if err != nil {
		return nil
	}
	if want&FetchStructure == 0 {
		row.Structure = nil
	}
	row.Date, row.SavedAt, row.BlobID, row.Content = db.Time(date), db.Time(saved), bytes.ID, bytes
	return []MessageRow{row}
}

// errPageFull stops reading a page.
var errPageFull = errors.New("the page is full")

// readPage reads the rows of a page. left is the number of UIDs at the end of uids that it did not
// reach because the page was full.
func (v *View) readPage(ctx context.Context, uids []uint32, want FetchFields) (rows []MessageRow, left int, err error) {
	var runs snapshot.SpanBuilder
	known := make([]MessageRow, 0, len(uids))
	for index, e := range v.snap.EachOf(uids) {
		runs.Add(index, e.UID)
		known = append(known, MessageRow{FlagChange: v.flagChange(index, e), Size: e.Size})
	}
	if want == 0 {
		return known, 0, nil
	}
	rows = known[:0] // rows that are found move to the front
	var row MessageRow
	var date, saved int64
	ranges, list, dst := want.queries(&row, []any{&row.UID, &row.Message, &date, &saved})
	bytes := 0
	for p := range uidBatches(runs.Spans) {
		err := v.store.DB.Each(ctx, p.statement(ranges, list, v.shared.id), func(r db.Row) error {
			row.Envelope, row.Structure, row.referenceKeys = nil, nil, nil
			if err := r.Scan(dst...); err != nil {
				return err
			}
			for len(known) > 0 && known[0].UID < row.UID {
				known = known[1:]
			}
			if len(known) == 0 || known[0].UID != row.UID {
				return nil
			}
			row.FlagChange, row.Size = known[0].FlagChange, known[0].Size
			row.Date, row.SavedAt = db.Time(date), db.Time(saved)
			known = known[1:]
			rows = append(rows, row)
			if bytes += len(row.Envelope) + len(row.Structure) + len(row.referenceKeys); bytes > fetchPageBytes {
				return errPageFull
			}
			return nil
		})
		if errors.Is(err, errPageFull) {
			at, _ := slices.BinarySearch(uids, rows[len(rows)-1].UID)
			return rows, len(uids) - at - 1, v.fillThreads(ctx, want, rows)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return rows, 0, v.fillThreads(ctx, want, rows)
}

// OpenMessage opens the bytes of a message. It returns a fault.NotFound if they are gone, and a
// fault.Denied if the message is private. The caller must Close the reader.
func (s *Folders) OpenMessage(ctx context.Context, message db.ID) (*blob.Reader, error) {
	var id db.ID
	var private bool
	err := s.DB.One(ctx, messageBlobQuery.With(message), &id, &private)
	if errors.Is(err, db.ErrNoRow) {
		return nil, messageExpungedError()
	}
	if err != nil {
		return nil, err
	}
	if private {
		return nil, privateMessageError()
	}
	return openBlob(ctx, s.Blobs, message, id)
}

// MessageIndex returns the index of a message that Fetch returned with FetchStructure. It reads the
// bytes only if the stored index can't be decoded or belongs to other bytes.
func (s *Folders) MessageIndex(ctx context.Context, r *MessageRow) (*message.Structure, error) {
	if index := message.DecodeStructure(r.Structure, int64(r.Size)); index != nil {
		return index, nil
	}
	in, err := openBlob(ctx, s.Blobs, r.Message, r.BlobID)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	index, _, err := message.ScanReader(in.All())
	return index, err
}

// Envelope returns the ENVELOPE of a message that Fetch returned with FetchEnvelope. It reads the
// bytes only if the stored envelope is invalid.
func (s *Folders) Envelope(ctx context.Context, r *MessageRow) ([]byte, error) {
	if message.IsEnvelope(r.Envelope) {
		return r.Envelope, nil
	}
	in, err := openBlob(ctx, s.Blobs, r.Message, r.BlobID)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	h, err := readHeader(in)
	return message.AppendEnvelope(nil, h), err
}
