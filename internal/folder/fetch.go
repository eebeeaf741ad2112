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
	"github.com/mailstead/mailstead/internal/message"
)

// Want says what Fetch has to read; UID, sequence number, flags, keywords,
// mod-sequence and size come always and cost no SQL.
type Want uint8

// What rows may hold beside.
const (
	WantDates     Want = 1 << iota // Date and SavedAt
	WantEnvelope                   // Envelope
	WantStructure                  // Structure
	WantBlob                       // Blob
	WantBytes                      // Bytes, and Blob
	WantThread                     // Thread
	WantAnswers                    // Answers, and Envelope
)

// Row is a message as Fetch gives it.
type Row struct {
	FlagChange           // Seq, UID, Flags, Keywords, ModSeq as the session knows them
	Size       uint32    // bytes
	Message    db.ID     // with any Want
	Date       time.Time // internal date
	SavedAt    time.Time // when it came into this folder (RFC 8514)
	Envelope   []byte
	Structure  []byte
	Thread     string     // of its account, as InThread has it; "" for none
	Answers    []byte     // answersOf its header; empty if that was not stored
	Blob       db.ID      // for blob.Store.Load
	Bytes      *blob.Blob // nil if it is gone
	Private    bool       // as Incoming has it; with any Want but WantDates and WantThread
}

