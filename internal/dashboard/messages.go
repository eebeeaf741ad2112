// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// states are the choices of a search.
var states = [][2]string{
	{"", "Any"}, {"scheduled", "Scheduled"}, {"queued", "Queued"}, {"sending", "Sending"}, {"deferred", "Deferred"}, {"delivered", "Delivered"},
	{"bounced", "Bounced"}, {"complained", "Complained"}, {"suppressed", "Suppressed"}, {"failed", "Failed"}, {"cancelled", "Cancelled"},
}

// messages lists what was sent, by the API and by mailboxes.
func (d *Dashboard) messages(v *visit) (page, error) {
	search := v.searched()
	data := struct {
		List     []outbound.Message
		Pager    pager
		States   [][2]string
		Searched bool // for anything
		Further  bool // with the fields that are folded away
	}{States: states, Searched: asks(search, "recipient", "from", "subject", "status", "metadata", "since", "until"), Further: asks(search, "from", "metadata", "since", "until")}
	shown := page{Template: "messages", Title: "Messages", Section: "messages"}
	filter, err := messageFilter(search)
	var found outbound.Found
	at := v.pageOf()
	if err == nil {
		found, err = d.Outbox.Find(v.ctx, v.in.Account, filter, at)
	}
	if err != nil {
		if !v.mark(renamed(renamed(err, "created_after", "since"), "created_before", "until")) {
			return page{}, err
		}
		shown.Status, _ = status(fault.Invalid)
		data.Further = true
	}
	data.List = found.Messages
	var first, last db.ID
	if n := len(found.Messages); n > 0 {
		first, last = found.Messages[0].ID, found.Messages[n-1].ID
	}
	data.Pager = pagerIn("/messages", search, at, len(found.Messages), found.More, first, last, found.Next)
	shown.Data = data
	return shown, nil
}

// asks reports whether any of some fields was filled in.
func asks(search url.Values, fields ...string) bool {
	for _, f := range fields {
		if strings.TrimSpace(search.Get(f)) != "" {
			return true
		}
	}
	return false
}

// messageFilter reads what is looked for; all faults are told at once, those
// of the room too.
func messageFilter(q url.Values) (f outbound.Filter, err error) {
	var bad fault.Fields
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f = outbound.Filter{
		Recipient: text("recipient"), From: text("from"), Subject: text("subject"), Status: queue.State(text("status")),
		Since: day(&bad, q, "since"), Until: day(&bad, q, "until"),
	}
	if !f.Until.IsZero() {
		f.Until = f.Until.AddDate(0, 0, 1) // that day too
	}
	if f.Status != "" && !f.Status.Valid() {
		bad.Add("status", "unknown_status", "Choose one of the states.")
	}
	for _, part := range strings.FieldsFunc(text("metadata"), func(c rune) bool { return c == ',' || c == '\n' }) {
		key, value, both := strings.Cut(strings.TrimSpace(part), "=")
		if !both {
			f.MetadataKeys = append(f.MetadataKeys, key)
			continue
		}
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	if err := bad.Merge(f.Check()); err != nil {
		return f, err
	}
	return f, bad.Err()
}

// day reads a date.
func day(bad *fault.Fields, q url.Values, name string) time.Time {
	text := strings.TrimSpace(q.Get(name))
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		bad.Add(name, "invalid_date", "Give a date such as 2026-01-31.")
	}
	return t
}

// unnamed stands where a message has no subject.
const unnamed = "(no subject)"

// subject is a message's, for sentences.
func subject(text string) string { return "“" + cmp.Or(strings.TrimSpace(text), unnamed) + "”" }
