// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mailstead/mailstead/internal/db"
)

// model is a mailbox with two folders, and three sessions of two stores.
type model struct {
	*rapid.T
	h        *fixture
	box      db.ID
	stores   []*Folders
	folders  map[string]*modelFolder
	sessions []*client
	memory   []memory
}

type modelFolder struct {
	id      db.ID
	next    uint32
	content []told
}

var modelNames = []string{Inbox, "Archive"}

func TestModel(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		if err := f.Value.Set("12"); err != nil { // -rapid.checks sets more
			t.Fatal(err)
		}
	}
	each(t, func(h *fixture) {
		rapid.Check(t, func(rt *rapid.T) {
			m := &model{T: rt, h: h, box: h.newMailbox(1 << 40), folders: map[string]*modelFolder{}}
			m.stores = []*Folders{h.newFolders(h.db, nil, Options{PollInterval: -1}), h.newFolders(h.db, nil, Options{PollInterval: -1})}
			for _, name := range modelNames {
				f, err := h.Status(ctx, m.box, name)
				m.must(err)
				m.folders[name] = &modelFolder{id: f.ID, next: 1}
			}
			for i := range 3 {
				m.sessions = append(m.sessions, m.open(i))
			}
			rt.Repeat(map[string]func(*rapid.T){
				"append": m.append, "store": m.store, "expunge": m.expunge, "copy": m.copy, "move": m.move,
				"sync": m.sync, "reopen": m.reopen, "replace": m.replace, "remember": m.remember, "resync": m.resync, "": m.check,
			})
			for _, c := range m.sessions {
				c.v.Close()
			}
		})
	})
}

var ctx = context.Background()

func (m *model) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

func (m *model) open(i int) *client {
	c, err := newClient(ctx, m.stores[i%2], m.box, rapid.SampledFrom(modelNames).Draw(m.T, "folder"), false)
	m.must(err)
	return c
}

func (m *model) session() (*client, *modelFolder) {
	c := m.sessions[rapid.IntRange(0, 2).Draw(m.T, "session")]
	return c, m.folders[c.v.row.Name]
}

// some chooses messages of a session, including expunged ones.
func (m *model) some(c *client) (uids []uint32) {
	chosen := rapid.Uint64().Draw(m.T, "messages")
	for i, t := range c.known {
		if chosen&(1<<(i%64)) != 0 {
			uids = append(uids, t.uid)
		}
	}
	return uids
}

func (f *modelFolder) add(flags Flags, words string) {
	f.content = append(f.content, told{f.next, flags, words})
	f.next++
}

func (m *model) append(t *rapid.T) {
	name := rapid.SampledFrom(modelNames).Draw(t, "to")
	s := m.stores[rapid.IntRange(0, 1).Draw(t, "store")]
	n := rapid.IntRange(1, 20).Draw(t, "count")
	var all []Upload
	for range n {
		flags := Flags(rapid.Uint8().Draw(t, "flags")) & AllFlags
		all = append(all, m.h.upload("x", flags, "k"))
		m.folders[name].add(flags, "k")
	}
	_, _, err := s.Append(ctx, m.box, name, all...)
	m.must(err)
}

func (m *model) store(t *rapid.T) {
	c, f := m.session()
	uids := m.some(c)
	change := FlagUpdate{
		Op: FlagOp(rapid.IntRange(0, 2).Draw(t, "op")), Flags: Flags(rapid.Uint8().Draw(t, "flags")),
		Keywords: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"k", "l", "m"}), 0, 3, rapid.ID[string]).Draw(t, "words"),
	}
	m.change(f.content, uids, change)
	// The client applies its own change, as after FLAGS.SILENT. Changes by others are reported.
	there := slices.DeleteFunc(slices.Clone(uids), func(uid uint32) bool {
		return !slices.ContainsFunc(f.content, func(e told) bool { return e.uid == uid })
	})
	m.change(c.known, there, change)
	changed, _, err := c.v.UpdateFlags(ctx, uids, change)
	m.must(err)
	m.must(c.flags(slices.DeleteFunc(changed, func(f FlagChange) bool { return !f.ChangedByOthers })))
}

