// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/imapd"
)

// gate blocks readers of a message's file until they may continue, or until their search ends.
type gate struct {
	blob.FileStore
	began chan chan<- struct{} // receives whenever a read begins; it continues once the channel is closed
	open  chan struct{}        // closed at the end: nobody waits any more

	mu           sync.Mutex
	inside, most int
}

func newGate(f blob.FileStore) *gate {
	return &gate{FileStore: f, began: make(chan chan<- struct{}, 100), open: make(chan struct{})}
}

// Open implements blob.FileStore.
func (g *gate) Open(ctx context.Context, name db.ID) (blob.FileReader, error) {
	r, err := g.FileStore.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	g.count(1)
	pass := make(chan struct{})
	g.began <- pass
	select {
	case <-pass:
	case <-g.open:
	case <-ctx.Done():
	}
	return gatedFile{r, g}, nil
}

func (g *gate) count(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside += n
	g.most = max(g.most, g.inside)
}

type gatedFile struct {
	blob.FileReader
	gate *gate
}

func (r gatedFile) Close() error {
	r.gate.count(-1)
	return r.FileReader.Close()
}

// bodySearches are commands that read bodies, each with the beginning of its result.
var bodySearches = [][2]string{
	{"SEARCH BODY needle", "* SEARCH 1"},
	{"UID SEARCH TEXT needle", "* SEARCH 1"},
	{"SEARCH RETURN (COUNT) OR BODY needle SUBJECT nothing", "* ESEARCH …COUNT 1"},
	{"SORT (DATE) UTF-8 NOT BODY nothing", "* SORT 1"},
	{"THREAD REFERENCES UTF-8 TEXT needle", "* THREAD (1)"},
	{"SEARCH RETURN (SAVE ALL) NOT (NOT BODY needle)", "* ESEARCH …ALL 1"},
}

// withGate runs f with a server on which each of the mailboxes has a large message.
func withGate(t *testing.T, mailboxes int, f func(h *fixture, g *gate, names []string)) {
	t.Helper()
	var g *gate
	eachWith(t, func(o *imapd.Options) {
		g = newGate(o.Blobs.Files)
		o.Blobs.Files = g
	}, func(h *fixture) {
		h.Cleanup(func() { close(g.open) }) // otherwise the server does not stop after a failure
		names := []string{alice}
		for len(names) < mailboxes {
			name := fmt.Sprint("box", len(names))
			h.newMailbox(name)
			names = append(names, name+"@demo.test")
		}
		for _, name := range names {
			h.loginAs(name).append("INBOX", "", note("large")+strings.Repeat("Hay.\r\n", blob.MaxInline/4)+"A needle.\r\n")
		}
		f(h, g, names)
	})
}

// inLine waits until the given numbers of searches of a mailbox, and of its account, read bodies or
// wait to do so.
func (h *fixture) inLine(box db.ID, ofMailbox, ofAccount int) {
	for {
		m, a := h.server.BodySearches(h.box.Account, box)
		if m == ofMailbox && a == ofAccount {
			return
		}
		if h.Context().Err() != nil {
			return
		}
		runtime.Gosched()
	}
}

// Two searches of a mailbox read bodies at once. Others wait, in every form of the command, and
// block nothing else.
func TestBodySearchesOfMailbox(t *testing.T) {
	withGate(t, 1, func(h *fixture, g *gate, _ []string) {
		var all []*client
		var tags []string
		var reads []chan<- struct{}
		for i, s := range bodySearches {
			c := h.selected("INBOX")
			all, tags = append(all, c), append(tags, c.begin(s[0]))
			if h.inLine(h.box.ID, i+1, min(i+1, 2)); i < 2 {
				reads = append(reads, <-g.began)
			}
		}
		other := h.selected("INBOX")
		other.ok("SEARCH SUBJECT large")
		other.got("* SEARCH 1")
		other.ok(`STORE 1 +FLAGS (\Flagged)`)
		other.append("Sent", "", note("small"))
		for i := range all {
			close(reads[i])
			all[i].finish(tags[i]) // in the order of the queue
			if !strings.HasPrefix(all[i].tagged, "OK ") || !matches(bodySearches[i][1], all[i].untagged[0]) {
				t.Errorf("%s: %q, %q", bodySearches[i][0], all[i].untagged, all[i].tagged)
			}
			if i+2 < len(all) {
				reads = append(reads, <-g.began)
			}
		}
		if g.most != 2 {
			t.Errorf("%d searches read bodies at once", g.most)
		}
		h.inLine(h.box.ID, 0, 0)
	})
}

// Eight searches of an account read bodies at once.
func TestBodySearchesOfAccount(t *testing.T) {
	withGate(t, 5, func(h *fixture, g *gate, names []string) {
		var all []*client
		var tags []string
		for _, name := range names {
			for range 2 {
				c := h.loginAs(name)
				c.ok("SELECT INBOX")
				all, tags = append(all, c), append(tags, c.begin("SEARCH BODY needle"))
			}
		}
		h.inLine(h.box.ID, 2, 10)
		var reads []chan<- struct{}
		for range 8 {
			reads = append(reads, <-g.began)
		}
		for _, pass := range reads {
			close(pass)
		}
		for range len(all) - len(reads) {
			close(<-g.began)
		}
		for i, c := range all {
			c.finish(tags[i])
			c.got("* SEARCH 1")
		}
		if g.most != 8 {
			t.Errorf("%d searches read bodies at once", g.most)
		}
	})
}

// A waiting search ends when its client disconnects, when its login ends, and when the server shuts
// down.
func TestBodySearchWaitEnds(t *testing.T) {
	withGate(t, 2, func(h *fixture, g *gate, names []string) {
		reading := []*client{h.selected("INBOX"), h.selected("INBOX")}
		var tags []string
		var reads []chan<- struct{}
		for _, c := range reading {
			tags = append(tags, c.begin("SEARCH BODY needle"))
			reads = append(reads, <-g.began)
		}
		leaves := h.selected("INBOX")
		leaves.begin("SEARCH BODY needle")
		h.inLine(h.box.ID, 3, 2)
		h.must(leaves.nc.Close())
		h.inLine(h.box.ID, 2, 2)

		waits := h.selected("INBOX")
		waits.begin("SEARCH BODY needle")
		h.inLine(h.box.ID, 3, 2)
		ended := make(chan error)
		go func() { ended <- h.server.Shutdown(context.Background()) }()
		waits.next("* BYE The server is going down.")
		waits.closed()
		for i, c := range reading { // they had begun
			close(reads[i])
			c.finish(tags[i])
			c.got("* SEARCH 1")
		}
		h.must(<-ended)
	})
}

// A search that reads bodies or waits to do so ends with its login.
func TestBodySearchRevoked(t *testing.T) {
	withGate(t, 1, func(h *fixture, g *gate, _ []string) {
		var all []*client
		for i := range 3 {
			c := h.selected("INBOX")
			c.begin("SEARCH BODY needle")
			all = append(all, c)
			h.inLine(h.box.ID, i+1, min(i+1, 2))
		}
		<-g.began
		<-g.began
		changed := "Another-Passw0rd!"
		_, err := h.mailboxes.SetPassword(t.Context(), h.box.Account, h.box.ID, &changed)
		h.must(err)
		for _, c := range all {
			c.next("* BYE …")
			c.closed()
		}
		h.inLine(h.box.ID, 0, 0)
	})
}
