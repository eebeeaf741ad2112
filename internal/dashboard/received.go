// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/digest"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
)

// received leads to the one list of messages, from where the list of those that
// were received once was.
func (d *Dashboard) received(v *visit) error {
	q := v.r.URL.Query()
	q.Set("direction", inward)
	if from := q.Get("sender"); from != "" {
		q.Set("from", from)
		q.Del("sender")
	}
	http.Redirect(v.w, v.r, "/messages?"+q.Encode(), http.StatusMovedPermanently)
	return nil
}

// arrived is what the page of a received message shows.
type arrived struct {
	Kept     folder.Kept
	Mailbox  mailbox.Mailbox
	At       time.Time
	Findings []finding
	Score    string // the spam filter's; "" if it was not asked
	Reasons  []weighed
	Letter   letter
	Sealed   bool // only a mail program shows it
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
	data := arrived{Kept: k, Mailbox: box, Findings: findings(verdicts), Reasons: weights(verdicts.SpamReasons)}
	if verdicts.Spam != "none" {
		data.Score = strconv.FormatFloat(verdicts.SpamScore, 'f', -1, 64)
	}
	for i, p := range k.Places {
		if i == 0 || p.Date.Before(data.At) {
			data.At = p.Date
		}
	}
	if data.Letter, err = v.read("/received/"+box.ID.String()+"/"+k.ID.String(), d.openReceived(v, toldRead)); fault.Is(err, fault.Denied) {
		data.Sealed, err = true, nil
	}
	return page{Template: "arrived", Title: cmp.Or(data.Letter.Subject, unnamed), Section: "messages", Data: data}, err
}

// openReceived opens the message that the path names. told says what for.
func (d *Dashboard) openReceived(v *visit, told string) opener {
	return func() (*message.Index, *blob.Reader, error) {
		box, k, err := d.kept(v)
		if err == nil {
			err = v.reads(told, box)
		}
		if err != nil {
			return nil, nil, err
		}
		return d.Folders.OpenParts(v.ctx, k.ID)
	}
}

func (d *Dashboard) receivedPreview(v *visit) error { return v.preview(d.openReceived(v, toldRead)) }

func (d *Dashboard) receivedRaw(v *visit) error {
	return v.raw(v.r.PathValue("id"), d.openReceived(v, toldRaw))
}

func (d *Dashboard) receivedFile(v *visit) error { return v.attachment(d.openReceived(v, toldFile)) }
