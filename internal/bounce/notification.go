// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"encoding/json"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// notification is what Amazon SES tells of a message in JSON, as SNS mails it:
// by itself, or as a text within the Message of an envelope.
type notification struct {
	Message          string // of the envelope
	NotificationType string
	EventType        string // the same, of event publishing
	Mail             struct {
		Source  string // MAIL FROM
		Headers []struct{ Name, Value string }
	}
	Complaint struct {
		ComplainedRecipients  []notified
		ComplaintFeedbackType string
	}
	Bounce struct {
		BouncedRecipients []notified
		ReportingMTA      string
	}
	DeliveryDelay struct {
		DelayedRecipients []notified
	}
}

// notified is what it tells of one recipient.
type notified struct {
	EmailAddress, Action, Status, DiagnosticCode string
}

// maxNotification is how many bytes of one are read. SES cuts the headers in it
// at 10 KB.
const maxNotification = 64 << 10

// readNotification finds a notification in a text. A message that came with its
// long lines broken has "!", a line end and a blank in it (sendmail).
func readNotification(text string) (n notification, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || len(text) > maxNotification {
		return n, false
	}
	text = strings.ReplaceAll(text, "!\n ", "")
	for range 2 {
		n = notification{}
		if json.NewDecoder(strings.NewReader(text)).Decode(&n) != nil {
			return n, false
		}
		if n.NotificationType == "" {
			n.NotificationType = n.EventType
		}
		if n.NotificationType != "" {
			return n, true
		}
		text = n.Message
	}
	return n, false
}

// notified takes a notification of SES for a report; false if the message is
// none that it knows.
func (p *parts) notified(r *Report) bool {
	for _, text := range p.texts {
		n, ok := readNotification(text)
		if !ok {
			continue
		}
		var of []notified
		switch n.NotificationType {
		case "Complaint":
			of = n.Complaint.ComplainedRecipients
			p.complaint(r)
			if kind := oneWord(n.Complaint.ComplaintFeedbackType); kind != "" {
				r.Feedback.Type = kind
			}
			r.settleFeedback()
		case "Bounce":
			r.Kind, of = Failure, n.Bounce.BouncedRecipients
		case "DeliveryDelay":
			r.Kind, of = Delay, n.DeliveryDelay.DelayedRecipients
		case "Delivery":
			r.Kind = Success
		default:
			return false
		}
		for _, to := range of[:min(len(of), maxRecipients)] {
			s := status{final: to.EmailAddress, status: to.Status, diagnostic: to.DiagnosticCode, remote: n.Bounce.ReportingMTA}
			s.clean()
			switch {
			case s.final == "":
			case r.Kind == Failure, r.Kind == Delay:
				r.Recipients = append(r.Recipients, s.recipient("", ""))
			default:
				r.Recipients = append(r.Recipients, Recipient{Address: s.final})
			}
		}
		r.Original = n.header()
		return r.Kind != Failure || len(r.Recipients) > 0
	}
	return false
}

// header is that of the message that the notification is about.
func (n *notification) header() message.Header {
	var b strings.Builder
	field := func(name, value string) {
		line := oneLine(name) + ": " + oneLine(value) + "\r\n"
		if !strings.ContainsAny(name, ": \t\r\n") && name != "" && b.Len()+len(line) <= maxOriginal {
			b.WriteString(line)
		}
	}
	if n.Mail.Source != "" {
		field("Return-Path", "<"+n.Mail.Source+">")
	}
	for _, h := range n.Mail.Headers {
		field(h.Name, h.Value)
	}
	return message.Header(b.String())
}

// oneWord is the first word of a text, in lower case.
func oneWord(s string) string {
	s = strings.ToLower(firstWord(oneLine(s)))
	return strings.ToValidUTF8(s[:min(len(s), 50)], "")
}
