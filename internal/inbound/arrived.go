// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// arrival is the data of an inbound_email event.
type arrival struct {
	ID          db.ID      `json:"id"`
	Mailbox     db.ID      `json:"mailbox_id"`
	Domain      db.ID      `json:"domain_id"`
	Address     string     `json:"mailbox"`
	Envelope    envelope   `json:"envelope"`
	Tag         string     `json:"tag,omitempty"`
	MessageID   string     `json:"message_id"`
	ThreadID    string     `json:"thread_id"`
	From        []person   `json:"from"`
	To          []person   `json:"to"`
	Cc          []person   `json:"cc"`
	Subject     string     `json:"subject"`
	Date        *time.Time `json:"date"` // as its author says; null if that can't be read
	Size        int64      `json:"size"`
	Attachments int        `json:"attachments"`
}

type envelope struct {
	From string `json:"from"` // "" for the null sender
	To   string `json:"to"`
}

type person struct {
	Name  string `json:"name,omitempty"`
	Email string `json:"email"`
}

// Bounds of what an event repeats of a header that anyone may have written.
const (
	maxMessageID = 998
	maxSubject   = 2000
	maxPeople    = 50
	maxPerson    = 512
)

func (s *spooled) arrived(to mailbox.Recipient, in folder.Incoming, from, rcpt string) arrival {
	e := s.header.Envelope()
	a := arrival{
		Mailbox: to.Mailbox, Domain: to.Domain, Address: to.Address, Envelope: envelope{From: from, To: rcpt}, Tag: to.Tag,
		MessageID: in.MessageID, ThreadID: in.Place.Thread, From: people(e.From), To: people(e.To), Cc: people(e.Cc), Subject: clip(e.Subject, maxSubject),
		Size: in.Blob.Size,
	}
	if !e.Date.IsZero() {
		date := e.Date.UTC()
		a.Date = &date
	}
	for n := range s.index.Parts {
		if s.index.Parts[n].Attachment() {
			a.Attachments++
		}
	}
	return a
}

func people(list []message.Address) []person {
	some := make([]person, 0, min(len(list), maxPeople))
	for _, a := range list[:min(len(list), maxPeople)] {
		some = append(some, person{Name: clip(a.Name, maxPerson), Email: clip(a.String(), maxPerson)})
	}
	return some
}

// clip makes header text fit for a column: at most n bytes of valid UTF-8
// without NUL.
func clip(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
}
