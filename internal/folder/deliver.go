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
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	// reserveDeliveryUIDQuery takes a UID in the folder for a special use, else in INBOX.
	reserveDeliveryUIDQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1,
			messages = messages + 1, unseen = unseen + $3, bytes = bytes + $4, surcharge = surcharge + $5, surcharge_mark = surcharge_mark + 1
		WHERE id = COALESCE((SELECT id FROM folder WHERE mailbox = $1 AND special = $2 AND special <> ''),
			(SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX'))
		RETURNING id, uidvalidity, uid_next - 1, modseq`)
	insertMessageQuery = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure,
			account, domain, thread, reference, arrival, verdicts, answers, private)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	insertFolderMessageQuery = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	// failQuery is for what goes wrong while statements are queued.
	failQuery = db.SQL(`SELECT 1`)
)

// maxDeliverTries bounds how often a message is filed anew because the folder for
// its special use was just deleted.
const maxDeliverTries = 5

// Delivery is a message to be filed.
type Delivery struct {
	Mailbox    db.ID
	SpecialUse string // Junk, Sent and so on; "" for INBOX, as when there is no such folder
	// Blob holds the bytes; it gets its row here. Several Incomings may have
	// the same one. The caller discards it if filing fails.
	Blob *blob.Blob
	Metadata
	Outbound     db.ID // the outbound_message that this is a delivery of; 0 for none
	Thread       ThreadRef
	CheckResults string // how it was judged, as digest.CheckResults has it; "" for not
	Private      bool   // only a View gives its text
	Flags        Flags
	Keywords     []string
	Date         time.Time // internal date; zero for now
	// NewEvent, if not nil, makes the event that is recorded in the same commit.
	// It may be called more than once, from another goroutine.
	NewEvent func(MessageRef) event.Input
	// Statements are statements of the same commit.
	Statements []db.Statement
	// Jobs are what others do in the same commit; what they decline declines
	// all of it.
	Jobs []*db.Mutation
}

// MessageRef is where a message was put.
type MessageRef struct {
	Folder      db.ID
	Message     db.ID
	UIDValidity uint32
	UID         uint32
	ModSeq      uint64
}

// Deliver files a message and returns once that is durable. It may overrun the
// quota. A mailbox without folders is a fault.NotFound.
func (s *Store) Deliver(ctx context.Context, in Delivery) (MessageRef, error) {
	filed, err := s.DeliverAll(ctx, []Delivery{in})
	if err != nil {
		return MessageRef{}, err
	}
	return filed[0], nil
}

// DeliverAll files messages for several recipients in one commit: all of them
// or none. The answers are in the order of ins.
func (s *Store) DeliverAll(ctx context.Context, ins []Delivery) ([]MessageRef, error) {
	if len(ins) == 0 {
		return nil, nil
	}
	defer s.load.Begin(s.Now)()
	filings := make([]*pendingMessage, len(ins))
	seen := map[db.ID]bool{}
	events := false
	var with []*db.Mutation
	for i := range ins {
		in := &ins[i]
		f, err := s.newPendingMessage(in.Mailbox, Upload{in.Blob, in.Metadata, in.Flags, in.Keywords, in.Date})
		if err != nil {
			return nil, err
		}
		// Each message has a blob row of its own, which goes with it.
		if seen[in.Blob.ID] {
			f.blob = s.Blobs.Prepend(in.Blob, nil)
		}
		seen[in.Blob.ID] = true
		f.delivery, filings[i] = in, f
		events = events || in.NewEvent != nil
		with = append(with, in.Jobs...)
	}
	// Mailboxes are taken in the order of their ids.
	ordered := slices.Clone(filings)
	slices.SortStableFunc(ordered, func(a, b *pendingMessage) int { return cmp.Compare(a.mailbox, b.mailbox) })
	tell := false
	own := &db.Mutation{
		Guard: func(b *db.Batch) {
			tell = false
			for _, f := range ordered {
				none := noFolderError()
				if f.delivery.SpecialUse != "" {
					none = errStale
				}
				queueUsage(b, f.mailbox, f.usage(), &tell)
				b.Queue(reserveDeliveryUIDQuery.With(f.mailbox, f.delivery.SpecialUse, f.unseenCount(), f.size(), f.usage().Overhead)).LockKey(f.mailbox).
					One(&f.Folder, &f.UIDValidity, &f.UID, &f.ModSeq).OrFail(none)
			}
		},
		// Nothing here has a row to read, so on PostgreSQL the commit goes with it.
		Apply: func(b *db.Batch) {
			for _, f := range filings {
				f.queueInserts(b)
				s.queueExtras(b, f)
			}
		},
		AfterCommit: func() {
			for _, f := range filings {
				s.wakeFolder(f.Folder)
			}
			if events {
				s.Events.Wake()
			}
			s.wakeQuotaNotifier(tell)
		},
	}
	job := db.Combine(append([]*db.Mutation{own}, with...)...)
	err := errStale
	// On PostgreSQL a folder that was chosen may be gone by the time that its
	// row is free: then INBOX is there.
	for n := 0; n < maxDeliverTries && errors.Is(err, errStale); n++ {
		err = s.DB.Write(ctx, ordered[0].mailbox, job)
	}
	if errors.Is(err, errStale) {
		err = noFolderError()
	}
	if err != nil {
		return nil, err
	}
	answers := make([]MessageRef, len(filings))
	for i, f := range filings {
		answers[i] = f.MessageRef
	}
	return answers, nil
}

// queueUsage counts a message that is filed, whatever room there is. tell is set if
// the owner of the mailbox is to be told that there is little left.
func queueUsage(b *db.Batch, box db.ID, of mailbox.Usage, tell *bool) {
	var one bool
	b.Queue(mailbox.AddUsage(box, of)).LockKey(box).Each(func(r db.Row) error {
		err := mailbox.ScanNearlyFull(&one)(r)
		*tell = *tell || one
		return err
	})
}

// wakeQuotaNotifier wakes who tells owners that there is little room left, if one is to
// be told.
func (s *Store) wakeQuotaNotifier(tell bool) {
	if tell {
		s.Hub.Wake(notify.Key{Kind: notify.QuotaWarning})
	}
}

// queueExtras queues what the caller wants in the same commit.
func (s *Store) queueExtras(b *db.Batch, f *pendingMessage) {
	for _, also := range f.delivery.Statements {
		b.Queue(also)
	}
	if f.delivery.NewEvent == nil {
		return
	}
	recorded, err := s.Events.RecordStatement(f.delivery.NewEvent(f.MessageRef))
	if err != nil {
		b.Queue(failQuery.With()).Each(func(db.Row) error { return err })
		return
	}
	b.Queue(recorded)
}

// pendingMessage is a new message on its way into a folder.
type pendingMessage struct {
	MessageRef
	Upload
	blob     *blob.Blob
	mailbox  db.ID
	delivery *Delivery // nil for Append
	keywords string
	date     int64
	now      int64
}

func (s *Store) newPendingMessage(mailbox db.ID, u Upload) (*pendingMessage, error) {
	if u.Blob.Size > math.MaxUint32 {
		return nil, fmt.Errorf("a message of %d bytes is beyond what IMAP can tell", u.Blob.Size)
	}
	keywords, err := formatKeywords(u.Keywords)
	if err != nil {
		return nil, err
	}
	f := &pendingMessage{Upload: u, blob: u.Blob, mailbox: mailbox, keywords: keywords, now: db.Micros(s.Now())}
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

func (f *pendingMessage) size() int64 { return f.blob.Size }

func (f *pendingMessage) usage() mailbox.Usage { return mailbox.MessageUsage(f.size()) }

func (f *pendingMessage) unseenCount() int64 { return int64(f.Flags&Seen ^ Seen) }

// queueInserts queues the rows of a message that has its UID.
func (f *pendingMessage) queueInserts(b *db.Batch) {
	outbound, at, verdicts, private := db.ID(0), ThreadRef{}, "", false
	if f.delivery != nil {
		outbound, at, verdicts, private = f.delivery.Outbound, f.delivery.Thread, f.delivery.CheckResults, f.delivery.Private
	}
	b.Queue(f.blob.InsertStatement())
	b.Queue(insertMessageQuery.With(f.Message, f.mailbox, f.blob.ID, f.size(), outbound, f.MessageID, notNil(f.Envelope), notNil(f.Structure),
		at.Account, at.Domain, at.Thread, at.referenceKey(f.MessageID), at.Arrival, verdicts, notNil(f.ReferenceKeys), private))
	b.Queue(insertFolderMessageQuery.With(f.Folder, f.UID, f.Message, int64(f.Flags&AllFlags), f.keywords, int64(f.ModSeq), f.size(), f.date, f.now))
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