// What is read of rows alone, and with the message's envelope, structure or
// both.
var (
	readRows = db.SQL(`SELECT uid, message, internal_date, saved_at FROM folder_message
		WHERE folder = $3 AND uid BETWEEN $1 AND $2 ORDER BY uid`)
	readRowsList = db.SQL(`SELECT uid, message, internal_date, saved_at FROM folder_message
		WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY uid`)
	readBlobs = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`)
	readBlobsList = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY f.uid`)
	readEnvelopes = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`)
	readEnvelopesList = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY f.uid`)
	readStructures = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.structure
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`)
	readStructuresList = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.structure
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY f.uid`)
	readAll = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope, m.structure
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`)
	readAllList = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope, m.structure
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY f.uid`)
	readAnswers = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope, m.answers
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $3 AND f.uid BETWEEN $1 AND $2 ORDER BY f.uid`)
	readAnswersList = db.SQL(`SELECT f.uid, f.message, f.internal_date, f.saved_at, m.blob, m.private, m.envelope, m.answers
		FROM folder_message f JOIN message m ON m.id = f.message
		WHERE f.folder = $17 AND f.uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ORDER BY f.uid`)
	// readWhole reads one message with its bytes.
	readWhole = db.SQL(`SELECT f.message, f.internal_date, f.saved_at, m.private, m.structure, b.id, b.size, b.file, b.bytes
		FROM folder_message f JOIN message m ON m.id = f.message JOIN blob b ON b.id = m.blob
		WHERE f.folder = $1 AND f.uid = $2`)
	findBlob = db.SQL(`SELECT blob, private FROM message WHERE id = $1`)
)

// Bounds of a page: a read transaction must be short, and a page fit in memory.
const (
	fetchPage  = 1_000   // messages
	fetchBytes = 2 << 20 // of envelopes and structures
)

// columns returns the queries that read what is wanted, and adds the places to
// scan it into.
func (want Want) columns(row *Row, dst []any) (ranges, list *db.Query, _ []any) {
	switch {
	case want&WantAnswers != 0:
		return readAnswers, readAnswersList, append(dst, &row.Blob, &row.Private, &row.Envelope, &row.Answers)
	case want&(WantEnvelope|WantStructure) == WantEnvelope|WantStructure:
		return readAll, readAllList, append(dst, &row.Blob, &row.Private, &row.Envelope, &row.Structure)
	case want&WantStructure != 0:
		return readStructures, readStructuresList, append(dst, &row.Blob, &row.Private, &row.Structure)
	case want&WantEnvelope != 0:
		return readEnvelopes, readEnvelopesList, append(dst, &row.Blob, &row.Private, &row.Envelope)
	case want&(WantBlob|WantBytes) != 0:
		return readBlobs, readBlobsList, append(dst, &row.Blob, &row.Private)
	}
	return readRows, readRowsList, dst
}

// Fetch calls f with each of the messages, which must be in rising order of
// UID. No cursor and no lock is held while f runs, so that it may write to a
// slow client, but it may not Sync the View; the Row is f's until it returns. A
// message that another session expunged meanwhile is left out, if its row was
// needed; ones that the session does not know always are.
func (v *View) Fetch(ctx context.Context, uids []uint32, want Want, f func(*Row) error) error {
	r := rowReader{v: v, uids: uids, want: want, limit: fetchPage}
	if v.shared.words.isFull() {
		r.limit = KeywordsPage
	} else if want == 0 {
		var row Row
		for index, e := range v.snap.pick(uids) {
			row = Row{FlagChange: v.flagChange(index, e), Size: e.size}
			if err := f(&row); err != nil {
				return err
			}
		}
		return nil
	}
	defer func() { v.missed = v.missed || r.missed }()
	for rows, err := range r.all(ctx) {
		if err != nil {
			return err
		}
		for i := range rows {
			if err := f(&rows[i]); err != nil {
				return err
			}
			rows[i].Bytes = nil
		}
	}
	return nil
}

// rowReader reads rows for Fetch.
type rowReader struct {
	v      *View
	uids   []uint32 // of which no rows were read yet
	want   Want
	limit  int
	page   []Row // of which no bytes were read yet
	missed bool  // some row that the session knows was not there
}

// all gives the rows, some at a time. The next are read while these are looked
// at, which is to say mostly while they go to the client.
func (r *rowReader) all(ctx context.Context) iter.Seq2[[]Row, error] {
	return func(yield func([]Row, error) bool) {
		if rows, err := r.next(ctx); !yield(rows, err) || err != nil || !r.more() {
			return
		}
		waiting := 0
		if r.want&WantBytes != 0 {
			waiting = groupsAhead
		}
		type group struct {
			rows []Row
			err  error
		}
		ahead, done := make(chan group, waiting), make(chan struct{})
		go func() {
			defer close(ahead)
			for r.more() {
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
			for range ahead { // until nothing uses the view any more
			}
		}()
		for g := range ahead {
			if !yield(g.rows, g.err) {
				return
			}
		}
	}
}

// more reports whether there may be more rows.
func (r *rowReader) more() bool { return len(r.uids) > 0 || len(r.page) > 0 }

// next reads some rows, perhaps none.
func (r *rowReader) next(ctx context.Context) (rows []Row, err error) {
	if r.want|wholeRow == wholeRow && r.want&WantBytes != 0 && len(r.page) == 0 && len(r.uids) == 1 {
		if rows := r.v.readOne(ctx, r.uids[0], r.want); rows != nil {
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
		r.missed = r.missed || r.want != 0 && len(rows) < read
		r.page, r.uids = rows, r.uids[read:]
	}
	n := len(r.page)
	if r.want&WantBytes != 0 {
		if n, err = r.v.loadBytes(ctx, r.page); err != nil {
			return nil, err
		}
	}
	rows, r.page = r.page[:n], r.page[n:]
	return rows, nil
}

// Bounds of what is read of the bytes of messages before they are asked for.
const (
	groupsAhead   = 3 // beside the one that is being read
	groupMessages = 16
	groupBytes    = 192 << 10
)

// loadBytes reads the bytes of the first rows, at least one's if there is one,
// and returns of how many.
func (v *View) loadBytes(ctx context.Context, rows []Row) (n int, err error) {
	ids, size := make([]db.ID, 0, groupMessages), 0
	for ; n < len(rows) && n < groupMessages; n++ {
		if size += int(min(rows[n].Size, blob.Inline)); size > groupBytes && n > 0 {
			break
		}
		ids = append(ids, rows[n].Blob)
	}
	blobs, err := v.store.Blobs.LoadAll(ctx, ids)
	if err != nil {
		return 0, err
	}
	for i, b := range blobs {
		rows[i].Bytes = b
	}
	return n, nil
}

// wholeRow is what readOne reads.
const wholeRow = WantDates | WantBlob | WantBytes | WantStructure

// readOne reads a message and its bytes at once, as mail programs ask for most of
// them. If it returns none, what is wrong shows when they are read one by one.
func (v *View) readOne(ctx context.Context, uid uint32, want Want) []Row {
	index, known := v.snap.index(uid)
	if !known || v.shared.words.isFull() {
		return nil
	}
	e := v.snap.at(index)
	row := Row{FlagChange: v.flagChange(index, e), Size: e.size}
	var date, saved int64
	bytes, dst := v.store.Blobs.Found()
	err := v.store.DB.One(ctx, readWhole.With(v.shared.id, uid), append([]any{&row.Message, &date, &saved, &row.Private, &row.Structure}, dst...)...)
	if err != nil {
		return nil
	}
	if want&WantStructure == 0 {
		row.Structure = nil
	}
	row.Date, row.SavedAt, row.Blob, row.Bytes = db.Time(date), db.Time(saved), bytes.ID, bytes
	return []Row{row}
}

// errFull ends the reading of a page.
var errFull = errors.New("the page is full")

// readPage reads the rows of a page. left is how many of its UIDs, at its end,
// it did not come to because the page was full.
func (v *View) readPage(ctx context.Context, uids []uint32, want Want) (rows []Row, left int, err error) {
	var runs spans
	known := make([]Row, 0, len(uids))
	for index, e := range v.snap.pick(uids) {
		runs.add(index, e.uid)
		known = append(known, Row{FlagChange: v.flagChange(index, e), Size: e.size})
	}
	if want == 0 {
		return known, 0, nil
	}
	rows = known[:0] // those that are found move to the front
	var row Row
	var date, saved int64
	ranges, list, dst := want.columns(&row, []any{&row.UID, &row.Message, &date, &saved})
	bytes := 0
	for p := range pieces(runs.list) {
		err := v.store.DB.Each(ctx, p.with(ranges, list, v.shared.id), func(r db.Row) error {
			row.Envelope, row.Structure, row.Answers = nil, nil, nil
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
			if bytes += len(row.Envelope) + len(row.Structure) + len(row.Answers); bytes > fetchBytes {
				return errFull
			}
			return nil
		})
		if errors.Is(err, errFull) {
			at, _ := slices.BinarySearch(uids, rows[len(rows)-1].UID)
			return rows, len(uids) - at - 1, v.threadsIf(ctx, want, rows)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return rows, 0, v.threadsIf(ctx, want, rows)
}

// OpenMessage opens the bytes of a message, or returns a fault.NotFound when
// they are gone, or a fault.Denied if it is private. The caller must Close the
// reader.
func (s *Store) OpenMessage(ctx context.Context, message db.ID) (*blob.Reader, error) {
	var id db.ID
	var private bool
	err := s.DB.One(ctx, findBlob.With(message), &id, &private)
	if errors.Is(err, db.ErrNoRow) {
		return nil, expungedMessage()
	}
	if err != nil {
		return nil, err
	}
	if private {
		return nil, privateMessage()
	}
	return s.openBlob(ctx, message, id)
}

// Index returns the index of a message that Fetch gave with WantStructure. Its
// bytes are only read if what is stored can't be decoded, or is of others.
func (s *Store) Index(ctx context.Context, r *Row) (*message.Index, error) {
	if index := message.StoredIndex(r.Structure, int64(r.Size)); index != nil {
		return index, nil
	}
	in, err := s.openBlob(ctx, r.Message, r.Blob)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	return indexOf(in, nil)
}

// Envelope returns the ENVELOPE of a message that Fetch gave with WantEnvelope. Its
// bytes are only read if what is stored is none.
func (s *Store) Envelope(ctx context.Context, r *Row) ([]byte, error) {
	if message.IsEnvelope(r.Envelope) {
		return r.Envelope, nil
	}
	in, err := s.openBlob(ctx, r.Message, r.Blob)
	if err != nil {
		return nil, err
	}
	defer in.Close() //nolint:errcheck // only read
	h, err := headerOf(in)
	return message.AppendEnvelope(nil, h), err
}
