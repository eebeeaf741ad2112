// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
)

// Captured is what one transaction would have brought to a host.
type Captured struct {
	ID         db.ID // in the order of their capture
	Message    db.ID // the outbound_message
	Sender     string
	Recipients []string
	Size       int64

	blob      db.ID
	structure []byte
}

var (
	listCaptured = db.Paged(`SELECT id, message, sender, recipients, size, blob, structure FROM captured
		WHERE ($4 = '' OR domain = $4) AND {page account = $1}`)
	oneCaptured = db.SQL(`SELECT id, message, sender, recipients, size, blob, structure FROM captured
		WHERE id = $1 AND account = $2 AND ($3 = '' OR domain = $3)`)
	someCaptured = db.SQL(`SELECT id, blob FROM captured
		WHERE account >= $1 AND account <= $1 AND ($2 = '' OR domain = $2) AND id <= $3 ORDER BY account DESC, id DESC LIMIT $4`)
	lastCaptured = db.SQL(`SELECT id FROM captured WHERE account >= $1 AND account <= $1 ORDER BY account DESC, id DESC LIMIT 1 OFFSET 1000`)
	isCaptured   = db.SQL(`SELECT id FROM captured WHERE id = $1`)
	dropCaptured = db.SQL(`DELETE FROM captured WHERE id = $1`)
)

// dropChunk is how many captured messages are deleted in one commit.
const dropChunk = 100

func scanCaptured(r db.Row) (c Captured, err error) {
	var to string
	if err := r.Scan(&c.ID, &c.Message, &c.Sender, &to, &c.Size, &c.blob, &c.structure); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(to), &c.Recipients); err != nil {
		return c, fmt.Errorf("reading the recipients of captured message %s: %w", c.ID, err)
	}
	return c, nil
}

// List lists what was captured of an account's mail, newest first; domain is ""
// or that of the only senders to see.
func (c *Capture) List(ctx context.Context, account db.ID, domain string, page db.Page) ([]Captured, bool, error) {
	return db.ReadPage(ctx, c.DB, listCaptured, page, scanCaptured, account, domain)
}

// Get returns one, or fault.NotFound.
func (c *Capture) Get(ctx context.Context, account db.ID, domain string, id db.ID) (Captured, error) {
	found, err := db.All(ctx, c.DB, oneCaptured.With(id, account, domain), scanCaptured)
	if err == nil && len(found) == 0 {
		err = notCaptured()
	}
	if err != nil {
		return Captured{}, err
	}
	return found[0], nil
}

func notCaptured() error {
	return fault.New(fault.NotFound, "not_found", "There is no captured message with this id.")
}

// Open opens the bytes of a captured message with the index of its parts, or
// returns fault.NotFound when it was cleared meanwhile; blob.Lost tells whether its
// bytes are. The caller must Close the reader.
func (c *Capture) Open(ctx context.Context, m Captured) (*message.Index, *blob.Reader, error) {
	b, err := c.Blobs.Load(ctx, m.blob)
	if errors.Is(err, blob.ErrNotExist) && errors.Is(c.DB.One(ctx, isCaptured.With(m.ID), new(db.ID)), db.ErrNoRow) {
		return nil, nil, notCaptured()
	}
	var r *blob.Reader
	if err == nil {
		r, err = b.Open(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("captured message %s: %w", m.ID, err)
	}
	index := message.StoredIndex(m.structure, b.Size)
	if index == nil {
		if index, _, err = message.ScanReader(r.All()); err != nil {
			_ = r.Close() // only read
			return nil, nil, fmt.Errorf("scanning captured message %s: %w", m.ID, err)
		}
	}
	return index, r, nil
}

// Clear deletes what was captured of an account's mail up to now.
func (c *Capture) Clear(ctx context.Context, account db.ID, domain string) error {
	return c.drop(ctx, account, domain, c.DB.NewID())
}

// prune deletes what is beyond MaxCaptured, the OFFSET of lastCaptured.
func (c *Capture) prune(ctx context.Context, account db.ID) error {
	var last db.ID
	err := c.DB.One(ctx, lastCaptured.With(account), &last)
	if errors.Is(err, db.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.drop(ctx, account, "", last)
}

// drop deletes what was captured up to an id.
func (c *Capture) drop(ctx context.Context, account db.ID, domain string, upTo db.ID) error {
	for {
		var ids, blobs []db.ID
		err := c.DB.Each(ctx, someCaptured.With(account, domain, upTo, dropChunk), func(r db.Row) error {
			var id, blob db.ID
			err := r.Scan(&id, &blob)
			ids, blobs = append(ids, id), append(blobs, blob)
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		err = c.DB.Write(ctx, account, &db.Job{Apply: func(b *db.Batch) {
			for i := range ids {
				b.Queue(dropCaptured.With(ids[i]))
				b.Queue(blob.Remove(blobs[i]))
			}
		}})
		if err != nil || len(ids) < dropChunk {
			return err
		}
	}
}
