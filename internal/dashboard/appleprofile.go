// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"html/template"
	"time"

	"github.com/mailstead/mailstead/internal/mailbox"
)

// writeAppleProfile responds with a mailbox's configuration profile for Apple devices, with a
// password unless it is "".
func (d *Dashboard) writeAppleProfile(v *requestContext, m mailbox.Mailbox, password string) error {
	text, err := d.ClientSetup.AppleProfile(v.ctx, m.Address, m.DisplayName, password)
	if err != nil {
		return err
	}
	v.w.Header().Set("Content-Type", "application/x-apple-aspen-config")
	v.w.Header().Set("Content-Disposition", `attachment; filename="mail.mobileconfig"`)
	_, _ = v.w.Write(text) // the client may have disconnected
	return nil
}

// createProfileFor creates an app password for a device and returns it only inside the profile.
func (d *Dashboard) createProfileFor(v *requestContext, m mailbox.Mailbox) (actionResult, error) {
	made, password, err := d.Mailboxes.CreateAppPassword(v.ctx, m.Account, m.ID, v.formText("name"), []string{string(mailbox.IMAP), string(mailbox.SMTP)})
	return actionResult{Summary: "Made a profile of " + m.Address + " with an app password for " + made.Name + ".", Respond: func() error { return d.writeAppleProfile(v, m, password) }}, err
}

// profileLinkPage shows a profile link for a phone once.
type profileLinkPage struct {
	Mailbox mailbox.Mailbox
	Name    string // name of the device
	Path    string // path of the page that created it
	URL     string
	QR      template.URL
	Until   time.Time
}

// createProfileLinkFor creates a one-time link to a profile with an app password.
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

// profileLink shows the page behind a profile link. It creates nothing, so that link scanners don't
// use the link up.
func (d *Dashboard) profileLink(v *requestContext) (page, error) {
	v.signedIn = false
	m, name, err := d.Mailboxes.FindProfileLink(v.ctx, v.r.PathValue("token"))
	return page{Template: "phone-once", Title: "Set up mail", Data: profileLinkPage{Mailbox: m, Name: name, Path: v.r.URL.Path}}, err
}

// redeemProfileLink uses the link up and responds with the profile and its password.
func (d *Dashboard) redeemProfileLink(v *requestContext) (actionResult, error) {
	m, made, password, err := d.Mailboxes.RedeemProfileLink(v.ctx, v.r.PathValue("token"))
	v.setMailboxOwner(m)
	return actionResult{Summary: "Took the profile of " + m.Address + " with an app password for " + made.Name + ".",
		Respond: func() error { return d.writeAppleProfile(v, m, password) }}, err
}
