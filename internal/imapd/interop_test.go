// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
)

// A third-party client runs typical commands.
func TestInterop(t *testing.T) {
	each(t, func(h *fixture) {
		exists := make(chan uint32, 8)
		c, err := imapclient.DialStartTLS(h.plain, &imapclient.Options{TLSConfig: h.tlsConfig(),
			UnilateralDataHandler: &imapclient.UnilateralDataHandler{Mailbox: func(d *imapclient.UnilateralDataMailbox) {
				if d.NumMessages != nil {
					exists <- *d.NumMessages
				}
			}}})
		h.must(err)
		defer c.Close()
		h.must(c.Login(alice, password).Wait())
		boxes, err := c.List("", "*", nil).Collect()
		h.must(err)
		if len(boxes) != 6 {
			t.Errorf("%d folders", len(boxes))
		}
		h.must(c.Create("Projekte/Grüße", nil).Wait())

		put := c.Append("INBOX", int64(len(mail)), &imap.AppendOptions{Flags: []imap.Flag{imap.FlagFlagged}, Time: time.Now()})
		_, err = io.WriteString(put, mail)
		h.must(err)
		h.must(put.Close())
		filed, err := put.Wait()
		h.must(err)
		box, err := c.Select("INBOX", nil).Wait()
		h.must(err)
		if box.NumMessages != 1 || box.UIDValidity != filed.UIDValidity || filed.UID != 1 {
			t.Errorf("filed %+v into %+v", filed, box)
		}
		interopFetch(h, c)

		found, err := c.Search(&imap.SearchCriteria{Body: []string{"xylophone"}}, &imap.SearchOptions{ReturnCount: true, ReturnAll: true}).Wait()
		h.must(err)
		if found.Count != 1 {
			t.Errorf("found %+v", found)
		}
		moved, err := c.Move(imap.SeqSetNum(1), "Projekte/Grüße").Wait()
		h.must(err)
		if moved.UIDValidity == 0 {
			t.Errorf("moved %+v", moved)
		}
		for len(exists) > 0 {
			<-exists
		}
		idle, err := c.Idle()
		h.must(err)
		h.login().append("INBOX", "", note("new"))
		if n := <-exists; n != 1 {
			t.Errorf("%d messages announced", n)
		}
		h.must(idle.Close())
		h.must(idle.Wait())
		_, err = c.Select("Nowhere", nil).Wait()
		var refused *imap.Error
		if !errors.As(err, &refused) || refused.Code != imap.ResponseCodeNonExistent {
			t.Errorf("got %v", err)
		}
		h.must(c.Logout().Wait())
	})
}

func interopFetch(h *fixture, c *imapclient.Client) {
	whole := &imap.FetchItemBodySection{}
	text := &imap.FetchItemBodySection{Part: []int{2, 1}}
	rows, err := c.Fetch(imap.SeqSetNum(1), &imap.FetchOptions{Envelope: true, Flags: true, UID: true, InternalDate: true, RFC822Size: true,
		BodyStructure: &imap.FetchItemBodyStructure{Extended: true}, BodySection: []*imap.FetchItemBodySection{whole, text}}).Collect()
	h.must(err)
	m := rows[0]
	if m.Envelope.Subject != "Grüße from the sea" || m.Envelope.From[0].Name != "Jürgen" || m.RFC822Size != int64(len(mail)) {
		h.Errorf("envelope %+v", m.Envelope)
	}
	if got := m.FindBodySection(whole); !bytes.Equal(got, []byte(mail)) {
		h.Errorf("body %q", got)
	}
	if got := m.FindBodySection(text); string(got) != "inner text" {
		h.Errorf("part 2.1 %q", got)
	}
	parts := 0
	m.BodyStructure.Walk(func([]int, imap.BodyStructure) bool { parts++; return true })
	if parts < 4 {
		h.Errorf("%d parts", parts)
	}
}
