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

// phoneTokenLifetime is for how long the link works that a phone scans.
const phoneTokenLifetime = time.Hour

// setupPage is what the page shows that sets up a mail client: the customer's
// and the mailbox owner's.
type setupPage struct {
	Mailbox   mailbox.Mailbox
	Settings  clientsetup.Settings
	Mutt      string
	Path      string // of the page: what else it needs is below it
	Access    string // the page of its app passwords
	OwnersURL string // where the mailbox's owner signs in
	QR        template.URL
	Trials    []clientsetup.CheckResult // nil unless a check was asked for
	Works     bool                      // all trials are well
}

func (d *Dashboard) newSetupPage(m mailbox.Mailbox, path string) (setupPage, error) {
	s := setupPage{Mailbox: m, Settings: d.ClientSetup.Settings(m.Address, m.DisplayName), Path: path, Access: accessPath(m), OwnersURL: d.BaseURL + "/mailbox"}
	if path == "/mailbox" {
		s.Access = ownerAccessPath
	}
	s.Mutt = muttrc(s.Settings)
	var err error
	s.QR, err = qrCode(d.PhoneProfileURL(m.ID))
	return s, err
}

// PhoneProfileURL is a URL that gives the profile of a mailbox for an hour to whoever
// has it: it leads to settings, not to a password.
func (d *Dashboard) PhoneProfileURL(mailbox db.ID) string {
	return d.BaseURL + "/phone/" + d.signToken(phoneTokenKind, signedToken{Mailbox: mailbox, ExpiresAt: d.Now().Add(phoneTokenLifetime)})
}

// getClientSetup shows how a mail client reaches a mailbox.
func (d *Dashboard) clientSetup(v *requestContext) (page, error) {
	m, err := d.findMailbox(v)
	if err != nil {
		return page{}, err
	}
	s, err := d.newSetupPage(m, "/mailboxes/"+m.ID.String()+"/setup")
	return page{Template: "setup", Title: "Set up a mail client", Section: "mailboxes", Data: s}, err
}

// checkClientSetup tries the doors, and shows the page with what became of it.
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

// mailboxProfile is the profile for Apple's clients.
func (d *Dashboard) mailboxProfile(v *requestContext) error {
	m, err := d.findMailbox(v)
	if err != nil {
		return err
	}
	return d.sendProfile(v, m, "")
}

// profileByToken gives the profile to who has scanned the picture: it holds no password.
func (d *Dashboard) profileByToken(v *requestContext) error {
	t, ok := d.verifyToken(phoneTokenKind, v.r.PathValue("ticket"))
	if !ok {
		return fault.New(fault.NotFound, "link_expired", "This link works for an hour, and that is over. Show the page with the picture again.")
	}
	m, err := d.Mailboxes.ByID(v.ctx, t.Mailbox)
	if err != nil {
		return err
	}
	return d.sendProfile(v, m, "")
}

// muttrc is the configuration of mutt for a mailbox. What stands in single
// quotes there is nothing but text, whatever a name has in it.
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
