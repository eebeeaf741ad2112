// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/fault"
)

// Sessions of two nodes do everything at once to two folders. After every
// round, when all is quiet, each knows exactly what is there.
func TestStress(t *testing.T) {
	rounds, steps := 6, 25
	if testing.Short() {
		rounds = 2
	}
	dbtest.EachURL(t, func(t *testing.T, url string) {
		d, node := dbtest.Open(t, url)
		h := newHouse(t, d, node)
		second := d
		if d.Engine() == db.Postgres {
			second = h.joinSecond(url)
		}
		stores := []*Store{h.newStore(d, node, Options{Poll: -1, Part: 3}), h.newStore(second, nil, Options{Poll: -1})}
		h.fill(Inbox, 50)
		var crowd []*stresser
		for i := range 8 {
			s := stores[i%2]
			c, err := newClient(h.ctx(), s, h.box, modelNames[i/2%2], i == 7)
			h.must(err)
			defer c.v.Close()
			crowd = append(crowd, &stresser{client: c, h: h, s: s, rnd: rand.New(rand.NewPCG(uint64(i), 1))})
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
			_, err := h.Collect(h.ctx())
			h.must(err)
			h.checkBytes()
		}
	})
}

func (h *house) joinSecond(url string) *db.DB {
	d, err := db.Open(h.ctx(), db.Options{URL: url, Fatal: func(err error) { panic(err) }})
	h.must(err)
	h.Cleanup(func() { h.must(d.Close()) })
	_, err = d.Join(h.ctx(), "second", "second")
	h.must(err)
	return d
}

var dangling = db.SQL(`SELECT COUNT(*) FROM folder_message f WHERE NOT EXISTS
	(SELECT 1 FROM message m JOIN blob b ON b.id = m.blob WHERE m.id = f.message)`)

// checkBytes looks for messages that are shown, but have no bytes.
func (h *house) checkBytes() {
	h.Helper()
	var n int
	h.must(h.db.One(h.ctx(), dangling.With(), &n))
	if n > 0 {
		h.Errorf("%d messages have lost their bytes", n)
	}
}

type stresser struct {
	*client
	h   *house
	s   *Store
	rnd *rand.Rand
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

// step does one command and what follows it.
func (s *stresser) step(ctx context.Context) (err error) {
	expunge := true
	to := modelNames[s.rnd.IntN(2)]
	switch k := s.rnd.IntN(11); k {
	case 0, 1:
		_, _, err = s.s.Append(ctx, s.h.box, to, s.h.upload("x", Flags(s.rnd.IntN(32))), s.h.upload("y", 0))
	case 2:
		_, err = s.s.Deliver(ctx, Incoming{Mailbox: s.h.box, Blob: s.h.upload("z", 0).Blob})
	case 3, 4, 5:
		expunge = false
		words := []string{"a", "b", "c"}[:s.rnd.IntN(3)]
		err = s.store(ctx, s.some(), StoreFlags{Op: Op(s.rnd.IntN(3)), Flags: Flags(s.rnd.IntN(32)), Keywords: words})
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
		if fault.Is(err, fault.NotFound) { // another session was quicker
			err = nil
		}
	}
	return errors.Join(err, s.sync(ctx, expunge))
}

// fetch reads rows and bytes; what it finds is what it was told of.
func (s *stresser) fetch(ctx context.Context) error {
	return s.v.Fetch(ctx, s.some(), WantBlob, func(r *Row) error {
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
