// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"crypto/tls"
	"html/template"
	"time"

	"github.com/mailstead/mailstead/internal/mailbox"
)

// sendProfile answers with the profile of a mailbox for Apple's clients, with a
// password or, if it is "", without.
func (d *Dashboard) sendProfile(v *visit, m mailbox.Mailbox, password string) error {
	var signer *tls.Certificate
	if d.Signer != nil {
		var err error
		if signer, err = d.Signer(v.ctx); err != nil {
			// A profile works without; the device says that it is not signed.
			d.Log.WarnContext(v.ctx, "signing a profile", "mailbox", m.ID, "error", err)
			signer = nil
		}
	}
	text, err := d.Setup.Profile(m.Address, m.DisplayName, password, signer)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/x-apple-aspen-config")
	v.w.Header().Set("Content-Disposition", `attachment; filename="mail.mobileconfig"`)
	_, _ = v.w.Write(text) // whoever has gone needs no answer
	return nil
}

// giveProfile makes an app password for a device, and gives it within the
// profile alone.
func (d *Dashboard) giveProfile(v *visit, m mailbox.Mailbox) (done, error) {
	made, password, err := d.Mailboxes.CreateAppPassword(v.ctx, m.Account, m.ID, v.text("name"), []string{string(mailbox.IMAP), string(mailbox.SMTP)})
	return done{Told: "Made a profile of " + m.Address + " with an app password for " + made.Name + ".", Give: func() error { return d.sendProfile(v, m, password) }}, err
}

// phoneLink is a link for a phone, which is shown once.
type phoneLink struct {
	Mailbox mailbox.Mailbox
	Name    string // of the device
	Path    string // of the page that it comes from
	URL     string
	QR      template.URL
	Until   time.Time
}

// makeLink makes a link that gives a phone the profile with an app password, once.
func (d *Dashboard) makeLink(v *visit, m mailbox.Mailbox, path string) (done, error) {
	token, err := d.Mailboxes.NewProfileLink(v.ctx, m.Account, m.ID, v.text("name"))
	if err != nil {
		return done{}, err
	}
	l := phoneLink{Mailbox: m, Name: v.text("name"), Path: path, URL: d.Base + "/phone/once/" + token, Until: d.Now().Add(mailbox.LinkLife)}
	l.QR, err = qrCode(l.URL)
	return done{Told: "Made a link to a profile of " + m.Address + " with an app password for " + l.Name + ".",
		Show: &page{Template: "phone-link", Title: "A profile for " + l.Name, Section: "mailboxes", Data: l}}, err
}

func (d *Dashboard) profileWithPassword(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.giveProfile(v, m)
}

func (d *Dashboard) linkForPhone(v *visit) (done, error) {
	m, err := d.box(v)
	if err != nil {
		return done{}, err
	}
	return d.makeLink(v, m, "/mailboxes/"+m.ID.String()+"/setup")
}

func (d *Dashboard) ownProfileWithPassword(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	return d.giveProfile(v, m)
}

func (d *Dashboard) ownLinkForPhone(v *visit) (done, error) {
	m, err := d.owner(v)
	if err != nil {
		return done{}, err
	}
	did, err := d.makeLink(v, m, "/mailbox")
	if err != nil {
		return done{}, err
	}
	did.Show.Owner = m.Address
	return did, nil
}

// phoneOnce is what a phone sees that has followed the link. Nothing is made yet:
// programs that only look at links spend none.
func (d *Dashboard) phoneOnce(v *visit) (page, error) {
	v.known = false
	m, name, err := d.Mailboxes.ProfileLink(v.ctx, v.r.PathValue("token"))
	return page{Template: "phone-once", Title: "Set up mail", Data: phoneLink{Mailbox: m, Name: name, Path: v.r.URL.Path}}, err
}

// takeProfile spends the link: the phone gets the profile with its password.
func (d *Dashboard) takeProfile(v *visit) (done, error) {
	m, made, password, err := d.Mailboxes.SpendProfileLink(v.ctx, v.r.PathValue("token"))
	v.ownedBy(m)
	return done{Told: "Took the profile of " + m.Address + " with an app password for " + made.Name + ".",
		Give: func() error { return d.sendProfile(v, m, password) }}, err
}
