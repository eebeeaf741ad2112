// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

var setAnswers = db.SQL(`UPDATE message SET answers = $2 WHERE id = $1`)

// answersVersion begins the stored form, so that "none" is not empty.
const answersVersion = 1

// answersOf returns what a message says that it answers (RFC 5256 §3), in its
// stored form: the keys of the Message-IDs in References, or else of the first
// in In-Reply-To.
func answersOf(h message.Header) []byte {
	ids := message.ParseMessageIDs(h.Text("References"))
	if len(ids) == 0 {
		ids = message.ParseMessageIDs(h.Text("In-Reply-To"))
		ids = ids[:min(len(ids), 1)]
	}
	b := append(make([]byte, 0, 1+8*len(ids)), answersVersion)
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, uint64(messageKey(id)))
	}
	return b
}

// messageKey is what a Message-ID is compared by, however it is quoted.
func messageKey(id string) int64 {
	if strings.ContainsAny(id, `"\`) {
		id = strings.NewReplacer(`"`, "", `\`, "").Replace(id)
	}
	return thread.Key(id)
}

// decodeAnswers decodes the stored form. ok is false if there is none.
func decodeAnswers(b []byte) (keys []int64, ok bool) {
	if len(b) == 0 || b[0] != answersVersion {
		return nil, false
	}
	for b = b[1:]; len(b) >= 8; b = b[8:] {
		keys = append(keys, int64(binary.BigEndian.Uint64(b)))
	}
	return keys, true
}

// How many messages are read, and written, at once by describeAnswers.
const (
	answersRead  = 16
	answersWrite = 512
)

// describeAnswers reads what messages answer that were stored without that, and
// notes it. Nothing is noted of those that can't be read, which keep nobody from
// the others.
func (v *View) describeAnswers(ctx context.Context, uids []uint32) error {
	type unknown struct{ message, blob db.ID }
	var all []unknown
	err := v.Fetch(ctx, uids, WantAnswers, func(r *Row) error {
		if _, ok := decodeAnswers(r.Answers); !ok {
			all = append(all, unknown{r.Message, r.Blob})
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	unread := 0
	for part := range slices.Chunk(all, answersWrite) {
		var found []db.Statement
		for some := range slices.Chunk(part, answersRead) {
			blobs := make([]db.ID, len(some))
			for i := range some {
				blobs[i] = some[i].blob
			}
			loaded, err := v.store.Blobs.LoadAll(ctx, blobs)
			if err != nil {
				return err
			}
			for i, b := range loaded {
				answers, err := answered(ctx, b)
				if err == nil {
					found = append(found, setAnswers.With(some[i].message, answers))
					continue
				}
				if !blob.Lost(err) {
					return fmt.Errorf("reading what message %s answers: %w", some[i].message, err)
				}
				if unread++; unread <= toldUnread {
					v.store.Log.Error("reading what a message answers", "folder", v.shared.id, "message", some[i].message, "error", err)
				}
			}
		}
		err := v.store.DB.Write(ctx, v.row.Mailbox, &db.Job{Guard: func(b *db.Batch) {
			b.Queue(mailbox.Hold(v.row.Mailbox))
			for _, s := range found {
				b.Queue(s)
			}
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// answered reads what a message answers.
func answered(ctx context.Context, b *blob.Blob) ([]byte, error) {
	if b == nil {
		return nil, blob.ErrNotExist
	}
	r, err := b.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // only read
	h, err := headerOf(r)
	return answersOf(h), err
}

// headerOf reads a header, as much of it as we take.
func headerOf(r *blob.Reader) (message.Header, error) {
	h, err := message.ReadHeader(bufio.NewReader(r.All()))
	if fault.Is(err, fault.TooLarge) {
		err = nil
	}
	return h, err
}
