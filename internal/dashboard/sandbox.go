// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/relay"
	"github.com/mailstead/mailstead/internal/summary"
)

// capturedView is a message in the sandbox's outbox.
type capturedView struct {
	relay.CapturedMessage
	Subject string
	From    []summary.Address
}

// sandbox lists the captured outgoing messages.
func (d *Dashboard) sandbox(v *requestContext) (page, error) {
	if d.SandboxOutbox == nil {
		return page{}, notFound()
	}
	p := v.listPage()
	list, more, err := d.SandboxOutbox.List(v.ctx, v.session.Account, "", p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []capturedView
		Pager pager
		First string // a mailbox to write to; "" if there is none
	}{}
	boxes, _, err := d.Mailboxes.List(v.ctx, v.session.Account, mailbox.Filter{}, db.Page{Limit: 1})
	if err != nil {
		return page{}, err
	}
	for _, m := range boxes {
		data.First = m.Address
	}
	for _, c := range list {
		one, err := d.newCapturedView(v, c)
		if _, err = v.reportLost(err); err != nil && !fault.Is(err, fault.NotFound) { // it may have been deleted in the meantime
			return page{}, err
		}
		data.List = append(data.List, one)
	}
	if n := len(list); n > 0 {
		data.Pager = newPager("/sandbox", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "sandbox", Title: "Sandbox", Section: "sandbox", Data: data}, nil
}

func (d *Dashboard) newCapturedView(v *requestContext, c relay.CapturedMessage) (capturedView, error) {
	out := capturedView{CapturedMessage: c, Subject: noSubject}
	index, r, err := d.SandboxOutbox.Open(v.ctx, c)
	if err != nil {
		return out, err
	}
	defer r.Close() //nolint:errcheck // only read
	s, err := summary.ReadSummary(r, index)
	out.Subject, out.From = cmp.Or(s.Subject, noSubject), s.From
	return out, err
}

// findCaptured returns the captured message that the path names.
func (d *Dashboard) findCaptured(v *requestContext) (relay.CapturedMessage, error) {
	if d.SandboxOutbox == nil {
		return relay.CapturedMessage{}, notFound()
	}
	id, err := v.pathID("id")
	if err != nil {
		return relay.CapturedMessage{}, err
	}
	return d.SandboxOutbox.Get(v.ctx, v.session.Account, "", id)
}

func (d *Dashboard) capturedOpener(v *requestContext, told string) messageOpener {
	return func() (*message.Structure, *blob.Reader, error) {
		c, err := d.findCaptured(v)
		if err == nil {
			err = v.auditMailRead(told+" of the sandbox", mailbox.Mailbox{})
		}
		if err != nil {
			return nil, nil, err
		}
		return d.SandboxOutbox.Open(v.ctx, c)
	}
}

func (d *Dashboard) capturedMessage(v *requestContext) (page, error) {
	c, err := d.findCaptured(v)
	if err != nil {
		return page{}, err
	}
	l, err := v.readMessage("/sandbox/"+c.ID.String(), d.capturedOpener(v, auditReadMessage))
	return page{Template: "captured", Title: cmp.Or(l.Subject, noSubject), Section: "sandbox", Data: struct {
		Captured relay.CapturedMessage
		Letter   messageView
	}{c, l}}, err
}

func (d *Dashboard) capturedPreview(v *requestContext) error {
	return v.writePreview(d.capturedOpener(v, auditReadMessage))
}

func (d *Dashboard) capturedRaw(v *requestContext) error {
	return v.downloadRaw(v.r.PathValue("id"), d.capturedOpener(v, auditDownloadedMessage))
}

func (d *Dashboard) capturedAttachment(v *requestContext) error {
	return v.downloadAttachment(d.capturedOpener(v, auditDownloadedFile))
}

func (d *Dashboard) clearSandbox(v *requestContext) (actionResult, error) {
	if d.SandboxOutbox == nil {
		return actionResult{}, notFound()
	}
	return actionResult{RedirectTo: "/sandbox", Summary: "Cleared the sandbox’s outbox."}, d.SandboxOutbox.Clear(v.ctx, v.session.Account, "")
}
