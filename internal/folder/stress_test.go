// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/lease/leasetest"
)

// Sessions of two nodes run all operations at once in two folders. After every round each session
// knows exactly the current state.
func TestStress(t *testing.T) {
	rounds, steps := 6, 25
	if testing.Short() {
		rounds = 2
	}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := leasetest.Open(t, url)
		h := newFixture(t, d, node)
		first, second := d, d
		var log strings.Builder // only one writes to it at a time
		if d.Engine() == db.Postgres {
			logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			first, second = h.join(url, "first", logger), h.join(url, "second", logger)
		}
		stores := []*Folders{h.newFolders(first, node, Options{PollInterval: -1, BatchSize: 3}), h.newFolders(second, nil, Options{PollInterval: -1})}
		other := h.newMailbox(1 << 40)
		h.fill(Inbox, 50)
		var crowd []*stresser
		for i := range 8 {
			s := stores[i%2]
			c, err := newClient(h.ctx(), s, h.box, modelNames[i/2%2], i == 7)
			h.must(err)
			defer c.v.Close()
			crowd = append(crowd, &stresser{client: c, h: h, s: s, other: other, rnd: rand.New(rand.NewPCG(uint64(i), 1))})
		}
		for round := range rounds {
			var all sync.WaitGroup
			for _, s := range crowd {
				all.Go(func() {
					for range steps {
						if err := s.step(h.ctx()); err != nil {
							t.Errorf("round %d: %v", round, err)
							return
						}
					}
				})
			}
			all.Wait()
			if t.Failed() {
				return
			}
			for i, s := range crowd {
				h.must(s.sync(h.ctx(), true))
				want, err := stored(h.ctx(), d, s.v.row.ID)
				h.must(err)
				if !slices.Equal(s.known, want) {
					t.Fatalf("round %d: session %d knows %v, want %v", round, i, s.known, want)
				}
			}
			h.checkCounts()
			h.clock.Add(3601)
			_, err := h.CollectGarbage(h.ctx())
			h.must(err)
			h.checkBytes()
		}
		if n := strings.Count(log.String(), "40P01"); n > 0 {
			t.Errorf("%d times some waited for each other until PostgreSQL gave one of them up", n)
		}
	})
}

func (h *fixture) join(url, name string, log *slog.Logger) *db.DB {
	d, err := db.Open(h.ctx(), db.Options{URL: url, Log: log, Fatal: func(err error) { panic(err) }})
	h.must(err)
	h.Cleanup(func() { h.must(d.Close()) })
	_, err = lease.Join(h.ctx(), d, lease.Options{Name: name, Holder: name})
	h.must(err)
	return d
}

var dangling = db.SQL(`SELECT COUNT(*) FROM folder_message f WHERE NOT EXISTS
	(SELECT 1 FROM message m JOIN blob b ON b.id = m.blob WHERE m.id = f.message)`)

// checkBytes checks that no folder shows a message without bytes.
func (h *fixture) checkBytes() {
	h.Helper()
	var n int
	h.must(h.db.One(h.ctx(), dangling.With(), &n))
	if n > 0 {
		h.Errorf("%d messages have lost their bytes", n)
	}
}

type stresser struct {
	*client
	h     *fixture
	s     *Folders
	other db.ID // another mailbox that also gets mail
	rnd   *rand.Rand
}

func (s *stresser) some() (uids []uint32) {
	n := 1 + s.rnd.IntN(10)
	for _, t := range s.known {
		if s.rnd.IntN(len(s.known)+1) < n {
			uids = append(uids, t.uid)
		}
	}
	return uids
}

// step runs one command and what follows it.
func (s *stresser) step(ctx context.Context) (err error) {
	expunge := true
	to := modelNames[s.rnd.IntN(2)]
	switch k := s.rnd.IntN(13); k {
	case 0, 1:
		_, _, err = s.s.Append(ctx, s.h.box, to, s.h.upload("x", Flags(s.rnd.IntN(32))), s.h.upload("y", 0))
	case 2:
		_, err = s.s.Deliver(ctx, Delivery{Mailbox: s.h.box, Blob: s.h.upload("z", 0).Blob})
	case 3, 4, 5:
		expunge = false
		words := []string{"a", "b", "c"}[:s.rnd.IntN(3)]
		err = s.store(ctx, s.some(), FlagUpdate{Op: FlagOp(s.rnd.IntN(3)), Flags: Flags(s.rnd.IntN(32)), Keywords: words})
	case 6:
		_, err = s.v.Expunge(ctx, nil)
	case 7:
		_, err = s.v.Copy(ctx, s.some(), to)
	case 8:
		_, err = s.v.Move(ctx, s.some(), to)
	case 9:
		expunge = false
		err = s.fetch(ctx)
	case 10:
		if uids := s.some(); len(uids) > 0 {
			_, err = s.v.Replace(ctx, uids[0], to, s.h.upload("larger", Flags(s.rnd.IntN(32))))
		}
		if fault.Is(err, fault.NotFound) { // another session was faster
			err = nil
		}
	case 11:
		var all []Delivery
		for _, in := range []Delivery{{Mailbox: s.h.box, SpecialUse: Archive}, {Mailbox: s.other}, {Mailbox: s.h.box}} {
			in.Blob = s.h.upload("all", 0).Blob
			all = append(all, in)
		}
		s.rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		_, err = s.s.DeliverAll(ctx, all)
	case 12:
		err = s.tree(ctx)
	}
	return errors.Join(err, s.sync(ctx, expunge))
}

// tree creates a folder, delivers mail to it and deletes it.
func (s *stresser) tree(ctx context.Context) error {
	name := fmt.Sprint("Archive/", s.rnd.Uint64())
	_, err := s.s.Create(ctx, s.h.box, name)
	if err == nil {
		_, _, err = s.s.Append(ctx, s.h.box, name, s.h.upload("x", 0))
	}
	if err == nil {
		err = s.s.Rename(ctx, s.h.box, name, "INBOX/"+name)
	}
	if err == nil {
		_, err = s.s.Delete(ctx, s.h.box, "INBOX/"+name)
	}
	return err
}

// fetch reads rows and bytes, and compares them with what was reported.
func (s *stresser) fetch(ctx context.Context) error {
	return s.v.Fetch(ctx, s.some(), FetchBlobID, func(r *MessageRow) error {
		if int(r.Seq) > len(s.known) || s.known[r.Seq-1].uid != r.UID {
			return fmt.Errorf("number %d is UID %d", r.Seq, r.UID)
		}
		b, err := s.s.OpenMessage(ctx, r.Message)
		if err != nil {
			return fmt.Errorf("opening UID %d: %w", r.UID, err)
		}
		return b.Close()
	})
}
