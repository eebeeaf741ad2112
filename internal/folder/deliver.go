// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/signal"
)

var (
	// fileInto takes a UID in the folder for a special use, else in INBOX.
	fileInto = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1,
			messages = messages + 1, unseen = unseen + $3, bytes = bytes + $4, surcharge = surcharge + $5, surcharge_mark = surcharge_mark + 1
		WHERE id = COALESCE((SELECT id FROM folder WHERE mailbox = $1 AND special = $2 AND special <> ''),
			(SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX'))
		RETURNING id, uidvalidity, uid_next - 1, modseq`)
	insertMessage = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure,
			account, domain, thread, reference, arrival, verdicts, answers, private)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	insertRow = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	// decline is for what goes wrong while statements are queued.
	decline = db.SQL(`SELECT 1`)
)

// filingTries bounds how often a message is filed anew because the folder for
// its special use was just deleted.
const filingTries = 5

// Incoming is a message to be filed.
type Incoming struct {
	Mailbox db.ID
	Special string // Junk, Sent and so on; "" for INBOX, as when there is no such folder
	// Blob holds the bytes; it gets its row here. Several Incomings may have
	// the same one. The caller discards it if filing fails.
	Blob *blob.Blob
	Description
	Outbound db.ID // the outbound_message that this is a delivery of; 0 for none
	Place    InThread
	Verdicts string // how it was judged, as digest.Verdicts has it; "" for not
	Private  bool   // only a View gives its text
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date; zero for now
	// Event, if not nil, makes the event that is recorded in the same commit.
	// It may be called more than once, from another goroutine.
	Event func(Filed) event.New
	// Also are statements of the same commit.
	Also []db.Statement
	// With are what others do in the same commit; what they decline declines
	// all of it.
	With []*db.Job
}

// Filed is where a message was put.
type Filed struct {
	Folder      db.ID
	Message     db.ID
	UIDValidity uint32
	UID         uint32
	ModSeq      uint64
}

// Deliver files a message and returns once that is durable. It may overrun the
// quota. A mailbox without folders is a fault.NotFound.
func (s *Store) Deliver(ctx context.Context, in Incoming) (Filed, error) {
	filed, err := s.DeliverAll(ctx, []Incoming{in})
	if err != nil {
		return Filed{}, err
	}
	return filed[0], nil
}

// DeliverAll files messages for several recipients in one commit: all of them
// or none. The answers are in the order of ins.
func (s *Store) DeliverAll(ctx context.Context, ins []Incoming) ([]Filed, error) {
	if len(ins) == 0 {
		return nil, nil
	}
	defer s.pace.Begin(s.Now)()
	filings := make([]*filing, len(ins))
	seen := map[db.ID]bool{}
	events := false
	var with []*db.Job
	for i := range ins {
		in := &ins[i]
		f, err := s.newFiling(in.Mailbox, Upload{in.Blob, in.Description, in.Flags, in.Keywords, in.Date})
		if err != nil {
			return nil, err
		}
		// Each message has a blob row of its own, which goes with it.
		if seen[in.Blob.ID] {
			f.blob = s.Blobs.Prepend(in.Blob, nil)
		}
		seen[in.Blob.ID] = true
		f.in, filings[i] = in, f
		events = events || in.Event != nil
		with = append(with, in.With...)
	}
	// Mailboxes are taken in the order of their ids.
	ordered := slices.Clone(filings)
	slices.SortStableFunc(ordered, func(a, b *filing) int { return cmp.Compare(a.mailbox, b.mailbox) })
	tell := false
	own := &db.Job{
		Guard: func(b *db.Batch) {
			tell = false
			for _, f := range ordered {
				none := noFolder()
				if f.in.Special != "" {
					none = errStale
				}
				deposit(b, f.mailbox, f.use(), &tell)
				b.Queue(fileInto.With(f.mailbox, f.in.Special, f.unseen(), f.size(), f.use().Surcharge)).Of(f.mailbox).
					One(&f.Folder, &f.UIDValidity, &f.UID, &f.ModSeq).Else(none)
			}
		},
		// Nothing here has a row to read, so on PostgreSQL the commit goes with it.
		Apply: func(b *db.Batch) {
			for _, f := range filings {
				f.insert(b)
				s.also(b, f)
			}
		},
		AfterCommit: func() {
			for _, f := range filings {
				s.wakeFolder(f.Folder)
			}
			if events {
				s.Events.Wake()
			}
			s.wakeRoom(tell)
		},
	}
	job := db.Join(append([]*db.Job{own}, with...)...)
	err := errStale
	// On PostgreSQL a folder that was chosen may be gone by the time that its
	// row is free: then INBOX is there.
	for n := 0; n < filingTries && errors.Is(err, errStale); n++ {
		err = s.DB.Write(ctx, ordered[0].mailbox, job)
	}
	if errors.Is(err, errStale) {
		err = noFolder()
	}
	if err != nil {
		return nil, err
	}
	answers := make([]Filed, len(filings))
	for i, f := range filings {
		answers[i] = f.Filed
	}
	return answers, nil
}

// deposit counts a message that is filed, whatever room there is. tell is set if
// the owner of the mailbox is to be told that there is little left.
func deposit(b *db.Batch, box db.ID, of mailbox.Use, tell *bool) {
	var one bool
	b.Queue(mailbox.Deposit(box, of)).Of(box).Each(func(r db.Row) error {
		err := mailbox.ToTell(&one)(r)
		*tell = *tell || one
		return err
	})
}

// wakeRoom wakes who tells owners that there is little room left, if one is to
// be told.
func (s *Store) wakeRoom(tell bool) {
	if tell {
		s.Hub.Wake(signal.Key{Kind: signal.Room})
	}
}

// also queues what the caller wants in the same commit.
func (s *Store) also(b *db.Batch, f *filing) {
	for _, also := range f.in.Also {
		b.Queue(also)
	}
	if f.in.Event == nil {
		return
	}
	recorded, err := s.Events.Prepare(f.in.Event(f.Filed))
	if err != nil {
		b.Queue(decline.With()).Each(func(db.Row) error { return err })
		return
	}
	b.Queue(recorded)
}

// filing is a new message on its way into a folder.
type filing struct {
	Filed
	Upload
	blob     *blob.Blob
	mailbox  db.ID
	in       *Incoming // nil for Append
	keywords string
	date     int64
	now      int64
}

func (s *Store) newFiling(mailbox db.ID, u Upload) (*filing, error) {
	if u.Blob.Size > math.MaxUint32 {
		return nil, fmt.Errorf("a message of %d bytes is beyond what IMAP can tell", u.Blob.Size)
	}
	keywords, err := keywordsText(u.Keywords)
	if err != nil {
		return nil, err
	}
	f := &filing{Upload: u, blob: u.Blob, mailbox: mailbox, keywords: keywords, now: db.Micros(s.Now())}
	year := u.Date.UTC().Year()
	switch f.date = db.Micros(u.Date); {
	case u.Date.IsZero(), year < 1, year > 9999: // which neither IMAP nor JSON could tell
		f.date = f.now
	case f.date == 0: // the start of 1970, which stored would be no date
		f.date = 1
	}
	f.Message = s.DB.NewID()
	return f, nil
}

func (f *filing) size() int64 { return f.blob.Size }

func (f *filing) use() mailbox.Use { return mailbox.UseOf(f.size()) }

func (f *filing) unseen() int64 { return int64(f.Flags&Seen ^ Seen) }

// insert queues the rows of a message that has its UID.
func (f *filing) insert(b *db.Batch) {
	outbound, at, verdicts, private := db.ID(0), InThread{}, "", false
	if f.in != nil {
		outbound, at, verdicts, private = f.in.Outbound, f.in.Place, f.in.Verdicts, f.in.Private
	}
	b.Queue(f.blob.Insert())
	b.Queue(insertMessage.With(f.Message, f.mailbox, f.blob.ID, f.size(), outbound, f.MessageID, notNil(f.Envelope), notNil(f.Structure),
		at.Account, at.Domain, at.Thread, at.reference(f.MessageID), at.Arrival, verdicts, notNil(f.Answers), private))
	b.Queue(insertRow.With(f.Folder, f.UID, f.Message, int64(f.Flags&AllFlags), f.keywords, int64(f.ModSeq), f.size(), f.date, f.now))
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
