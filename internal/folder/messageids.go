// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
)

// uidToIDCache maps the UIDs of a folder to messages. The mapping never changes, so the first
// search that asks an index reads it once.
type uidToIDCache struct {
	mu   sync.Mutex
	uids []uint32 // ascending
	ids  []db.ID
}

// reset frees the memory when no session has the folder open.
func (m *uidToIDCache) reset() {
	m.mu.Lock()
	m.uids, m.ids = nil, nil
	m.mu.Unlock()
}

// messageIDsPage is how many UIDs are read at once, as a read transaction must be short.
const messageIDsPage = 5_000

var (
	messageIDsQuery       = db.SQL(`SELECT uid, message FROM folder_message WHERE folder = $1 AND uid > $2 ORDER BY uid LIMIT $3`)
	existingMessagesQuery = db.SQL(`SELECT id FROM message WHERE id ` + inList)
)

// IDsByUID returns the messages with the given UIDs, which must ascend; 0 for one that was
// expunged meanwhile.
func (v *View) IDsByUID(ctx context.Context, uids []uint32) ([]db.ID, error) {
	m := &v.shared.idCache
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.uids) > 2*v.snap.Len()+messageIDsPage { // most are gone
		m.uids, m.ids = nil, nil
	}
	last := uids[len(uids)-1]
	for len(m.uids) == 0 || m.uids[len(m.uids)-1] < last {
		from := uint32(0)
		if n := len(m.uids); n > 0 {
			from = m.uids[n-1]
		}
		more, ids, err := v.store.MessagesAfter(ctx, v.shared.id, from, messageIDsPage)
		if err != nil {
			return nil, err
		}
		if len(more) == 0 {
			break
		}
		m.uids, m.ids = append(m.uids, more...), append(m.ids, ids...)
	}
	ids := make([]db.ID, len(uids))
	at := 0
	for i, uid := range uids {
		for at < len(m.uids) && m.uids[at] < uid {
			at++
		}
		if at < len(m.uids) && m.uids[at] == uid {
			ids[i] = m.ids[at]
		}
	}
	return ids, nil
}

// MessagesAfter returns at most limit messages of a folder with UIDs above uid, in the order of
// their UIDs, which is also the order of their commits.
func (s *Folders) MessagesAfter(ctx context.Context, folder db.ID, uid uint32, limit int) (uids []uint32, ids []db.ID, err error) {
	err = s.DB.Each(ctx, messageIDsQuery.With(folder, uid, limit), func(r db.Row) error {
		var uid uint32
		var id db.ID
		err := r.Scan(&uid, &id)
		uids, ids = append(uids, uid), append(ids, id)
		return err
	})
	return uids, ids, err
}

// ExistingMessages returns which of the messages have not been deleted.
func (s *Folders) ExistingMessages(ctx context.Context, ids []db.ID) (map[db.ID]bool, error) {
	there := map[db.ID]bool{}
	for some := range slices.Chunk(ids, db.InListSize) {
		args := db.InListArgs(len(some), func(i int) any { return some[i] })
		err := s.DB.Each(ctx, existingMessagesQuery.With(args...), func(r db.Row) error {
			var id db.ID
			err := r.Scan(&id)
			there[id] = true
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return there, nil
}
