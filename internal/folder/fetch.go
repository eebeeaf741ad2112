// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
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
	findBlob = db.SQL(`SELECT blob, private FROM message WHERE id = $1`)
)

// Bounds of a page: a read transaction must be short, and a page fit in memory.
const (
	fetchPage  = 1_000   // messages
	fetchBytes = 4 << 20 // of envelopes and structures
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
// slow client; the Row is f's until it returns. A message that another session
// expunged meanwhile is left out, if its row was needed; ones that the session
// does not know always are.
func (v *View) Fetch(ctx context.Context, uids []uint32, want Want, f func(*Row) error) error {
	limit := fetchPage
	if v.shared.words.isFull() {
		limit = KeywordsPage
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
	for len(uids) > 0 {
		page := uids[:min(len(uids), limit)]
		rows, more, err := v.readPage(ctx, page, want)
		if err == nil {
			err = v.fillKeywords(ctx, len(rows), func(i int) *FlagChange { return &rows[i].FlagChange })
		}
		if err != nil {
			return err
		}
		v.missed = v.missed || want != 0 && len(rows) < len(page)-more
		if want&WantBytes != 0 {
			err = v.withBytes(ctx, rows, f)
		} else {
			for i := range rows {
				if err = f(&rows[i]); err != nil {
					break
				}
			}
		}
		if err != nil {
			return err
		}
		uids = uids[len(page)-more:]
	}
	return nil
}

// withBytes calls f with each of the rows and its bytes. While f has some of
// them, which is to say mostly while they go to the client, the next are read.
func (v *View) withBytes(ctx context.Context, rows []Row, f func(*Row) error) error {
	type group struct {
		to  int
		err error
	}
	loaded := make(chan group, 1)
	load := func(from int) {
		to, err := v.loadBytes(ctx, rows, from)
		loaded <- group{to, err}
	}
	for i := 0; i < len(rows); {
		if i == 0 {
			load(0)
		}
		next := <-loaded
		if next.err != nil {
			return next.err
		}
		reading := next.to < len(rows)
		if reading {
			go load(next.to)
		}
		for ; i < next.to; i++ {
			if err := f(&rows[i]); err != nil {
				if reading {
					<-loaded // it uses the rows
				}
				return err
			}
			rows[i].Bytes = nil
		}
	}
	return nil
}

// aheadBytes bounds what is read of the bytes of messages before they are asked
// for.
const aheadBytes = 512 << 10

// loadBytes reads the bytes of the next rows, at least one's, and returns up
// to which row.
func (v *View) loadBytes(ctx context.Context, rows []Row, from int) (to int, err error) {
	ids, size := make([]db.ID, 0, 16), 0
	for to = from; to < len(rows) && len(ids) < cap(ids); to++ {
		if size += int(min(rows[to].Size, blob.Inline)); size > aheadBytes && to > from {
			break
		}
		ids = append(ids, rows[to].Blob)
	}
	blobs, err := v.store.Blobs.LoadAll(ctx, ids)
	if err != nil {
		return from, err
	}
	for i, b := range blobs {
		rows[from+i].Bytes = b
	}
	return to, nil
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
