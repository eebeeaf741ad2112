// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
)

// client behaves like a mail client: it applies what the server reports, by sequence number, and
// detects contradictions.
type client struct {
	v     *View
	known []told
}

// told is a message as reported to the client.
type told struct {
	uid   uint32
	flags Flags
	words string
}

func (t told) String() string { return fmt.Sprintf("%d:%d[%s]", t.uid, t.flags, t.words) }

func newClient(ctx context.Context, s *Folders, box db.ID, name string, readOnly bool) (*client, error) {
	v, err := s.Open(ctx, box, name, readOnly)
	if err != nil {
		return nil, err
	}
	c := &client{v: v}
	return c, c.arrived(ctx, v.Len())
}

func (c *client) arrived(ctx context.Context, exists int) error {
	if exists <= len(c.known) {
		return nil
	}
	uids := c.v.Resolve([]Range{{Lo: uint32(len(c.known) + 1), Hi: uint32(exists)}}, false)
	if len(uids) != exists-len(c.known) {
		return fmt.Errorf("%d messages exist, %d are known, %d new", exists, len(c.known), len(uids))
	}
	return c.v.Fetch(ctx, uids, 0, func(r *MessageRow) error {
		if int(r.Seq) != len(c.known)+1 || r.Seq > 1 && c.known[r.Seq-2].uid >= r.UID {
			return fmt.Errorf("UID %d comes as number %d after %v", r.UID, r.Seq, c.known)
		}
		c.known = append(c.known, told{r.UID, r.Flags &^ Recent, strings.Join(r.Keywords, " ")})
		return nil
	})
}

func (c *client) flags(changes []FlagChange) error {
	for _, f := range changes {
		if f.Seq == 0 || int(f.Seq) > len(c.known) || c.known[f.Seq-1].uid != f.UID {
			return fmt.Errorf("number %d is not UID %d, but of %v", f.Seq, f.UID, c.known)
		}
		c.known[f.Seq-1] = told{f.UID, f.Flags &^ Recent, strings.Join(f.Keywords, " ")}
	}
	return nil
}

// sync does what happens at the end of a command.
func (c *client) sync(ctx context.Context, expunge bool) error {
	changes, err := c.v.Sync(ctx, expunge)
	if err != nil {
		return err
	}
	for i, seq := range changes.Expunged {
		if !expunge || int(seq) > len(c.known) || c.known[seq-1].uid != changes.Vanished[len(changes.Vanished)-1-i] {
			return fmt.Errorf("number %d of %v is expunged", seq, c.known)
		}
		c.known = append(c.known[:seq-1], c.known[seq:]...)
	}
	if changes.HasNewMessages != (int(changes.Exists) > len(c.known)) || int(changes.Exists) < len(c.known) {
		return fmt.Errorf("%d exist, arrived is %v, %d are known", changes.Exists, changes.HasNewMessages, len(c.known))
	}
	if err := c.arrived(ctx, int(changes.Exists)); err != nil {
		return err
	}
	return c.flags(changes.Flags)
}

func (c *client) store(ctx context.Context, uids []uint32, change FlagUpdate) error {
	changed, _, err := c.v.UpdateFlags(ctx, uids, change)
	if err != nil {
		return err
	}
	return c.flags(changed)
}

// stored reads the current messages of a folder.
func stored(ctx context.Context, d *db.DB, folder db.ID) ([]told, error) {
	return db.All(ctx, d, messagesFromQuery.With(folder, 0, 1<<30), func(r db.Row) (t told, err error) {
		var flags, size, modseq int64
		err = r.Scan(&t.uid, &flags, &t.words, &size, &modseq)
		t.flags = Flags(flags)
		return t, err
	})
}
