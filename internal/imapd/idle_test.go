// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/imapd"
)

func (c *client) idle() string {
	c.Helper()
	tag := c.begin("IDLE")
	c.continued("+ ")
	return tag
}

// next expects the next response.
func (c *client) next(want string) {
	c.Helper()
	if got := c.answer(); !matches(want, got) {
		c.Fatalf("got %q, want %q", got, want)
	}
}

func TestIdle(t *testing.T) {
	each(t, func(h *fixture) {
		a, b := h.selected("INBOX"), h.selected("INBOX")
		tag := a.idle()
		for n, subject := range []string{"one", "two"} {
			b.append("INBOX", "", note(subject))
			a.next([]string{"* 1 EXISTS", "* 2 EXISTS"}[n])
			a.next("* … RECENT")
		}
		b.ok(`STORE 2 +FLAGS (\Deleted)`)
		a.next(`* 2 FETCH (UID 2 FLAGS (\Deleted…))`)
		b.ok("EXPUNGE")
		a.next("* 2 EXPUNGE")
		a.send("DONE\r\n")
		a.finish(tag)
		if !matches("OK …", a.tagged) {
			t.Fatalf("got %q", a.tagged)
		}
		a.ok("NOOP")
		a.got()
	})
}

func TestIdleWithoutFolder(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		tag := c.idle()
		c.send("NOOP\r\n")
		c.finish(tag)
		if !matches("BAD …", c.tagged) {
			t.Fatalf("got %q", c.tagged)
		}
		tag = c.idle()
		c.send("done\r\n")
		c.finish(tag)
		c.ok("NOOP")
	})
}

var (
	hideFolders = db.SQL(`ALTER TABLE folder RENAME TO hidden`)
	showFolders = db.SQL(`ALTER TABLE hidden RENAME TO folder`)
)

// A session that idles while the database can't be read is told of all changes afterwards, unless
// that takes too long.
func TestIdleWhileNothingCanBeRead(t *testing.T) {
	var ahead atomic.Int64
	eachWith(t, func(o *imapd.Options) {
		folders := o.Folders.Options
		folders.PollInterval = -1
		o.Folders = folder.New(folders)
		ahead.Store(0)
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	}, func(h *fixture) {
		a := h.selected("INBOX")
		b := h.login()
		a.idle()
		blind := func(n int) {
			dbtest.Exec(h, h.db, hideFolders.With())
			h.server.Sessions.RecheckLogins(0)
			for len(h.log.all()) < n { // until it has checked
				runtime.Gosched()
			}
		}
		for n := range 2 {
			blind(n + 1)
			dbtest.Exec(h, h.db, showFolders.With())
			b.append("INBOX", "", note("one"))
			h.server.Sessions.RecheckLogins(0)
			a.next([]string{"* 1 EXISTS", "* 2 EXISTS"}[n])
			a.next("* … RECENT")
		}
		blind(3)
		ahead.Store(int64(time.Hour))
		h.server.Sessions.RecheckLogins(0)
		a.next("* BYE …")
		a.closed()
	})
}
