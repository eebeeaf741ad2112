// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db/dbtest"
)

// A message for a folder that is being deleted at that moment goes to INBOX, as if the folder did
// not exist.
func TestDeliverWhileFolderGoes(t *testing.T) {
	each(t, func(h *fixture) {
		junk := h.status("Junk")
		u := h.upload(mail("one", "Hello."), 0)
		type answer struct {
			MessageRef
			error
		}
		delivered := make(chan answer, 1)
		h.must(h.updateTree(h.ctx(), h.box, func(tree *folderTree) error {
			if err := tree.drop(h.ctx(), junk.ID); err != nil {
				return err
			}
			go func() {
				f, err := h.Deliver(h.ctx(), Delivery{Mailbox: h.box, SpecialUse: Junk, Blob: u.Blob, Metadata: u.Metadata})
				delivered <- answer{f, err}
			}()
			return dbtest.AwaitBlocked(h.ctx(), h.db, tree.tx, "%")
		}))
		got := <-delivered
		h.must(got.error)
		if got.Folder != h.status(Inbox).ID {
			t.Errorf("filed in %s, not in INBOX", got.Folder)
		}
		h.checkCounts()
	})
}

// The start of 1970 is a date like any other.
func TestDateZero(t *testing.T) {
	each(t, func(h *fixture) {
		u := h.upload(mail("old", "Hello."), 0)
		u.Date = time.Unix(0, 0)
		_, uids, err := h.Append(h.ctx(), h.box, Inbox, u)
		h.must(err)
		h.must(h.view(Inbox).Fetch(h.ctx(), uids, FetchDates, func(r *MessageRow) error {
			if r.Date.Unix() != 0 {
				t.Errorf("the internal date is %v", r.Date)
			}
			return nil
		}))
	})
}

// Every date that a client or an import gives can be represented.
func TestDatesCanBeTold(t *testing.T) {
	each(t, func(h *fixture) {
		for _, date := range []string{"9999-12-31T23:59:59-12:00", "0000-01-01T00:00:00+12:00"} {
			u := h.upload(mail("one", "Hello."), 0)
			var err error
			u.Date, err = time.Parse(time.RFC3339, date)
			h.must(err)
			_, _, err = h.Append(h.ctx(), h.box, Inbox, u)
			h.must(err)
		}
		v := h.view(Inbox)
		h.must(v.Fetch(h.ctx(), numbers(1, 2), FetchDates, func(r *MessageRow) error {
			_, err := json.Marshal(r.Date)
			return err
		}))
	})
}

// TestIndexingRests checks that low-priority work on messages yields to filing, from every source,
// and to nothing else.
func TestIndexingRests(t *testing.T) {
	for name, file := range map[string]func(h *fixture){
		"appended":  func(h *fixture) { h.fill(Inbox, 1) },
		"delivered": func(h *fixture) { h.deliver("x") },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *fixture) {
				const took = time.Millisecond
				at := time.Now()
				h.Now = func() time.Time { // time passes with every call
					at = at.Add(10 * time.Millisecond)
					return at
				}
				if d := h.IndexDelay(took); d != 0 {
					t.Errorf("nothing was filed, and it rests %v", d)
				}
				for range 40 {
					file(h)
				}
				if d := h.IndexDelay(took); d < maxIndexDelayFactor*took/2 {
					t.Errorf("mail is being filed, and it rests %v, where %v is the most", d, maxIndexDelayFactor*took)
				}
				at = at.Add(time.Second)
				if d := h.IndexDelay(took); d != 0 {
					t.Errorf("a second ago mail was filed, and it rests %v", d)
				}
			})
		})
	}
}
