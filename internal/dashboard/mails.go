// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/queue"
)

// Directions of messages; "" is both.
const (
	outward = "sent"
	inward  = "received"
)

// mail is a message of the list, whichever way it went.
type mail struct {
	ID       db.ID
	Path     string
	Out      bool
	Arrived  bool // not of those that a client, or a migration, put into a mailbox
	Subject  string
	From, To string
	More     int // recipients beside the one that is shown
	State    string
	At       time.Time
	mailbox  db.ID
}

// mails is what the list of messages shows.
type mails struct {
	List      []mail
	Pager     pager
	States    [][2]string
	Folders   [][2]string // of the chosen mailbox
	Boxes     []string    // to choose from
	Ways      []way
	Direction string
	Box       string // the address of the chosen mailbox
	Searched  bool   // for anything
	Further   bool   // with the fields that are folded away
	AnyBox    bool
}

// way is a link to the messages of one direction, or both.
type way struct {
	Name, Icon, To string
	Now            bool
}

func ways(q url.Values, direction string) (all []way) {
	for _, w := range []way{{Name: "All", Icon: "mail"}, {Name: "Sent", Icon: "arrow-up-right", To: outward}, {Name: "Received", Icon: "arrow-down-left", To: inward}} {
		w.Now = w.To == direction
		to := url.Values{}
		for name, values := range q {
			if !slices.Contains([]string{"after", "before", "direction", "folder"}, name) && values[0] != "" && (w.To != inward || name != "status" && name != "metadata") {
				to.Set(name, values[0])
			}
		}
		if w.To != "" {
			to.Set("direction", w.To)
		}
		w.To = "/messages"
		if len(to) > 0 {
			w.To += "?" + to.Encode()
		}
		all = append(all, w)
	}
	return all
}

// messages lists what was sent and what was received, in the order of time.
func (d *Dashboard) messages(v *visit) (page, error) {
	search := v.searched()
	data := mails{States: states, Direction: search.Get("direction"),
		Searched: asks(search, "recipient", "from", "subject", "status", "metadata", "since", "until", "thread", "mailbox"), Further: asks(search, "from", "metadata", "since", "until", "thread", "mailbox")}
	shown := page{Template: "messages", Title: "Messages", Section: "messages"}
	if data.Direction != outward && data.Direction != inward {
		data.Direction = ""
	}
	if !v.in.Mail {
		if data.Direction == inward {
			return page{}, errMail
		}
		data.Direction = outward
	}
	switch data.Direction {
	case outward:
		shown.Title = "Sent messages"
	case inward:
		shown.Title = "Received messages"
	}
	if v.in.Mail {
		data.Ways = ways(search, data.Direction)
	}
	var err error
	if data.Boxes, err = d.someBoxes(v, suggested); err != nil {
		return page{}, err
	}
	data.AnyBox = len(data.Boxes) > 0
	at := v.pageOf()
	l, err := d.lookFor(v, search, data.Direction)
	if err == nil {
		if data.Box = l.box.Address; data.Box != "" {
			v.form.Set("mailbox", data.Box)
			data.Folders, err = d.folderChoices(v, l.box.ID)
		}
	}
	if err == nil {
		err = d.findBoth(v, l, at)
	}
	if err != nil {
		if !v.mark(err) {
			return page{}, err
		}
		shown.Status, _ = status(fault.Invalid)
		data.Further = true
	}
	if l != nil {
		data.List = l.found
		var first, last db.ID
		if n := len(l.found); n > 0 {
			first, last = l.found[0].ID, l.found[n-1].ID
		}
		data.Pager = pagerIn("/messages", search, at, len(l.found), l.more, first, last, l.next)
	}
	shown.Data = data
	return shown, nil
}

// looked is a search of both kinds of messages, and what it found.
type looked struct {
	direction string
	box       mailbox.Mailbox // the chosen one, if there is
	whole     bool            // what lies in it, not only what arrived
	out       outbound.Filter
	in        folder.KeptFilter
	addressee mailbox.Mailbox // the one that the recipient is the address of

	found []mail
	more  bool
	next  db.ID
}

