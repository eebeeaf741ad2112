// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// course is what became of a message for one of its recipients.
type course struct {
	queue.Record
	Tries []queue.Attempt
}

// Waits reports whether it is tried at a time that is known.
func (c course) Waits() bool {
	return !c.Held && (c.State == queue.Deferred || c.State == queue.Scheduled)
}

// sent is what the page of a sent message shows.
type sent struct {
	Message  outbound.Message
	Courses  []course
	Moves    bool // it is on its way at this moment: the page follows
	Letter   letter
	Sealed   bool   // only its recipient reads it
	Withheld bool   // the visitor may not read mail
	Mailbox  string // that submitted it
	Template string // its name
	Metadata []pair

	Cancel, Retry, Reschedule bool // whether these can be done
}

func (d *Dashboard) sent(v *visit) (s sent, err error) {
	id, err := v.id("id")
	if err != nil {
		return s, err
	}
	if s.Message, err = d.Outbox.Get(v.ctx, v.in.Account, id); err != nil {
		return s, err
	}
	tries, err := d.Outbox.Attempts(v.ctx, v.in.Account, id)
	if err != nil {
		return s, err
	}
	if !v.in.Mail {
		if s.Message = s.Message.WithoutContent(); s.Message.Omitted {
			for i := range tries {
				tries[i].Transcript = "" // it names who sent it
			}
		}
	}
	for _, r := range s.Message.Deliveries {
		s.Courses = append(s.Courses, course{Record: r})
		switch r.State {
		case queue.Scheduled:
			s.Cancel, s.Reschedule = true, true
		case queue.Queued:
			s.Cancel, s.Moves = true, true
		case queue.Sending:
			s.Moves = true
		case queue.Deferred:
			s.Cancel, s.Retry = true, true
		case queue.Failed:
			s.Retry = true
		}
	}
	for _, t := range tries {
		if t.N < len(s.Courses) {
			s.Courses[t.N].Tries = append(s.Courses[t.N].Tries, t)
		}
	}
	return s, nil
}

func (d *Dashboard) message(v *visit) (page, error) {
	s, err := d.sent(v)
	if err != nil {
		return page{}, err
	}
	if s.Withheld = !v.in.Mail; !s.Withheld {
		s.Letter, err = v.read("/messages/"+s.Message.ID.String(), d.openSent(v, toldRead))
	}
	if s.Sealed = fault.Is(err, fault.Denied); err != nil && !s.Sealed {
		return page{}, err
	}
	s.Metadata = pairs(s.Message.Metadata)
	if s.Message.Mailbox != 0 {
		box, err := d.Mailboxes.Get(v.ctx, v.in.Account, s.Message.Mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return page{}, err
		}
		s.Mailbox = box.Address
	}
	if s.Message.Template != 0 {
		used, err := d.Templates.Get(v.ctx, v.in.Account, s.Message.Template)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return page{}, err
		}
		s.Template = used.Name
	}
	title := s.Message.Subject
	if title == "" {
		title = unnamed
	}
	return page{Template: "message", Title: title, Section: "messages", Data: s}, nil
}

// messageProgress is the part of the page that follows a message on its way.
func (d *Dashboard) messageProgress(v *visit) (page, error) {
	s, err := d.sent(v)
	return page{Template: "message", Part: true, Data: s}, err
}

// openSent opens the message that the path names. told says what for.
func (d *Dashboard) openSent(v *visit, told string) opener {
	return func() (*message.Index, *blob.Reader, error) {
		id, err := v.id("id")
		if err == nil {
			_, err = d.Outbox.Get(v.ctx, v.in.Account, id)
		}
		if err == nil {
			err = v.reads(told+" that was sent", mailbox.Mailbox{})
		}
		if err != nil {
			return nil, nil, err
		}
		return d.Outbox.OpenParts(v.ctx, v.in.Account, id)
	}
}

func (d *Dashboard) messagePreview(v *visit) error { return v.preview(d.openSent(v, toldRead)) }

func (d *Dashboard) messageRaw(v *visit) error {
	return v.raw(v.r.PathValue("id"), d.openSent(v, toldRaw))
}

func (d *Dashboard) messageFile(v *visit) error { return v.attachment(d.openSent(v, toldFile)) }

func (d *Dashboard) cancelMessage(v *visit) (done, error) {
	return d.changeMessage(v, "Cancelled", d.Outbox.Cancel)
}

func (d *Dashboard) retryMessage(v *visit) (done, error) {
	return d.changeMessage(v, "Tried once more to deliver", d.Outbox.Retry)
}

func (d *Dashboard) rescheduleMessage(v *visit) (done, error) {
	at, err := time.Parse("2006-01-02T15:04", v.text("send_at"))
	if err != nil {
		var bad fault.Fields
		bad.Add("send_at", "invalid_time", "Give a day and a time.")
		return done{}, bad.Err()
	}
	return d.changeMessage(v, "Moved to "+at.Format("2 Jan 2006 15:04 UTC")+":", func(ctx context.Context, account, id db.ID) (outbound.Message, error) {
		return d.Outbox.Reschedule(ctx, account, id, at)
	})
}

func (d *Dashboard) changeMessage(v *visit, did string, change func(ctx context.Context, account, id db.ID) (outbound.Message, error)) (done, error) {
	id, err := v.id("id")
	if err != nil {
		return done{}, err
	}
	m, err := change(v.ctx, v.in.Account, id)
	return done{To: "/messages/" + id.String(), Told: did + " " + subject(m.Subject) + "."}, err
}