func (m *model) change(content []told, uids []uint32, change FlagUpdate) {
	for i := range content {
		e := &content[i]
		if !slices.Contains(uids, e.uid) {
			continue
		}
		flags, words := change.Flags&AllFlags, slices.Clone(change.Keywords)
		have := strings.Fields(e.words)
		switch change.Op {
		case AddFlags:
			flags |= e.flags
			words = append(words, have...)
		case RemoveFlags:
			flags = e.flags &^ flags
			words = slices.DeleteFunc(have, func(w string) bool { return slices.Contains(change.Keywords, w) })
		}
		slices.Sort(words)
		e.flags, e.words = flags, strings.Join(slices.Compact(words), " ")
	}
}

func (f *modelFolder) remove(gone func(told) bool) {
	f.content = slices.DeleteFunc(f.content, gone)
}

func (m *model) expunge(t *rapid.T) {
	c, f := m.session()
	var only []uint32
	if rapid.Bool().Draw(t, "uid expunge") {
		only = append([]uint32{}, m.some(c)...)
	}
	f.remove(func(e told) bool { return e.flags&Deleted != 0 && (only == nil || slices.Contains(only, e.uid)) })
	_, err := c.v.Expunge(ctx, only)
	m.must(err)
}

func (m *model) transfer(c *client, f *modelFolder, uids []uint32) (to string, there []uint32) {
	to = rapid.SampledFrom(modelNames).Draw(m.T, "to")
	for _, e := range slices.Clone(f.content) {
		if slices.Contains(uids, e.uid) {
			m.folders[to].add(e.flags, e.words)
			there = append(there, e.uid)
		}
	}
	return to, there
}

func (m *model) copy(*rapid.T) {
	c, f := m.session()
	uids := m.some(c)
	to, there := m.transfer(c, f, uids)
	copied, err := c.v.Copy(ctx, uids, to)
	m.must(err)
	if !slices.Equal(copied.SrcUIDs, there) {
		m.Fatalf("copied %v, want %v", copied.SrcUIDs, there)
	}
}

func (m *model) move(*rapid.T) {
	c, f := m.session()
	uids := m.some(c)
	to, there := m.transfer(c, f, uids)
	f.remove(func(e told) bool { return slices.Contains(there, e.uid) })
	moved, err := c.v.Move(ctx, uids, to)
	m.must(err)
	if !slices.Equal(moved.SrcUIDs, there) || len(moved.DstUIDs) > 0 && moved.DstUIDs[len(there)-1] != m.folders[to].next-1 {
		m.Fatalf("moved %v to %v, want %v", moved.SrcUIDs, moved.DstUIDs, there)
	}
}

func (m *model) sync(t *rapid.T) {
	c, f := m.session()
	expunge := rapid.Bool().Draw(t, "expunge")
	m.must(c.sync(ctx, expunge))
	if expunge && !slices.Equal(c.known, f.content) {
		m.Fatalf("the session knows %v, want %v", c.known, f.content)
	}
	// Flags of messages that are gone but not yet reported are unknown.
	gone := func(e told) bool {
		return !slices.ContainsFunc(f.content, func(there told) bool { return there.uid == e.uid })
	}
	var seen []told
	for _, e := range c.v.snap.Between(0, c.v.snap.Len()) {
		seen = append(seen, told{e.UID, e.Flags, strings.Join(c.v.shared.keywords.Keywords(e.Keywords), " ")})
	}
	known := slices.DeleteFunc(slices.Clone(c.known), gone)
	if seen = slices.DeleteFunc(seen, gone); !slices.Equal(known, seen) {
		m.Fatalf("the client was told %v, the view has %v", known, seen)
	}
}

func (m *model) reopen(t *rapid.T) {
	i := rapid.IntRange(0, 2).Draw(t, "session")
	m.sessions[i].v.Close()
	m.sessions[i] = m.open(i)
	c := m.sessions[i]
	if f := m.folders[c.v.row.Name]; !slices.Equal(c.known, f.content) {
		m.Fatalf("the new session knows %v, want %v", c.known, f.content)
	}
}

func (m *model) check(*rapid.T) {
	for name, f := range m.folders {
		found, err := stored(ctx, m.h.db, f.id)
		m.must(err)
		if !slices.Equal(found, f.content) {
			m.Fatalf("%s holds %v, want %v", name, found, f.content)
		}
	}
	for _, c := range m.sessions {
		for i, t := range c.known {
			if c.v.UID(uint32(i+1)) != t.uid || c.v.Len() != len(c.known) {
				m.Fatalf("the client was told %v, the view has %s", c.known, c.v.show())
			}
		}
	}
}
