// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/clientsetup"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// phoneTokenLifetime is how long the link in the QR code works.
const phoneTokenLifetime = time.Hour

// setupPage is the data of the page with mail client settings, for the customer and for the mailbox
// owner.
type setupPage struct {
	Mailbox   mailbox.Mailbox
	Settings  clientsetup.Settings
	Mutt      string
	Path      string // path of the page; related paths are below it
	Access    string // path of the app passwords page
	OwnersURL string // URL where the mailbox owner signs in
	QR        template.URL
	Trials    []clientsetup.CheckResult // nil unless a check was requested
	Works     bool                      // whether all checks passed
}

func (d *Dashboard) newSetupPage(m mailbox.Mailbox, path string) (setupPage, error) {
	s := setupPage{Mailbox: m, Settings: d.ClientSetup.Settings(m.Address, m.DisplayName), Path: path, Access: mailboxAccessPath(m), OwnersURL: d.BaseURL + "/mailbox"}
	if path == "/mailbox" {
		s.Access = ownerAccessPath
	}
	s.Mutt = muttrc(s.Settings)
	var err error
	s.QR, err = qrCode(d.PhoneProfileURL(m.ID))
	return s, err
}

// PhoneProfileURL returns a URL that serves a mailbox's configuration profile for an hour, without
// authentication. The profile has settings, but no password.
func (d *Dashboard) PhoneProfileURL(mailbox db.ID) string {
	return d.BaseURL + "/phone/" + d.signToken(phoneTokenKind, signedToken{Mailbox: mailbox, ExpiresAt: d.Now().Add(phoneTokenLifetime)})
}

// clientSetup shows the mail client settings of a mailbox.
func (d *Dashboard) clientSetup(v *requestContext) (page, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return page{}, err
	}
	s, err := d.newSetupPage(m, "/mailboxes/"+m.ID.String()+"/setup")
	return page{Template: "setup", Title: "Set up a mail client", Section: "mailboxes", Data: s}, err
}

// checkSetup tests the connections to the mail servers, and shows the page with the results.
func (d *Dashboard) checkSetup(v *requestContext) (actionResult, error) {
	p, err := d.clientSetup(v)
	if err != nil {
		return actionResult{}, err
	}
	s := p.Data.(setupPage)
	p.Data, err = d.runSetupCheck(v, s)
	return actionResult{Page: &p}, err
}

func (d *Dashboard) runSetupCheck(v *requestContext, s setupPage) (setupPage, error) {
	var err error
	s.Trials, err = d.SetupChecker.Check(v.ctx)
	s.Works = true
	for _, t := range s.Trials {
		s.Works = s.Works && t.OK()
	}
	return s, err
}

// mailboxProfile responds with the configuration profile for Apple devices.
func (d *Dashboard) mailboxProfile(v *requestContext) error {
	m, err := d.findMailbox(v)
	if err != nil {
		return err
	}
	return d.writeAppleProfile(v, m, "")
}

// profileByToken responds with the profile for the QR code's token. The profile has no password.
func (d *Dashboard) profileByToken(v *requestContext) error {
	t, ok := d.verifyToken(phoneTokenKind, v.r.PathValue("ticket"))
	if !ok {
		return fault.New(fault.NotFound, "link_expired", "This link works for an hour, and that is over. Show the page with the picture again.")
	}
	m, err := d.Mailboxes.ByID(v.ctx, t.Mailbox)
	if err != nil {
		return err
	}
	return d.writeAppleProfile(v, m, "")
}

// muttrc returns the mutt configuration for a mailbox. Names can't break out of it: mutt takes text
// in single quotes literally.
func muttrc(s clientsetup.Settings) string {
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
	in, out := s.Incoming[0], s.Outgoing[0]
	var b strings.Builder
	for _, line := range [][2]string{
		{"realname", quote(s.Name)}, {"from", quote(s.Address)}, {"use_envelope_from", "yes"},
		{"folder", quote(fmt.Sprintf("imaps://%s:%d/", in.Host, in.Port))}, {"imap_user", quote(s.Username)},
		{"spoolfile", "+INBOX"}, {"record", "+Sent"}, {"postponed", "+Drafts"}, {"trash", "+Trash"}, {"mbox", "+Archive"},
		{"smtp_url", quote(fmt.Sprintf("smtps://%s@%s:%d/", url.QueryEscape(s.Username), out.Host, out.Port))},
		{"ssl_force_tls", "yes"}, {"imap_idle", "yes"},
	} {
		if line[1] != "''" {
			fmt.Fprintf(&b, "set %s=%s\n", line[0], line[1])
		}
	}
	return b.String()
}
