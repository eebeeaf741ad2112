// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/message"
)

var objectIDs = regexp.MustCompile(`(?:MAILBOXID|EMAILID|THREADID) \(([a-zA-Z0-9_-]{1,255})\)`)

// ids returns the object ids in the untagged responses and the tagged one.
func (c *client) ids() (ids []string) {
	for _, m := range objectIDs.FindAllStringSubmatch(strings.Join(append(c.untagged, c.tagged), "\n"), -1) {
		ids = append(ids, m[1])
	}
	return ids
}

// The example of RFC 8474 §4.
func TestMailboxID(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.ok("create foo", "MAILBOXID (F")
		foo := c.ids()[0]
		c.ok("create bar", "MAILBOXID (F")
		bar := c.ids()[0]
		c.no("create foo", "ALREADYEXISTS]")
		c.ok("status foo (mailboxid)")
		c.got("* STATUS foo (MAILBOXID (" + foo + "))")
		c.ok("rename foo renamed")
		c.ok("status renamed (mailboxid)")
		c.got("* STATUS renamed (MAILBOXID (" + foo + "))")
		c.ok(`list "" (bar renamed) return (status (mailboxid))`)
		c.got(`* LIST (\HasNoChildren) "/" bar`, "* STATUS bar (MAILBOXID ("+bar+"))",
			`* LIST (\HasNoChildren) "/" renamed`, "* STATUS renamed (MAILBOXID ("+foo+"))")
		c.ok("select renamed")
		c.has("* OK [MAILBOXID (" + foo + ")] …")
		c.ok("examine bar")
		c.has("* OK [MAILBOXID (" + bar + ")] …")
		c.ok("delete bar")
		c.ok("create bar", "MAILBOXID (F")
		if c.ids()[0] == bar {
			t.Error("a new folder has an old id")
		}
		// INBOX keeps its id.
		c.ok("status INBOX (mailboxid)")
		inbox := c.ids()[0]
		c.ok("rename INBOX old")
		c.ok("status INBOX (mailboxid)")
		if c.ids()[0] != inbox {
			t.Error("INBOX has another id")
		}
	})
}

// deliver files a message that belongs to a thread of the account.
func (h *fixture) deliver(subject, thread string) {
	h.Helper()
	text := []byte(note(subject))
	b, err := h.blobs.FromBytes(h.Context(), text)
	h.must(err)
	ix, header, err := message.ScanReader(bytes.NewReader(text))
	h.must(err)
	d, err := folder.NewMetadata(header, ix)
	h.must(err)
	_, err = h.folders.Deliver(h.Context(), folder.Delivery{Mailbox: h.box.ID, Blob: b, Metadata: d,
		Thread: folder.ThreadRef{Account: h.box.Account, Domain: h.box.Domain, Thread: thread}})
	h.must(err)
}

// The example of RFC 8474 §5.3 and §6.
func TestEmailID(t *testing.T) {
	each(t, func(h *fixture) {
		thread := h.db.NewID().String()
		h.deliver("A", thread)
		h.deliver("Re: A", thread)
		h.deliver("C", h.db.NewID().String())
		c := h.selected("INBOX")
		c.append("INBOX", "", note("D"))
		h.deliver("E", "a thread / by name")
		h.deliver("F", strings.Repeat("ü", 255))
		c.ok("noop")
		c.ok("fetch 1:* (emailid threadid)")
		id := c.ids()
		c.got("* 1 FETCH (EMAILID ("+id[0]+") THREADID (T"+thread+"))", "* 2 FETCH (EMAILID ("+id[2]+") THREADID (T"+thread+"))",
			"* 3 FETCH (EMAILID ("+id[4]+") THREADID ("+id[5]+"))", "* 4 FETCH (EMAILID ("+id[6]+") THREADID ("+id[7]+"))",
			"* 5 FETCH (EMAILID ("+id[8]+") THREADID ("+id[9]+"))", "* 6 FETCH (EMAILID ("+id[10]+") THREADID ("+id[11]+"))")
		for i, x := range id {
			for k, y := range id[:i] {
				if x == y && !(k == 1 && i == 3) {
					t.Errorf("%s stands for two things", x)
				}
			}
		}
		c.ok("search emailid " + id[0])
		c.got("* SEARCH 1")
		c.ok("search threadid " + id[1])
		c.got("* SEARCH 1 2")
		c.ok("search not threadid " + id[1])
		c.got("* SEARCH 3 4 5 6")
		c.ok("uid search or threadid " + id[7] + " or threadid " + id[9] + " threadid " + id[11])
		c.got("* SEARCH 4 5 6")
		for _, none := range []string{"threadid " + id[0], "emailid " + id[1], "emailid Mnone", "threadid Q", `emailid ""`, "threadid B",
			"emailid " + id[0][1:], "threadid S" + id[0][1:], "threadid BAA", "threadid B_w", "threadid {2+}\r\nT\xff"} {
			c.ok("search " + none)
			c.got("* SEARCH")
		}
		c.ok("move 2 Archive")
		c.ok("copy 1 Archive")
		c.ok("fetch 1:* (emailid threadid)")
		if got := c.ids(); got[0] != id[0] || got[2] != id[4] {
			t.Errorf("ids %q after %q", got, id)
		}
		c.ok("examine Archive")
		c.ok("fetch 1:* (threadid emailid envelope)")
		if got := c.ids(); got[0] != id[2] || got[1] != id[3] || got[2] != id[0] || got[3] != id[1] {
			t.Errorf("ids %q after %q", got, id)
		}
	})
}