// lookFor reads what is looked for; all faults are told at once, those of the
// rooms too.
func (d *Dashboard) lookFor(v *visit, q url.Values, direction string) (*looked, error) {
	l := &looked{direction: direction}
	var bad fault.Fields
	var err error
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	if name := text("mailbox"); name != "" {
		if l.box, err = d.boxMeant(v, name); fault.Is(err, fault.Invalid) {
			bad.Add("mailbox", "not_found", "There is no mailbox of yours with this address.")
		} else if err != nil {
			return nil, err
		}
	}
	since, until := day(&bad, q, "since"), day(&bad, q, "until")
	if !until.IsZero() {
		until = until.AddDate(0, 0, 1) // that day too
	}
	l.out = sentFilter(&bad, q)
	l.out.Since, l.out.Until, l.out.Mailbox = since, until, l.box.ID
	l.in = folder.KeptFilter{From: text("from"), To: text("recipient"), Words: strings.Fields(text("subject")), Thread: text("thread"), Since: since, Until: until}
	if l.out.Status != "" || len(l.out.Metadata)+len(l.out.MetadataKeys) > 0 { // only what was sent has these
		if l.direction == inward {
			bad.Add("status", "sent_only", "Only sent messages have a state or metadata.")
		}
		l.direction = outward
	}
	if l.whole = l.direction == inward && l.box.ID != 0; l.whole {
		l.in.Folder = strings.ToValidUTF8(strings.ReplaceAll(q.Get("folder"), "\x00", ""), "")
	}
	l.in.Arrived = !l.whole
	for _, f := range []struct {
		of  string
		err error
	}{{inward, l.out.Check()}, {outward, renamed(l.in.Check(), "to", "recipient")}} {
		if l.direction == f.of {
			continue
		}
		if err := bad.Merge(renamed(renamed(renamed(f.err, "created_after", "since"), "created_before", "until"), "thread_id", "thread")); err != nil {
			return nil, err
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if strings.Contains(l.in.To, "@") {
		if l.addressee, err = d.boxMeant(v, l.in.To); err != nil && !fault.Is(err, fault.Invalid) {
			return nil, err
		}
	}
	return l, nil
}

// boxMeant finds a mailbox of the account by its address or id: a fault.Invalid
// for an address of none, a fault.NotFound for an id.
func (d *Dashboard) boxMeant(v *visit, text string) (mailbox.Mailbox, error) {
	if !strings.Contains(text, "@") {
		return d.chosenBox(v, text)
	}
	var bad fault.Fields
	into, err := d.boxNamed(v, &bad, "mailbox", text)
	if err == nil {
		err = bad.Err()
	}
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return d.Mailboxes.Get(v.ctx, v.in.Account, into.Mailbox)
}

// sentFilter reads what only sent messages can be looked for by, and what both
// can.
func sentFilter(bad *fault.Fields, q url.Values) outbound.Filter {
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f := outbound.Filter{Recipient: text("recipient"), From: text("from"), Subject: text("subject"), Thread: text("thread"), Status: queue.State(text("status"))}
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
	return f
}

// findBoth finds a page of messages. A list that was not read to its end bounds
// what can be told of the other.
func (d *Dashboard) findBoth(v *visit, l *looked, at db.Page) error {
	back := at.After == 0 && at.Before != 0
	bound := func(more bool, to db.ID) {
		if more && (!l.more || back && to < l.next || !back && to > l.next) {
			l.next = to
		}
		l.more = l.more || more
	}
	if l.direction != inward {
		l.out.WithoutContent = !v.in.Mail
		found, err := d.Outbox.Find(v.ctx, v.in.Account, l.out, at)
		if err != nil {
			return err
		}
		for _, m := range found.Messages {
			if !v.in.Mail {
				m = m.WithoutContent()
			}
			l.found = append(l.found, sentMail(m))
		}
		bound(found.More, found.Next)
	}
	if l.direction != outward {
		if err := v.reads("Listed received messages", l.box); err != nil {
			return err
		}
		found, more, next, err := d.arrivals(v, l, at)
		if err != nil {
			return err
		}
		for _, k := range found {
			l.found = append(l.found, keptMail(k))
		}
		bound(more, next)
	}
	slices.SortFunc(l.found, func(a, b mail) int {
		if back {
			a, b = b, a
		}
		return cmp.Compare(b.ID, a.ID)
	})
	if l.more {
		l.found = slices.DeleteFunc(l.found, func(m mail) bool { return back && m.ID > l.next || !back && m.ID < l.next })
	}
	if len(l.found) > at.Limit {
		l.found, l.more = l.found[:at.Limit], true
		l.next = l.found[at.Limit-1].ID
	}
	if back {
		slices.Reverse(l.found)
	}
	return d.nameBoxes(v, l)
}

// arrivals finds what was received: in the chosen mailbox, in that of the
// recipient, or in all.
func (d *Dashboard) arrivals(v *visit, l *looked, at db.Page) ([]folder.Kept, bool, db.ID, error) {
	filter, box := l.in, l.box.ID
	if l.addressee.ID != 0 {
		if box != 0 && box != l.addressee.ID {
			return nil, false, 0, nil
		}
		filter.To, box = "", l.addressee.ID
	}
	if box != 0 {
		return d.Folders.Messages(v.ctx, box, filter, at)
	}
	return d.Folders.Received(v.ctx, v.in.Account, filter, at)
}

// nameBoxes tells the mailboxes of what was received, and leaves out what lies
// in deleted ones.
func (d *Dashboard) nameBoxes(v *visit, l *looked) error {
	addresses := map[db.ID]string{}
	for _, m := range l.found {
		if _, known := addresses[m.mailbox]; known || m.mailbox == 0 {
			continue
		}
		box, err := d.Mailboxes.Get(v.ctx, v.in.Account, m.mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		addresses[m.mailbox] = box.Address
	}
	l.found = slices.DeleteFunc(l.found, func(m mail) bool { return m.mailbox != 0 && addresses[m.mailbox] == "" })
	for i := range l.found {
		if m := &l.found[i]; m.mailbox != 0 {
			m.To = addresses[m.mailbox]
		}
	}
	return nil
}

func sentMail(m outbound.Message) mail {
	out := mail{ID: m.ID, Path: "/messages/" + m.ID.String(), Out: true, Subject: m.Subject, From: m.From, State: string(m.Status), At: m.CreatedAt}
	if n := len(m.Deliveries); n > 0 {
		out.To, out.More = m.Deliveries[0].Recipient, n-1
	}
	return out
}

func keptMail(k folder.Kept) mail {
	in := mail{ID: k.ID, Path: "/received/" + k.Mailbox.String() + "/" + k.ID.String(), Arrived: k.Arrived, Subject: k.Summary.Subject, At: k.ID.Time(), mailbox: k.Mailbox}
	for i, p := range k.Summary.From {
		if i > 0 {
			in.From += ", "
		}
		in.From += cmp.Or(p.Name, p.Email)
		if p.Name != "" && p.Email != "" {
			in.From += " <" + p.Email + ">"
		}
	}
	for i, p := range k.Places {
		if i > 0 {
			in.State += ", "
		}
		in.State += p.Folder
	}
	return in
}

func (d *Dashboard) chosenBox(v *visit, id string) (mailbox.Mailbox, error) {
	box, err := db.ParseID(id)
	if err != nil {
		return mailbox.Mailbox{}, notFound()
	}
	return d.Mailboxes.Get(v.ctx, v.in.Account, box)
}

func (d *Dashboard) folderChoices(v *visit, box db.ID) ([][2]string, error) {
	folders, err := d.Folders.Folders(v.ctx, box)
	choices := [][2]string{{"", "All folders"}}
	for _, f := range folders {
		choices = append(choices, [2]string{f.Name, f.Name})
	}
	return choices, err
}
