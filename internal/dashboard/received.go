// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/summary"
)

// redirectReceived redirects the former list of received messages to the message list.
func (d *Dashboard) redirectReceived(v *requestContext) error {
	q := v.r.URL.Query()
	q.Set("direction", directionReceived)
	if from := q.Get("sender"); from != "" {
		q.Set("from", from)
		q.Del("sender")
	}
	http.Redirect(v.w, v.r, "/messages?"+q.Encode(), http.StatusMovedPermanently)
	return nil
}

// receivedMessagePage is the data of a received message's page.
type receivedMessagePage struct {
	Kept     folder.StoredMessage
	Mailbox  mailbox.Mailbox
	At       time.Time
	Findings []checkExplanation
	Score    string // of the spam filter; "" if it didn't check the message
	Reasons  []spamReason
	Letter   messageView
	Sealed   bool // whether only a mail client shows it
}

// findReceived returns the message that the path names, in a mailbox of the account.
func (d *Dashboard) findReceived(v *requestContext) (box mailbox.Mailbox, k folder.StoredMessage, err error) {
	at, err := v.pathID("box")
	if err != nil {
		return box, k, err
	}
	id, err := v.pathID("id")
	if err != nil {
		return box, k, err
	}
	if box, err = d.Mailboxes.Get(v.ctx, v.session.Account, at); err != nil {
		return box, k, err
	}
	k, err = d.Folders.Message(v.ctx, box.ID, id)
	return box, k, err
}

func (d *Dashboard) receivedMessage(v *requestContext) (page, error) {
	box, k, err := d.findReceived(v)
	if err != nil {
		return page{}, err
	}
	results := summary.ParseCheckResults(k.CheckResults)
	data := receivedMessagePage{Kept: k, Mailbox: box, Findings: explainChecks(results), Reasons: spamReasons(string(results.SpamReasons))}
	if results.Spam != "none" {
		data.Score = strconv.FormatFloat(float64(results.SpamScore), 'f', -1, 64)
	}
	for i, p := range k.Locations {
		if i == 0 || p.Date.Before(data.At) {
			data.At = p.Date
		}
	}
	if data.Letter, err = v.readMessage("/received/"+box.ID.String()+"/"+k.ID.String(), d.receivedOpener(v, auditReadMessage)); fault.Is(err, fault.Denied) {
		data.Sealed, err = true, nil
	}
	return page{Template: "arrived", Title: cmp.Or(data.Letter.Subject, noSubject), Section: "messages", Data: data}, err
}

// receivedOpener returns an opener of the message that the path names. told is the audit log
// description.
func (d *Dashboard) receivedOpener(v *requestContext, told string) messageOpener {
	return func() (*message.Structure, *blob.Reader, error) {
		box, k, err := d.findReceived(v)
		if err == nil {
			err = v.auditMailRead(told, box)
		}
		if err != nil {
			return nil, nil, err
		}
		return d.Folders.OpenParts(v.ctx, k.ID)
	}
}

func (d *Dashboard) receivedPreview(v *requestContext) error {
	return v.writePreview(d.receivedOpener(v, auditReadMessage))
}

func (d *Dashboard) receivedRaw(v *requestContext) error {
	return v.downloadRaw(v.r.PathValue("id"), d.receivedOpener(v, auditDownloadedMessage))
}

func (d *Dashboard) receivedAttachment(v *requestContext) error {
	return v.downloadAttachment(d.receivedOpener(v, auditDownloadedFile))
}
