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
	"github.com/mailstead/mailstead/internal/folder/snapshot"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/notify"
)

var (
	// reserveDeliveryUIDQuery reserves a UID in the folder with a special use, or else in INBOX.
	reserveDeliveryUIDQuery = db.SQL(`UPDATE folder SET uid_next = uid_next + 1, modseq = modseq + 1,
			messages = messages + 1, unseen = unseen + $3, bytes = bytes + $4, surcharge = surcharge + $5, surcharge_mark = surcharge_mark + 1
		WHERE id = COALESCE((SELECT id FROM folder WHERE mailbox = $1 AND special_use = $2 AND special_use <> ''),
			(SELECT id FROM folder WHERE mailbox = $1 AND name = 'INBOX'))
		RETURNING id, uidvalidity, uid_next - 1, modseq`)
	insertMessageQuery = db.SQL(`INSERT INTO message (id, mailbox, blob, size, outbound, message_id, envelope, structure,
			account, domain, thread_id, reference, arrival_id, check_results, reply_references, private)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)
	insertFolderMessageQuery = db.SQL(`INSERT INTO folder_message (folder, uid, message, flags, keywords, modseq, size, internal_date, saved_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`)
	// failQuery makes the batch fail after an error while statements were queued.
	failQuery = db.SQL(`SELECT 1`)
)

// maxDeliverTries is how many times filing a message is retried because its special-use folder was
// just deleted.
const maxDeliverTries = 5

// Delivery is a message to file.
type Delivery struct {
	Mailbox    db.ID
	SpecialUse string // Junk, Sent and so on; "" for INBOX, which is also the fallback
	// Blob holds the bytes; it gets its row here. Several Deliveries may share one Blob. The caller
	// discards it if filing fails.
	Blob *blob.Blob
	Metadata
	Outbound     db.ID // the outbound_message that this is a delivery of; 0 for none
	Thread       ThreadRef
	CheckResults string // authentication results as summary.CheckResults; "" for none
	Private      bool   // whether only a View may return its content
	Flags        Flags
	Keywords     []string
	Date         time.Time // internal date; zero for now
	// NewEvent, if not nil, returns the event to record in the same commit. It may be called more
	// than once, from another goroutine.
	NewEvent func(MessageRef) event.RecordParams
	// Jobs are mutations of other packages in the same commit. If one is declined, the whole commit
	// is.
	Jobs []*db.Mutation
}

// MessageRef is where a message was filed.
type MessageRef struct {
	Folder      db.ID
	Message     db.ID
	UIDValidity uint32
	UID         uint32
	ModSeq      uint64
}

// Deliver files a message and returns once it is durable. It may exceed the quota. It returns a
// fault.NotFound for a mailbox without folders.
func (s *Folders) Deliver(ctx context.Context, in Delivery) (MessageRef, error) {
	filed, err := s.DeliverAll(ctx, []Delivery{in})
	if err != nil {
		return MessageRef{}, err
	}
	return filed[0], nil
}

// DeliverAll files messages for several recipients in one commit, all of them or none. The results
// are in the order of ins.
func (s *Folders) DeliverAll(ctx context.Context, ins []Delivery) ([]MessageRef, error) {
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
		// Each message needs its own blob row, because the row is deleted with the message.
		if seen[in.Blob.ID] {
			f.blob = s.Blobs.Prepend(in.Blob, nil)
		}
		seen[in.Blob.ID] = true
		f.delivery, filings[i] = in, f
		events = events || in.NewEvent != nil
		with = append(with, in.Jobs...)
	}
	// Mailboxes are locked in the order of their ids.
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
				queueUsageUpdate(b, f.mailbox, f.usage(), &tell)
				b.Queue(reserveDeliveryUIDQuery.With(f.mailbox, f.delivery.SpecialUse, f.unseenCount(), f.size(), f.usage().Overhead)).WithLockKey(f.mailbox).
					One(&f.Folder, &f.UIDValidity, &f.UID, &f.ModSeq).OrFail(none)
			}
		},
		// No statement here returns a row, so on PostgreSQL the commit goes in the same round trip.
		Apply: func(b *db.Batch) {
			for _, f := range filings {
				f.queueInserts(b)
				s.queueEvent(b, f)
			}
		},
		AfterCommit: func() {
			for _, f := range filings {
				s.wakeFolder(f.Folder)
			}
			if events {
				s.Events.WakeSequencer()
			}
			s.wakeQuotaNotifier(tell)
		},
	}
	job := db.Combine(append([]*db.Mutation{own}, with...)...)
	err := errStale
	// On PostgreSQL a chosen folder may be deleted while this waits for its row lock. The retry
	// uses INBOX then.
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

// queueUsageUpdate adds a filed message to the mailbox's usage, regardless of the quota. It sets
// tell if the owner must be told that little quota is left.
func queueUsageUpdate(b *db.Batch, box db.ID, of mailbox.Usage, tell *bool) {
	var one bool
	b.Queue(mailbox.AddUsage(box, of)).WithLockKey(box).Each(func(r db.Row) error {
		err := mailbox.ScanNearlyFull(&one)(r)
		*tell = *tell || one
		return err
	})
}

// wakeQuotaNotifier wakes the goroutine that warns owners of a nearly full quota, if tell is set.
func (s *Folders) wakeQuotaNotifier(tell bool) {
	if tell {
		s.Hub.Wake(notify.Key{Kind: notify.QuotaWarning})
	}
}

// queueEvent queues the caller's event.
func (s *Folders) queueEvent(b *db.Batch, f *pendingMessage) {
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

// pendingMessage is a new message that is not yet in its folder.
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

func (s *Folders) newPendingMessage(mailbox db.ID, u Upload) (*pendingMessage, error) {
	if u.Blob.Size > math.MaxUint32 {
		return nil, fmt.Errorf("a message of %d bytes is beyond what IMAP can tell", u.Blob.Size)
	}
	keywords, err := snapshot.FormatKeywords(u.Keywords)
	if err != nil {
		return nil, err
	}
	f := &pendingMessage{Upload: u, blob: u.Blob, mailbox: mailbox, keywords: keywords, now: db.Micros(s.Now())}
	year := u.Date.UTC().Year()
	switch f.date = db.Micros(u.Date); {
	case u.Date.IsZero(), year < 1, year > 9999: // neither IMAP nor JSON can express it
		f.date = f.now
	case f.date == 0: // 1970-01-01 00:00; stored as 0 it would mean no date
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
	outbound, at, results, private := db.ID(0), ThreadRef{}, "", false
	if f.delivery != nil {
		outbound, at, results, private = f.delivery.Outbound, f.delivery.Thread, f.delivery.CheckResults, f.delivery.Private
	}
	b.Queue(f.blob.InsertStatement())
	b.Queue(insertMessageQuery.With(f.Message, f.mailbox, f.blob.ID, f.size(), outbound, f.MessageID, notNil(f.Envelope), notNil(f.Structure),
		at.Account, at.Domain, at.Thread, at.referenceKey(f.MessageID), at.Arrival, results, notNil(f.ReferenceKeys), private))
	b.Queue(insertFolderMessageQuery.With(f.Folder, f.UID, f.Message, int64(f.Flags&AllFlags), f.keywords, int64(f.ModSeq), f.size(), f.date, f.now))
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// maxIndexDelayFactor is the maximum pause of indexing, as a multiple of its working time, on top
// of its usual pause. At the maximum it uses a twentieth of a processor, otherwise a quarter.
const maxIndexDelayFactor = 16

// IndexDelay returns how long indexing must pause after a batch that took so long. The busier
// filing is, the longer the pause; see notify.LoadGauge.
func (s *Folders) IndexDelay(took time.Duration) time.Duration {
	return s.load.RestTime(s.Now(), took, maxIndexDelayFactor)
}
