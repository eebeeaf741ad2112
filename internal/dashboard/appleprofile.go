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
func (d *Dashboard) sendProfile(v *requestContext, m mailbox.Mailbox, password string) error {
	var signer *tls.Certificate
	if d.ProfileSigner != nil {
		var err error
		if signer, err = d.ProfileSigner(v.ctx); err != nil {
			// A profile works without; the device says that it is not signed.
			d.Log.WarnContext(v.ctx, "signing a profile", "mailbox", m.ID, "error", err)
			signer = nil
		}
	}
	text, err := d.ClientSetup.Profile(m.Address, m.DisplayName, password, signer)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/x-apple-aspen-config")
	v.w.Header().Set("Content-Disposition", `attachment; filename="mail.mobileconfig"`)
	_, _ = v.w.Write(text) // whoever has gone needs no answer
	return nil
}

// createProfileFor makes an app password for a device, and gives it within the
// profile alone.
func (d *Dashboard) createProfileFor(v *requestContext, m mailbox.Mailbox) (actionResult, error) {
	made, password, err := d.Mailboxes.CreateAppPassword(v.ctx, m.Account, m.ID, v.formText("name"), []string{string(mailbox.IMAP), string(mailbox.SMTP)})
	return actionResult{Summary: "Made a profile of " + m.Address + " with an app password for " + made.Name + ".", Respond: func() error { return d.sendProfile(v, m, password) }}, err
}

// profileLinkPage is a link for a phone, which is shown once.
type profileLinkPage struct {
	Mailbox mailbox.Mailbox
	Name    string // of the device
	Path    string // of the page that it comes from
	URL     string
	QR      template.URL
	Until   time.Time
}

// createProfileLinkFor makes a link that gives a phone the profile with an app password, once.
func (d *Dashboard) createProfileLinkFor(v *requestContext, m mailbox.Mailbox, path string) (actionResult, error) {
	token, err := d.Mailboxes.CreateProfileLink(v.ctx, m.Account, m.ID, v.formText("name"))
	if err != nil {
		return actionResult{}, err
	}
	l := profileLinkPage{Mailbox: m, Name: v.formText("name"), Path: path, URL: d.BaseURL + "/phone/once/" + token, Until: d.Now().Add(mailbox.ProfileLinkTTL)}
	l.QR, err = qrCode(l.URL)
	return actionResult{Summary: "Made a link to a profile of " + m.Address + " with an app password for " + l.Name + ".",
		Page: &page{Template: "phone-link", Title: "A profile for " + l.Name, Section: "mailboxes", Data: l}}, err
}

func (d *Dashboard) createProfile(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.createProfileFor(v, m)
}

func (d *Dashboard) createProfileLink(v *requestContext) (actionResult, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.createProfileLinkFor(v, m, "/mailboxes/"+m.ID.String()+"/setup")
}

func (d *Dashboard) createOwnerProfile(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	return d.createProfileFor(v, m)
}

func (d *Dashboard) createOwnerProfileLink(v *requestContext) (actionResult, error) {
	m, err := d.requireOwner(v)
	if err != nil {
		return actionResult{}, err
	}
	did, err := d.createProfileLinkFor(v, m, "/mailbox")
	if err != nil {
		return actionResult{}, err
	}
	did.Page.Owner = m.Address
	return did, nil
}

// profileLink is what a phone sees that has followed the link. Nothing is made yet:
// programs that only look at links spend none.
func (d *Dashboard) profileLink(v *requestContext) (page, error) {
	v.signedIn = false
	m, name, err := d.Mailboxes.FindProfileLink(v.ctx, v.r.PathValue("token"))
	return page{Template: "phone-once", Title: "Set up mail", Data: profileLinkPage{Mailbox: m, Name: name, Path: v.r.URL.Path}}, err
}

// redeemProfileLink spends the link: the phone gets the profile with its password.
func (d *Dashboard) redeemProfileLink(v *requestContext) (actionResult, error) {
	m, made, password, err := d.Mailboxes.RedeemProfileLink(v.ctx, v.r.PathValue("token"))
	v.setOwner(m)
	return actionResult{Summary: "Took the profile of " + m.Address + " with an app password for " + made.Name + ".",
		Respond: func() error { return d.sendProfile(v, m, password) }}, err
}
