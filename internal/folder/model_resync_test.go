// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// memory is what a client remembers of a folder while it is disconnected.
type memory struct {
	folder string
	known  []told
	modseq uint64
}

func (m *model) remember(*rapid.T) {
	c, _ := m.session()
	m.memory = append(m.memory, memory{c.v.row.Name, slices.Clone(c.known), c.v.Folder().ModSeq})
}

// resync simulates a client that reconnects: the reported changes turn its old state into the
// current one.
func (m *model) resync(t *rapid.T) {
	if len(m.memory) == 0 {
		return
	}
	was := rapid.SampledFrom(m.memory).Draw(t, "memory")
	v, err := m.stores[rapid.IntRange(0, 1).Draw(t, "store")].Open(ctx, m.box, was.folder, true)
	m.must(err)
	defer v.Close()
	gone, err := v.VanishedSince(ctx, was.modseq, nil)
	m.must(err)
	known := slices.DeleteFunc(slices.Clone(was.known), func(e told) bool { return snapshot.ContainsUID(gone, e.uid) })
	err = v.Fetch(ctx, v.ChangedIn(nil, was.modseq), 0, func(r *MessageRow) error {
		e := told{r.UID, r.Flags &^ Recent, strings.Join(r.Keywords, " ")}
		if i := slices.IndexFunc(known, func(k told) bool { return k.uid == r.UID }); i >= 0 {
			known[i] = e
		} else {
			known = append(known, e)
		}
		return nil
	})
	m.must(err)
	if want := m.folders[was.folder].content; !slices.Equal(known, want) {
		m.Fatalf("since %d, when it knew %v, the client comes to %v, want %v", was.modseq, was.known, known, want)
	}
}

func (m *model) replace(t *rapid.T) {
	c, f := m.session()
	if len(c.known) == 0 {
		return
	}
	uid := rapid.SampledFrom(c.known).Draw(t, "message").uid
	to := rapid.SampledFrom(modelNames).Draw(t, "to")
	flags := Flags(rapid.Uint8().Draw(t, "flags")) & AllFlags
	filed, err := c.v.Replace(ctx, uid, to, m.h.upload("another", flags, "r"))
	if !slices.ContainsFunc(f.content, func(e told) bool { return e.uid == uid }) {
		if !fault.Is(err, fault.NotFound) {
			m.Fatalf("replacing what is gone: %v", err)
		}
		return
	}
	m.must(err)
	f.remove(func(e told) bool { return e.uid == uid })
	m.folders[to].add(flags, "r")
	if filed.UID != m.folders[to].next-1 {
		m.Fatalf("replaced by UID %d, want %d", filed.UID, m.folders[to].next-1)
	}
}
