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

// CapturedMessage is what one transaction would have delivered to a host.
type CapturedMessage struct {
	ID         db.ID // increases with the time of capture
	Message    db.ID // id of the outbound_message
	Sender     string
	Recipients []string
	Size       int64

	blob      db.ID
	structure []byte
}

var (
	listCapturedQuery = db.PagedSQL(`SELECT id, message, sender, recipients, size, blob, structure FROM captured_message
		WHERE ($4 = '' OR domain = $4) AND {page account = $1}`)
	getCapturedQuery = db.SQL(`SELECT id, message, sender, recipients, size, blob, structure FROM captured_message
		WHERE id = $1 AND account = $2 AND ($3 = '' OR domain = $3)`)
	capturedUpToQuery = db.SQL(`SELECT id, blob FROM captured_message
		WHERE account >= $1 AND account <= $1 AND ($2 = '' OR domain = $2) AND id <= $3 ORDER BY account DESC, id DESC LIMIT $4`)
	pruneCutoffQuery    = db.SQL(`SELECT id FROM captured_message WHERE account >= $1 AND account <= $1 ORDER BY account DESC, id DESC LIMIT 1 OFFSET 1000`)
	capturedExistsQuery = db.SQL(`SELECT id FROM captured_message WHERE id = $1`)
	deleteCapturedQuery = db.SQL(`DELETE FROM captured_message WHERE id = $1`)
)

// deleteBatchSize is how many captured messages are deleted in one commit.
const deleteBatchSize = 100

func scanCapturedMessage(r db.Row) (c CapturedMessage, err error) {
	var to string
	if err := r.Scan(&c.ID, &c.Message, &c.Sender, &to, &c.Size, &c.blob, &c.structure); err != nil {
		return c, err
	}
	if err := json.Unmarshal([]byte(to), &c.Recipients); err != nil {
		return c, fmt.Errorf("reading the recipients of captured message %s: %w", c.ID, err)
	}
	return c, nil
}

// List lists an account's captured messages, newest first. If domain is not "", it lists only those
// from that sender domain.
func (c *Sandbox) List(ctx context.Context, account db.ID, domain string, page db.Page) ([]CapturedMessage, bool, error) {
	return db.ReadPage(ctx, c.DB, listCapturedQuery, page, scanCapturedMessage, account, domain)
}

// Get returns one captured message, or fault.NotFound.
func (c *Sandbox) Get(ctx context.Context, account db.ID, domain string, id db.ID) (CapturedMessage, error) {
	found, err := db.All(ctx, c.DB, getCapturedQuery.With(id, account, domain), scanCapturedMessage)
	if err == nil && len(found) == 0 {
		err = notFoundError()
	}
	if err != nil {
		return CapturedMessage{}, err
	}
	return found[0], nil
}

func notFoundError() error {
	return fault.New(fault.NotFound, "not_found", "There is no captured message with this id.")
}

// Open opens a captured message's content, and returns the index of its parts too. It returns
// fault.NotFound if the message was deleted meanwhile; blob.IsLost reports whether its content is
// lost. The caller must close the reader.
func (c *Sandbox) Open(ctx context.Context, m CapturedMessage) (*message.Structure, *blob.Reader, error) {
	b, err := c.Blobs.Load(ctx, m.blob)
	if errors.Is(err, blob.ErrNotExist) && errors.Is(c.DB.One(ctx, capturedExistsQuery.With(m.ID), new(db.ID)), db.ErrNoRow) {
		return nil, nil, notFoundError()
	}
	var r *blob.Reader
	if err == nil {
		r, err = b.Open(ctx)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("captured message %s: %w", m.ID, err)
	}
	index, err := message.LoadStructure(m.structure, b.Size, r.All())
	if err != nil {
		_ = r.Close() // only read
		return nil, nil, fmt.Errorf("scanning captured message %s: %w", m.ID, err)
	}
	return index, r, nil
}

// Clear deletes an account's messages captured up to now; domain is as in List.
func (c *Sandbox) Clear(ctx context.Context, account db.ID, domain string) error {
	return c.deleteUpTo(ctx, account, domain, c.DB.NewID())
}

// prune deletes the messages beyond MaxCapturedMessages, which is the OFFSET of pruneCutoffQuery.
func (c *Sandbox) prune(ctx context.Context, account db.ID) error {
	var last db.ID
	err := c.DB.One(ctx, pruneCutoffQuery.With(account), &last)
	if errors.Is(err, db.ErrNoRow) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.deleteUpTo(ctx, account, "", last)
}

// deleteUpTo deletes the messages captured up to an id, inclusive.
func (c *Sandbox) deleteUpTo(ctx context.Context, account db.ID, domain string, upTo db.ID) error {
	for {
		var ids, blobs []db.ID
		err := c.DB.Each(ctx, capturedUpToQuery.With(account, domain, upTo, deleteBatchSize), func(r db.Row) error {
			var id, blob db.ID
			err := r.Scan(&id, &blob)
			ids, blobs = append(ids, id), append(blobs, blob)
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		err = c.DB.Write(ctx, account, &db.Mutation{Apply: func(b *db.Batch) {
			for i := range ids {
				b.Queue(deleteCapturedQuery.With(ids[i]))
				b.Queue(blob.DeleteStatement(blobs[i]))
			}
		}})
		if err != nil || len(ids) < deleteBatchSize {
			return err
		}
	}
}
