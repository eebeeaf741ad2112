// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/folder/search"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/outbound/index"
	"github.com/mailstead/mailstead/internal/queue"
)

// Directions of messages; "" means both.
const (
	directionSent     = "sent"
	directionReceived = "received"
)

// messageRow is a sent or received message in the list.
type messageRow struct {
	ID       db.ID
	Path     string
	Out      bool
	Arrived  bool // false for a message that a client or a migration stored
	Subject  string
	From, To string
	More     int // number of recipients in addition to the one shown
	State    string
	At       time.Time
	mailbox  db.ID
}

// messagesPage is the data of the message list.
type messagesPage struct {
	List      []messageRow
	Pager     pager
	States    [][2]string
	Folders   [][2]string // of the selected mailbox
	Boxes     []string    // suggested mailboxes
	Ways      []directionLink
	Direction string
	Box       string // address of the selected mailbox
	Searched  bool   // whether any filter is set
	Further   bool   // whether to show the additional filters
	AnyBox    bool
}

// directionLink is a link to the messages of one direction, or of both.
type directionLink struct {
	Name, Icon, To string
	Now            bool
}

func directionLinks(q url.Values, direction string) (all []directionLink) {
	for _, w := range []directionLink{{Name: "All", Icon: "mail"}, {Name: "Sent", Icon: "arrow-up-right", To: directionSent}, {Name: "Received", Icon: "arrow-down-left", To: directionReceived}} {
		w.Now = w.To == direction
		to := url.Values{}
		for name, values := range q {
			if !slices.Contains([]string{"after", "before", "direction", "folder"}, name) && values[0] != "" && (w.To != directionReceived || name != "status" && name != "metadata") {
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

// messages lists the sent and received messages by time.
func (d *Dashboard) messages(v *requestContext) (page, error) {
	search := v.readSearch()
	data := messagesPage{States: stateOptions, Direction: search.Get("direction"),
		Searched: anyFilled(search, "recipient", "from", "subject", "status", "metadata", "tag", "since", "until", "thread", "mailbox"), Further: anyFilled(search, "from", "metadata", "tag", "since", "until", "thread", "mailbox")}
	shown := page{Template: "messages", Title: "Messages", Section: "messages"}
	if data.Direction != directionSent && data.Direction != directionReceived {
		data.Direction = ""
	}
	if !v.session.ReadsMail {
		if data.Direction == directionReceived {
			return page{}, errMailAccess
		}
		data.Direction = directionSent
	}
	switch data.Direction {
	case directionSent:
		shown.Title = "Sent messages"
	case directionReceived:
		shown.Title = "Received messages"
	}
	if v.session.ReadsMail {
		data.Ways = directionLinks(search, data.Direction)
	}
	var err error
	if data.Boxes, err = d.suggestMailboxes(v, maxSuggestions); err != nil {
		return page{}, err
	}
	data.AnyBox = len(data.Boxes) > 0
	at := v.listPage()
	l, err := d.parseMessageSearch(v, search, data.Direction)
	if err == nil {
		if data.Box = l.mailbox.Address; data.Box != "" {
			v.form.Set("mailbox", data.Box)
			data.Folders, err = d.folderOptions(v, l.mailbox.ID)
		}
	}
	if err == nil {
		err = d.searchMessages(v, l, at)
	}
	if err != nil {
		if !v.setFormErrors(err) {
			return page{}, err
		}
		shown.Status = http.StatusUnprocessableEntity
		data.Further = true
	}
	if l != nil {
		data.List = l.results
		var first, last db.ID
		if n := len(l.results); n > 0 {
			first, last = l.results[0].ID, l.results[n-1].ID
		}
		data.Pager = newSearchPager("/messages", search, at, len(l.results), l.more, first, last, l.next)
	}
	shown.Data = data
	return shown, nil
}

// messageSearch is a search for sent and received messages, and its results.
type messageSearch struct {
	direction        string
	mailbox          mailbox.Mailbox // the selected mailbox, if any
	wholeMailbox     bool            // whether to list all its messages, not only received ones
	sentFilter       index.Filter
	receivedFilter   search.MessageFilter
	recipientMailbox mailbox.Mailbox // the mailbox with the recipient's address

	results []messageRow
	more    bool
	next    db.ID
}

// parseMessageSearch parses the filters. It reports all faults at once, including those of the
// filters' own checks.
func (d *Dashboard) parseMessageSearch(v *requestContext, q url.Values, direction string) (*messageSearch, error) {
	l := &messageSearch{direction: direction}
	var bad fault.FieldErrors
	var err error
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	if name := text("mailbox"); name != "" {
		if l.mailbox, err = d.resolveMailbox(v, name); fault.Is(err, fault.Invalid) {
			bad.Add("mailbox", "not_found", "There is no mailbox of yours with this address.")
		} else if err != nil {
			return nil, err
		}
	}
	since, until := parseDate(&bad, q, "since"), parseDate(&bad, q, "until")
	if !until.IsZero() {
		until = until.AddDate(0, 0, 1) // including that day
	}
	l.sentFilter = parseSentFilter(&bad, q)
	l.sentFilter.Since, l.sentFilter.Until = since, until
	if l.mailbox.ID != 0 {
		l.sentFilter.Mailboxes = []db.ID{l.mailbox.ID}
	}
	l.receivedFilter = search.MessageFilter{From: text("from"), To: text("recipient"), Words: strings.Fields(text("subject")), Thread: text("thread"), Since: since, Until: until}
	if len(l.sentFilter.Statuses)+len(l.sentFilter.Metadata)+len(l.sentFilter.MetadataKeys)+len(l.sentFilter.Tags) > 0 { // only sent messages have these
		if l.direction == directionReceived {
			bad.Add("status", "sent_only", "Only sent messages have a state, metadata or tags.")
		}
		l.direction = directionSent
	}
	if l.wholeMailbox = l.direction == directionReceived && l.mailbox.ID != 0; l.wholeMailbox {
		l.receivedFilter.Folder = strings.ToValidUTF8(strings.ReplaceAll(q.Get("folder"), "\x00", ""), "")
	}
	l.receivedFilter.ReceivedOnly = !l.wholeMailbox
	for _, f := range []struct {
		of  string
		err error
	}{{directionReceived, l.sentFilter.Check()}, {directionSent, renameField(l.receivedFilter.Check(), "to", "recipient")}} {
		if l.direction == f.of {
			continue
		}
		if err := bad.Merge(renameField(renameField(renameField(f.err, "created_after", "since"), "created_before", "until"), "thread_id", "thread")); err != nil {
			return nil, err
		}
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	if strings.Contains(l.receivedFilter.To, "@") {
		if l.recipientMailbox, err = d.resolveMailbox(v, l.receivedFilter.To); err != nil && !fault.Is(err, fault.Invalid) {
			return nil, err
		}
	}
	return l, nil
}

// resolveMailbox returns the account's mailbox with an address or an id. It returns a fault.Invalid
// for an unknown address and a fault.NotFound for an unknown id.
func (d *Dashboard) resolveMailbox(v *requestContext, text string) (mailbox.Mailbox, error) {
	if !strings.Contains(text, "@") {
		return d.mailboxByID(v, text)
	}
	var bad fault.FieldErrors
	into, err := d.mailboxByAddress(v, &bad, "mailbox", text)
	if err == nil {
		err = bad.Err()
	}
	if err != nil {
		return mailbox.Mailbox{}, err
	}
	return d.Mailboxes.Get(v.ctx, v.session.Account, into.Mailbox)
}

// parseSentFilter parses the filters for sent messages, including those that also apply to received
// ones.
func parseSentFilter(bad *fault.FieldErrors, q url.Values) index.Filter {
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f := index.Filter{Subject: text("subject"), Thread: text("thread")}
	if one := text("recipient"); one != "" {
		f.Recipients = []string{one}
	}
	if one := text("from"); one != "" {
		f.From = []string{one}
	}
	if status := queue.State(text("status")); status != "" {
		if !status.Valid() {
			bad.Add("status", "unknown_status", "Choose one of the states.")
		}
		f.Statuses = []queue.State{status}
	}
	list := func(name string) []string {
		return strings.FieldsFunc(text(name), func(c rune) bool { return c == ',' || c == '\n' })
	}
	for _, t := range list("tag") {
		f.Tags = append(f.Tags, strings.TrimSpace(t))
	}
	for _, part := range list("metadata") {
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

// searchMessages returns a page of messages. If one of the two lists was not read to its end, the
// page ends where that list stopped.
func (d *Dashboard) searchMessages(v *requestContext, l *messageSearch, at db.Page) error {
	back := at.After == 0 && at.Before != 0
	bound := func(more bool, to db.ID) {
		if more && (!l.more || back && to < l.next || !back && to > l.next) {
			l.next = to
		}
		l.more = l.more || more
	}
	if l.direction != directionReceived {
		l.sentFilter.Redacted = !v.session.ReadsMail
		found, err := d.Outbox.Index.Find(v.ctx, v.session.Account, l.sentFilter, at)
		if err != nil {
			return err
		}
		for _, m := range found.Messages {
			if !v.session.ReadsMail {
				m = m.Redact()
			}
			l.results = append(l.results, sentRow(m))
		}
		bound(found.More, found.Next)
	}
	if l.direction != directionSent {
		if err := v.auditMailRead("Listed received messages", l.mailbox); err != nil {
			return err
		}
		found, more, next, err := d.searchReceived(v, l, at)
		if err != nil {
			return err
		}
		for _, k := range found {
			l.results = append(l.results, receivedRow(k))
		}
		bound(more, next)
	}
	slices.SortFunc(l.results, func(a, b messageRow) int {
		if back {
			a, b = b, a
		}
		return cmp.Compare(b.ID, a.ID)
	})
	if l.more {
		l.results = slices.DeleteFunc(l.results, func(m messageRow) bool { return back && m.ID > l.next || !back && m.ID < l.next })
	}
	if len(l.results) > at.Limit {
		l.results, l.more = l.results[:at.Limit], true
		l.next = l.results[at.Limit-1].ID
	}
	if back {
		slices.Reverse(l.results)
	}
	return d.fillAddressesAndDropDeleted(v, l)
}

// searchReceived searches received messages: in the selected mailbox, in the recipient's mailbox,
// or in all.
func (d *Dashboard) searchReceived(v *requestContext, l *messageSearch, at db.Page) ([]folder.StoredMessage, bool, db.ID, error) {
	filter, box := l.receivedFilter, l.mailbox.ID
	if l.recipientMailbox.ID != 0 {
		if box != 0 && box != l.recipientMailbox.ID {
			return nil, false, 0, nil
		}
		filter.To, box = "", l.recipientMailbox.ID
	}
	if box != 0 {
		return d.Searcher.ListMessages(v.ctx, box, filter, at)
	}
	return d.Searcher.ListReceived(v.ctx, v.session.Account, filter, at)
}

// fillAddressesAndDropDeleted adds the mailbox addresses of received messages, and removes messages
// in deleted mailboxes.
func (d *Dashboard) fillAddressesAndDropDeleted(v *requestContext, l *messageSearch) error {
	addresses := map[db.ID]string{}
	for _, m := range l.results {
		if _, known := addresses[m.mailbox]; known || m.mailbox == 0 {
			continue
		}
		box, err := d.Mailboxes.Get(v.ctx, v.session.Account, m.mailbox)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		addresses[m.mailbox] = box.Address
	}
	l.results = slices.DeleteFunc(l.results, func(m messageRow) bool { return m.mailbox != 0 && addresses[m.mailbox] == "" })
	for i := range l.results {
		if m := &l.results[i]; m.mailbox != 0 {
			m.To = addresses[m.mailbox]
		}
	}
	return nil
}

func sentRow(m outbound.Message) messageRow {
	out := messageRow{ID: m.ID, Path: "/messages/" + m.ID.String(), Out: true, Subject: m.Subject, From: m.From, State: string(m.Status), At: m.CreatedAt}
	if n := len(m.Deliveries); n > 0 {
		out.To, out.More = m.Deliveries[0].Recipient, n-1
	}
	return out
}

func receivedRow(k folder.StoredMessage) messageRow {
	in := messageRow{ID: k.ID, Path: "/received/" + k.Mailbox.String() + "/" + k.ID.String(), Arrived: k.Received, Subject: k.Summary.Subject, At: k.ID.Time(), mailbox: k.Mailbox}
	for i, p := range k.Summary.From {
		if i > 0 {
			in.From += ", "
		}
		in.From += cmp.Or(string(p.Name), p.Email)
		if p.Name != "" && p.Email != "" {
			in.From += " <" + p.Email + ">"
		}
	}
	for i, p := range k.Locations {
		if i > 0 {
			in.State += ", "
		}
		in.State += p.Folder
	}
	return in
}

func (d *Dashboard) mailboxByID(v *requestContext, id string) (mailbox.Mailbox, error) {
	box, err := db.ParseID(id)
	if err != nil {
		return mailbox.Mailbox{}, notFound()
	}
	return d.Mailboxes.Get(v.ctx, v.session.Account, box)
}

func (d *Dashboard) folderOptions(v *requestContext, box db.ID) ([][2]string, error) {
	folders, err := d.Folders.List(v.ctx, box)
	choices := [][2]string{{"", "All folders"}}
	for _, f := range folders {
		choices = append(choices, [2]string{f.Name, f.Name})
	}
	return choices, err
}
