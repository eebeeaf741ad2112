// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/relay"
)

// captured is a message of the sandbox's outbox.
type captured struct {
	relay.Captured
	Subject string
	From    []digest.Person
}

// sandbox lists what would have gone out to the world.
func (d *Dashboard) sandbox(v *visit) (page, error) {
	if d.Captured == nil {
		return page{}, notFound()
	}
	p := v.pageOf()
	list, more, err := d.Captured.List(v.ctx, v.in.Account, "", p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []captured
		Pager pager
		First string // a mailbox to write to; "" while there is none
	}{}
	boxes, _, err := d.Mailboxes.List(v.ctx, v.in.Account, mailbox.Filter{}, db.Page{Limit: 1})
	if err != nil {
		return page{}, err
	}
	for _, m := range boxes {
		data.First = m.Address
	}
	for _, c := range list {
		one, err := d.summary(v, c)
		if _, err = v.lost(err); err != nil && !fault.Is(err, fault.NotFound) { // it may be cleared meanwhile
			return page{}, err
		}
		data.List = append(data.List, one)
	}
	if n := len(list); n > 0 {
		data.Pager = pagerOf("/sandbox", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "sandbox", Title: "Sandbox", Section: "sandbox", Data: data}, nil
}

func (d *Dashboard) summary(v *visit, c relay.Captured) (captured, error) {
	out := captured{Captured: c, Subject: unnamed}
	index, r, err := d.Captured.Open(v.ctx, c)
	if err != nil {
		return out, err
	}
	defer r.Close() //nolint:errcheck // only read
	s, err := digest.ReadSummary(r, index)
	out.Subject, out.From = cmp.Or(s.Subject, unnamed), s.From
	return out, err
}

// capture finds the captured message that the path names.
func (d *Dashboard) capture(v *visit) (relay.Captured, error) {
	if d.Captured == nil {
		return relay.Captured{}, notFound()
	}
	id, err := v.id("id")
	if err != nil {
		return relay.Captured{}, err
	}
	return d.Captured.Get(v.ctx, v.in.Account, "", id)
}

func (d *Dashboard) openCaptured(v *visit, told string) opener {
	return func() (*message.Index, *blob.Reader, error) {
		c, err := d.capture(v)
		if err == nil {
			err = v.reads(told+" of the sandbox", mailbox.Mailbox{})
		}
		if err != nil {
			return nil, nil, err
		}
		return d.Captured.Open(v.ctx, c)
	}
}

func (d *Dashboard) capturedMessage(v *visit) (page, error) {
	c, err := d.capture(v)
	if err != nil {
		return page{}, err
	}
	l, err := v.read("/sandbox/"+c.ID.String(), d.openCaptured(v, toldRead))
	return page{Template: "captured", Title: cmp.Or(l.Subject, unnamed), Section: "sandbox", Data: struct {
		Captured relay.Captured
		Letter   letter
	}{c, l}}, err
}

func (d *Dashboard) capturedPreview(v *visit) error { return v.preview(d.openCaptured(v, toldRead)) }

func (d *Dashboard) capturedRaw(v *visit) error {
	return v.raw(v.r.PathValue("id"), d.openCaptured(v, toldRaw))
}

func (d *Dashboard) capturedFile(v *visit) error { return v.attachment(d.openCaptured(v, toldFile)) }

func (d *Dashboard) clearSandbox(v *visit) (done, error) {
	if d.Captured == nil {
		return done{}, notFound()
	}
	return done{To: "/sandbox", Told: "Cleared the sandbox’s outbox."}, d.Captured.Clear(v.ctx, v.in.Account, "")
}
