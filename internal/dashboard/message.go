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

// recipientDelivery is the delivery of a message to one recipient.
type recipientDelivery struct {
	queue.DeliveryStatus
	Tries []queue.Attempt
}

// Waits reports whether a next attempt is scheduled.
func (c recipientDelivery) Waits() bool {
	return !c.Held && (c.State == queue.Deferred || c.State == queue.Scheduled)
}

// sentMessagePage is the data of a sent message's page.
type sentMessagePage struct {
	Message  outbound.Message
	Courses  []recipientDelivery
	Moves    bool // whether it is being delivered: the page polls for updates
	Letter   messageView
	Sealed   bool   // whether only its recipient may read it
	Withheld bool   // whether the user may not read mail
	Mailbox  string // mailbox that submitted it
	Template string // name of the template
	Metadata []metadataItem

	Cancel, Retry, Reschedule bool // whether these actions are possible
}

func (d *Dashboard) loadSentMessage(v *requestContext) (s sentMessagePage, err error) {
	id, err := v.pathID("id")
	if err != nil {
		return s, err
	}
	if s.Message, err = d.Outbox.Get(v.ctx, v.session.Account, id); err != nil {
		return s, err
	}
	tries, err := d.Outbox.Attempts(v.ctx, v.session.Account, id)
	if err != nil {
		return s, err
	}
	if !v.session.ReadsMail {
		if s.Message = s.Message.Redact(); s.Message.Redacted {
			for i := range tries {
				tries[i].Transcript = "" // the transcript names the sender
			}
		}
	}
	for _, r := range s.Message.Deliveries {
		s.Courses = append(s.Courses, recipientDelivery{DeliveryStatus: r})
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

func (d *Dashboard) message(v *requestContext) (page, error) {
	s, err := d.loadSentMessage(v)
	if err != nil {
		return page{}, err
	}
	if s.Withheld = !v.session.ReadsMail; !s.Withheld {
		s.Letter, err = v.readMessage("/messages/"+s.Message.ID.String(), d.sentOpener(v, auditReadMessage))
	}
	if s.Sealed = fault.Is(err, fault.Denied); err != nil && !s.Sealed {
		return page{}, err
	}
	s.Metadata = flattenJSON(s.Message.Metadata)
	if s.Message.Mailbox != 0 {
		box, err := d.Mailboxes.Get(v.ctx, v.session.Account, s.Message.Mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return page{}, err
		}
		s.Mailbox = box.Address
	}
	if s.Message.Template != 0 {
		used, err := d.Templates.Get(v.ctx, v.session.Account, s.Message.Template)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return page{}, err
		}
		s.Template = used.Name
	}
	title := s.Message.Subject
	if title == "" {
		title = noSubject
	}
	return page{Template: "message", Title: title, Section: "messages", Data: s}, nil
}

// messageProgress is the part of the page that is updated during delivery.
func (d *Dashboard) messageProgress(v *requestContext) (page, error) {
	s, err := d.loadSentMessage(v)
	return page{Template: "message", Part: true, Data: s}, err
}

// sentOpener returns an opener of the message that the path names. told is the audit log
// description.
func (d *Dashboard) sentOpener(v *requestContext, told string) messageOpener {
	return func() (*message.Structure, *blob.Reader, error) {
		id, err := v.pathID("id")
		if err == nil {
			_, err = d.Outbox.Get(v.ctx, v.session.Account, id)
		}
		if err == nil {
			err = v.auditMailRead(told+" that was sent", mailbox.Mailbox{})
		}
		if err != nil {
			return nil, nil, err
		}
		return d.Outbox.OpenParts(v.ctx, v.session.Account, id)
	}
}

func (d *Dashboard) messagePreview(v *requestContext) error {
	return v.writePreview(d.sentOpener(v, auditReadMessage))
}

func (d *Dashboard) messageRaw(v *requestContext) error {
	return v.downloadRaw(v.r.PathValue("id"), d.sentOpener(v, auditDownloadedMessage))
}

func (d *Dashboard) messageAttachment(v *requestContext) error {
	return v.downloadAttachment(d.sentOpener(v, auditDownloadedFile))
}

func (d *Dashboard) cancelMessage(v *requestContext) (actionResult, error) {
	return d.changeMessage(v, "Cancelled", d.Outbox.Cancel)
}

func (d *Dashboard) retryMessage(v *requestContext) (actionResult, error) {
	return d.changeMessage(v, "Tried once more to deliver", d.Outbox.Retry)
}

func (d *Dashboard) rescheduleMessage(v *requestContext) (actionResult, error) {
	at, err := time.Parse("2006-01-02T15:04", v.formText("send_at"))
	if err != nil {
		var bad fault.FieldErrors
		bad.Add("send_at", "invalid_time", "Give a day and a time.")
		return actionResult{}, bad.Err()
	}
	return d.changeMessage(v, "Moved to "+at.Format("2 Jan 2006 15:04 UTC")+":", func(ctx context.Context, account, id db.ID) (outbound.Message, error) {
		return d.Outbox.Reschedule(ctx, account, id, at)
	})
}

func (d *Dashboard) changeMessage(v *requestContext, did string, change func(ctx context.Context, account, id db.ID) (outbound.Message, error)) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	m, err := change(v.ctx, v.session.Account, id)
	return actionResult{RedirectTo: "/messages/" + id.String(), Summary: did + " " + quoteSubject(m.Subject) + "."}, err
}
