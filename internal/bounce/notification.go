// SPDX-License-Identifier: Apache-2.0

package bounce

import (
	"encoding/json"
	"strings"

	"github.com/mailstead/mailstead/internal/message"
)

// sesNotification is an Amazon SES notification in JSON, as SNS sends it by mail: by itself, or as
// text in the Message of an envelope.
type sesNotification struct {
	Message          string // in an envelope
	NotificationType string
	EventType        string // NotificationType in event publishing
	Mail             struct {
		Source  string // MAIL FROM
		Headers []struct{ Name, Value string }
	}
	Complaint struct {
		ComplainedRecipients  []sesRecipient
		ComplaintFeedbackType string
	}
	Bounce struct {
		BouncedRecipients []sesRecipient
		ReportingMTA      string
	}
	DeliveryDelay struct {
		DelayedRecipients []sesRecipient
	}
}

// sesRecipient is the status of one recipient.
type sesRecipient struct {
	EmailAddress, Action, Status, DiagnosticCode string
}

// maxSESNotification is the size of a notification, in bytes. SES truncates its headers at 10 KB.
const maxSESNotification = 64 << 10

// readSESNotification parses a notification in a text. Where sendmail broke long lines, the text
// has "!", a line end and a space.
func readSESNotification(text string) (n sesNotification, ok bool) {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "{") || len(text) > maxSESNotification {
		return n, false
	}
	text = strings.ReplaceAll(text, "!\n ", "")
	for range 2 {
		n = sesNotification{}
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

// readSES parses an SES notification as a report. It returns false if the message is not a known
// notification.
func (p *reportParts) readSES(r *Report) bool {
	for _, text := range p.texts {
		n, ok := readSESNotification(text)
		if !ok {
			continue
		}
		var of []sesRecipient
		switch n.NotificationType {
		case "Complaint":
			of = n.Complaint.ComplainedRecipients
			p.readComplaint(r)
			if kind := cleanFirstWord(n.Complaint.ComplaintFeedbackType); kind != "" {
				r.Feedback.Type = kind
			}
			r.setFeedbackKind()
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
			s := recipientStatus{final: to.EmailAddress, code: to.Status, diagnostic: to.DiagnosticCode, remote: n.Bounce.ReportingMTA}
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

// header returns the header of the message that the notification is about.
func (n *sesNotification) header() message.Header {
	var b strings.Builder
	field := func(name, value string) {
		line := cleanDiagnostic(name) + ": " + cleanDiagnostic(value) + "\r\n"
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

// cleanFirstWord returns the first word of a text in lower case.
func cleanFirstWord(s string) string {
	s = strings.ToLower(firstWord(cleanDiagnostic(s)))
	return strings.ToValidUTF8(s[:min(len(s), 50)], "")
}
