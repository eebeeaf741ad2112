// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"bytes"

	"github.com/mailstead/mailstead/client"
)

func (h *fixture) mailboxes() {
	h.Helper()
	ctx := h.Context()
	_, err := h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: nobody, LocalPart: "x", Password: "weak"})
	refused(h, "all wrong", err, 422, "validation_failed", "domain_id not_found", "password too_short", "password missing_uppercase", "password missing_digit",
		"password missing_special")
	_, err = h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: h.domain, LocalPart: "x", Password: "Weak-", QuotaMB: -1})
	refused(h, "no quota", err, 422, "validation_failed", "quota_mb out_of_range", "password too_short", "password missing_digit")
	m, err := h.c.CreateMailbox(ctx, client.NewMailbox{DomainID: h.domain, LocalPart: "carol", DisplayName: "<Carol>", QuotaMB: 5})
	h.want("making", err)
	if m.Password == "" || m.Address != "carol@demo.test" || m.DisplayName != "<Carol>" || m.QuotaMB != 5 || m.Status != "active" || m.DomainID != h.domain {
		h.Errorf("made %+v", m)
	}
	if m, err = h.c.GetMailbox(ctx, m.ID); err != nil || m.Password != "" || m.LocalPart != "carol" {
		h.Errorf("shown as %+v, %v", m, err)
	}
	if m, err = h.c.UpdateMailbox(ctx, m.ID, client.MailboxChange{DisplayName: new(""), Status: new("suspended")}); err != nil ||
		m.DisplayName != "" || m.Status != "suspended" || m.QuotaMB != 5 {
		h.Errorf("changed to %+v, %v", m, err)
	}
	_, err = h.c.UpdateMailbox(ctx, m.ID, client.MailboxChange{QuotaMB: new(0), Status: new("asleep")})
	refused(h, "wrong changes", err, 422, "validation_failed", "quota_mb out_of_range", "status unknown_value")
	if got, err := h.c.SetMailboxPassword(ctx, m.ID, ""); err != nil || len(got) < 8 {
		h.Errorf("generated %q, %v", got, err)
	}
	if got, err := h.c.SetMailboxPassword(ctx, m.ID, "C0rrect<horse>"); err != nil || got != "" {
		h.Errorf("answered %q, %v", got, err)
	}
	_, err = h.c.SetMailboxPassword(ctx, m.ID, "short")
	refused(h, "a weak password", err, 422, "validation_failed", "password too_short", "password missing_uppercase", "password missing_digit", "password missing_special")
	if all := collect(h, h.c.Mailboxes(ctx, client.MailboxFilter{DomainIDs: []string{h.domain}})); len(all) != 3 || all[0].ID != m.ID {
		h.Errorf("the mailboxes are %+v", all)
	}
	if check, err := h.c.CheckClientSetup(ctx, m.ID); err != nil || !check.OK || len(check.Listeners) != 4 || len(check.Listeners[0].Steps) != 3 || check.Listeners[0].Port == 0 {
		h.Errorf("%+v %v", check, err)
	}
	if setup, err := h.c.GetClientSetup(ctx, m.ID); err != nil || setup.Username != m.Address || len(setup.IMAP) != 2 || setup.IMAP[0].Security != "tls" || len(setup.SMTP) != 2 || setup.SMTP[1].Security != "starttls" {
		h.Errorf("set up %+v, %v", setup, err)
	}
	if profile, err := h.c.CreateAppleProfile(ctx, m.ID, "Phone"); err != nil || !bytes.Contains(profile, []byte("IncomingPassword")) {
		h.Errorf("the profile with a password: %v\n%s", err, profile)
	}
	if profile, err := h.c.GetAppleProfile(ctx, m.ID); err != nil || !bytes.Contains(profile, []byte(m.Address)) {
		h.Errorf("a profile %s, %v", profile, err)
	}
	h.want("deleting", h.c.DeleteMailbox(ctx, m.ID))
	page, err := h.c.ListMailboxes(ctx, client.MailboxFilter{Deleted: true}, client.Paging{})
	if err != nil || len(page.Data) != 1 || page.Data[0].DeletedAt == nil {
		h.Errorf("the deleted ones are %+v, %v", page, err)
	}
	if m, err = h.c.RestoreMailbox(ctx, m.ID); err != nil || m.DeletedAt != nil {
		h.Errorf("restored %+v, %v", m, err)
	}
	_, err = h.c.RestoreMailbox(ctx, m.ID)
	refused(h, "restoring one that lives", err, 409, "not_deleted")
}
