// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// A message keeps its id when it is moved or copied within its mailbox, as long as a folder shows
// it.

// StoredMessage is a message of a mailbox, with the folders that show it.
type StoredMessage struct {
	ID           db.ID
	Mailbox      db.ID
	Outbound     db.ID  // the outbound_message that it is a delivery of; 0 for none
	Thread       string // "" for none, as for a message that a client appended
	CheckResults string // as summary.CheckResults has them
	Size         int64
	Received     bool            // false for messages that a client, or a migration, added
	Summary      summary.Summary // only in lists
	Locations    []Location      // at least one, at most MaxLocations
}

// Location is a folder that shows a message.
type Location struct {
	Folder   string // its name
	UID      uint32
	Flags    Flags
	Keywords []string
	Date     time.Time // internal date
}

// MaxLocations is how many locations of a message are returned.
const MaxLocations = 20

var (
	storedMessageQuery = db.SQL(`SELECT id, outbound, thread_id, check_results, size FROM message WHERE id = $1 AND mailbox = $2`)
	locationsQuery     = db.SQL(`SELECT f.message, d.name, f.uid, f.flags, f.keywords, f.internal_date
		FROM folder_message f JOIN folder d ON d.id = f.folder
		WHERE f.message ` + inList)
	messagePartsQuery = db.SQL(`SELECT blob, structure, private FROM message WHERE id = $1`)
)

// Message returns a message of a mailbox, without its Summary. It returns a fault.NotFound if no
// folder shows it.
func (s *Folders) Message(ctx context.Context, mailbox, id db.ID) (StoredMessage, error) {
	k := StoredMessage{Mailbox: mailbox}
	err := s.DB.One(ctx, storedMessageQuery.With(id, mailbox), &k.ID, &k.Outbound, &k.Thread, &k.CheckResults, &k.Size)
	if err == nil {
		err = s.LoadLocations(ctx, []*StoredMessage{&k})
	}
	if errors.Is(err, db.ErrNoRow) || err == nil && len(k.Locations) == 0 {
		err = fault.New(fault.NotFound, "not_found", "There is no message with this id.")
	}
	return k, err
}

// LoadLocations fills in the Locations of messages. A message that was expunged just now has none.
func (s *Folders) LoadLocations(ctx context.Context, all []*StoredMessage) error {
	for some := range slices.Chunk(all, db.InListSize) {
		byID := map[db.ID]*StoredMessage{}
		for _, k := range some {
			byID[k.ID] = k
		}
		err := s.DB.Each(ctx, locationsQuery.With(db.InListArgs(len(some), func(i int) any { return some[i].ID })...), func(r db.Row) error {
			var id db.ID
			var p Location
			var flags, date int64
			var keywords string
			if err := r.Scan(&id, &p.Folder, &p.UID, &flags, &keywords, &date); err != nil {
				return err
			}
			p.Flags, p.Keywords, p.Date = Flags(flags), strings.Fields(keywords), db.Time(date)
			if k := byID[id]; len(k.Locations) < MaxLocations {
				k.Locations = append(k.Locations, p)
			}
			return nil
		})
		if err != nil {
			return err
		}
		for _, k := range some {
			slices.SortFunc(k.Locations, func(a, b Location) int { return cmp.Or(cmp.Compare(a.Folder, b.Folder), cmp.Compare(a.UID, b.UID)) })
		}
	}
	return nil
}

// OpenParts is the function OpenParts for the messages of these Folders.
func (s *Folders) OpenParts(ctx context.Context, id db.ID) (*message.Structure, *blob.Reader, error) {
	return OpenParts(ctx, s.Blobs, id)
}

// OpenParts opens the bytes of a message with the index of its parts. It returns a fault.NotFound
// if they are gone, and a fault.Denied if the message is private. The caller must Close the reader.
func OpenParts(ctx context.Context, blobs *blob.Store, id db.ID) (*message.Structure, *blob.Reader, error) {
	var at db.ID
	var structure []byte
	var private bool
	err := blobs.DB.One(ctx, messagePartsQuery.With(id), &at, &structure, &private)
	if errors.Is(err, db.ErrNoRow) {
		return nil, nil, messageExpungedError()
	}
	if err != nil {
		return nil, nil, err
	}
	if private {
		return nil, nil, privateMessageError()
	}
	r, err := openBlob(ctx, blobs, id, at)
	if err != nil {
		return nil, nil, err
	}
	index, err := message.LoadStructure(structure, r.Size(), r.All())
	if err != nil {
		_ = r.Close() // nothing was written
		return nil, nil, fmt.Errorf("scanning message %s: %w", id, err)
	}
	return index, r, nil
}

// CodeMessageGone is the fault code for a message that was expunged meanwhile.
const CodeMessageGone = "message_gone"

func messageExpungedError() error {
	return fault.New(fault.NotFound, CodeMessageGone, "The message was expunged.")
}

// privateMessageError is returned to callers that read messages without the mailbox's own
// credentials.
func privateMessageError() error {
	return fault.New(fault.Denied, "service_message", "The service has written this to its recipient alone: a mail program shows it.")
}

// openBlob opens the bytes of a message that existed a moment ago.
func openBlob(ctx context.Context, blobs *blob.Store, message, id db.ID) (r *blob.Reader, err error) {
	b, err := blobs.Load(ctx, id)
	if errors.Is(err, blob.ErrNotExist) {
		switch gone := blobs.DB.One(ctx, messagePartsQuery.With(message), new(db.ID), new([]byte), new(bool)); {
		case errors.Is(gone, db.ErrNoRow):
			return nil, messageExpungedError()
		case gone != nil:
			return nil, gone
		}
	}
	if err == nil {
		r, err = b.Open(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("message %s: %w", message, err)
	}
	return r, nil
}
