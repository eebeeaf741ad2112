// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// mergedBoxes is how many mailboxes are shown in one list.
const mergedBoxes = 25

type receivedList struct {
	List     []folder.Kept
	Boxes    map[db.ID]string // addresses
	Choices  [][2]string
	Folders  [][2]string // of the chosen mailbox
	Pager    pager
	Searched bool
	Partly   bool // there are more mailboxes than are shown
}

// received lists what lies in mailboxes: in one, or in the newest of them.
func (d *Dashboard) received(v *visit) (page, error) {
	search := v.searched()
	data := receivedList{Boxes: map[db.ID]string{}, Choices: [][2]string{{"", "All mailboxes"}}, Searched: asks(search, "sender", "subject", "since", "folder")}
	shown := page{Template: "received", Title: "Received messages", Section: "messages"}
	boxes, more, err := d.Mailboxes.List(v.ctx, v.in.Account, mailbox.Filter{}, db.Page{Limit: db.MaxPage})
	if err != nil {
		return page{}, err
	}
	for _, b := range boxes {
		data.Choices = append(data.Choices, [2]string{b.ID.String(), b.Address})
	}
	if name := search.Get("mailbox"); name != "" {
		box, err := d.chosenBox(v, name)
		if err != nil {
			return page{}, err
		}
		if data.Folders, err = d.folderChoices(v, box.ID); err != nil {
			return page{}, err
		}
		if !slices.ContainsFunc(boxes, func(b mailbox.Mailbox) bool { return b.ID == box.ID }) {
			data.Choices = append(data.Choices, [2]string{box.ID.String(), box.Address})
		}
		boxes = []mailbox.Mailbox{box}
	} else if more || len(boxes) > mergedBoxes {
		boxes, data.Partly = boxes[:min(len(boxes), mergedBoxes)], true
	}
	for _, b := range boxes {
		data.Boxes[b.ID] = b.Address
	}
	at := v.pageOf()
	filter, err := receivedFilter(search)
	var next db.ID
	if err == nil {
		data.List, more, next, err = d.arrivals(v, boxes, filter, at)
	}
	if err != nil {
		if !v.mark(err) {
			return page{}, err
		}
		shown.Status, _ = status(fault.Invalid)
		more = false
	}
	var first, last db.ID
	if n := len(data.List); n > 0 {
		first, last = data.List[0].ID, data.List[n-1].ID
	}
	data.Pager = pagerIn("/received", search, at, len(data.List), more, first, last, next)
	shown.Data = data
	return shown, nil
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

func receivedFilter(q url.Values) (folder.KeptFilter, error) {
	var bad fault.Fields
	f := folder.KeptFilter{From: strings.TrimSpace(q.Get("sender")), Subject: strings.TrimSpace(q.Get("subject")), Since: day(&bad, q, "since")}
	if q.Get("mailbox") != "" {
		f.Folder = strings.ToValidUTF8(strings.ReplaceAll(q.Get("folder"), "\x00", ""), "")
	}
	if err := bad.Merge(renamed(f.Check(), "from", "sender")); err != nil {
		return f, err
	}
	return f, bad.Err()
}

// arrivals merges the lists of some mailboxes, in the order of arrival. A list
// that was not read to its end bounds what can be told of the others.
func (d *Dashboard) arrivals(v *visit, boxes []mailbox.Mailbox, f folder.KeptFilter, at db.Page) (all []folder.Kept, more bool, next db.ID, err error) {
	back := at.After == 0 && at.Before != 0
	nearest := func(a, b folder.Kept) int {
		if back {
			a, b = b, a
		}
		return cmp.Compare(b.ID, a.ID)
	}
	for _, b := range boxes {
		found, rest, to, err := d.Folders.Messages(v.ctx, b.ID, f, at)
		if err != nil {
			return nil, false, 0, err
		}
		all = append(all, found...)
		if rest && (!more || back && to < next || !back && to > next) {
			next = to
		}
		more = more || rest
	}
	slices.SortFunc(all, nearest)
	if more {
		all = slices.DeleteFunc(all, func(k folder.Kept) bool { return back && k.ID > next || !back && k.ID < next })
	}
	if len(all) > at.Limit {
		all, more = all[:at.Limit], true
		next = all[at.Limit-1].ID
	}
	if back {
		slices.Reverse(all)
	}
	return all, more, next, nil
}

// arrived is what the page of a received message shows.
type arrived struct {
	Kept     folder.Kept
	Mailbox  mailbox.Mailbox
	At       time.Time
	Verdicts []pair
	Letter   letter
}

// kept finds the message that the path names, in a mailbox of the account.
func (d *Dashboard) kept(v *visit) (box mailbox.Mailbox, k folder.Kept, err error) {
	at, err := v.id("box")
	if err != nil {
		return box, k, err
	}
	id, err := v.id("id")
	if err != nil {
		return box, k, err
	}
	if box, err = d.Mailboxes.Get(v.ctx, v.in.Account, at); err != nil {
		return box, k, err
	}
	k, err = d.Folders.Message(v.ctx, box.ID, id)
	return box, k, err
}

func (d *Dashboard) receivedMessage(v *visit) (page, error) {
	box, k, err := d.kept(v)
	if err != nil {
		return page{}, err
	}
	verdicts := digest.ParseVerdicts(k.Verdicts)
	data := arrived{Kept: k, Mailbox: box, Verdicts: []pair{{"SPF", verdicts.SPF}, {"DKIM", verdicts.DKIM}, {"DMARC", verdicts.DMARC}, {"Spam filter", verdicts.Spam}}}
	for i, p := range k.Places {
		if i == 0 || p.Date.Before(data.At) {
			data.At = p.Date
		}
	}
	if data.Letter, err = read("/received/"+box.ID.String()+"/"+k.ID.String(), d.openReceived(v)); err != nil {
		return page{}, err
	}
	return page{Template: "arrived", Title: cmp.Or(data.Letter.Subject, unnamed), Section: "messages", Data: data}, nil
}

func (d *Dashboard) openReceived(v *visit) opener {
	return func() (*message.Index, *blob.Reader, error) {
		_, k, err := d.kept(v)
		if err != nil {
			return nil, nil, err
		}
		return d.Folders.OpenParts(v.ctx, k.ID)
	}
}

func (d *Dashboard) receivedPreview(v *visit) error { return v.preview(d.openReceived(v)) }

func (d *Dashboard) receivedRaw(v *visit) error {
	return v.raw(v.r.PathValue("id"), d.openReceived(v))
}

func (d *Dashboard) receivedFile(v *visit) error { return v.attachment(d.openReceived(v)) }
