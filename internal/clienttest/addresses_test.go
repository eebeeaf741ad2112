// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/mailbox"
)

// aliases creates, changes, lists and deletes aliases.
func (h *fixture) aliases() {
	ctx := h.Context()
	a, err := h.c.CreateAlias(ctx, "Info@demo.test", "alice@demo.test", h.boxes[1])
	h.want("an alias", err)
	if a.Address != "Info@demo.test" || a.DomainID != h.domain || !slices.Equal(a.Targets, []string{"alice@demo.test", "bob@demo.test"}) || a.CreatedAt.IsZero() {
		h.Errorf("made %+v", a)
	}
	if _, err := h.c.CreateAlias(ctx, "alice@demo.test", h.boxes[1]); !errors.Is(err, client.ErrConflict) {
		h.Errorf("for a mailbox's address: %v", err)
	}
	if a, err = h.c.UpdateAlias(ctx, a.ID, h.boxes[1]); err != nil || len(a.Targets) != 1 || a.UpdatedAt.Before(a.CreatedAt) {
		h.Errorf("changed to %+v, %v", a, err)
	}
	var all []string
	for one, err := range h.c.Aliases(ctx, h.domain) {
		h.want("listing aliases", err)
		all = append(all, one.ID)
	}
	if !slices.Equal(all, []string{a.ID}) {
		h.Errorf("listed %v", all)
	}
	if got, err := h.c.GetAlias(ctx, a.ID); err != nil || got.ID != a.ID {
		h.Errorf("showed %+v, %v", got, err)
	}
	h.want("deleting an alias", h.c.DeleteAlias(ctx, a.ID))
	if _, err := h.c.GetAlias(ctx, a.ID); !errors.Is(err, client.ErrNotFound) {
		h.Errorf("a deleted alias: %v", err)
	}
}

// logins creates, lists and revokes app passwords, and lists sign-ins.
func (h *fixture) logins() {
	ctx, box := h.Context(), h.boxes[1]
	p, err := h.c.CreateAppPassword(ctx, box, "Phone", "smtp")
	h.want("an app password", err)
	if p.Name != "Phone" || !slices.Equal(p.Protocols, []string{"smtp"}) || len(p.Password) < 26 || p.LastUsedAt != nil {
		h.Errorf("made %+v", p)
	}
	from := netip.MustParseAddr("192.0.2.77")
	if _, err := h.s.Mailboxes.Authenticate(ctx, mailbox.SMTP, "bob@demo.test", p.Password, from); err != nil {
		h.Error(err)
	}
	all, err := h.c.ListAppPasswords(ctx, box, client.Paging{Limit: 10})
	if err != nil || len(all.Data) != 1 || all.Data[0].ID != p.ID || all.Data[0].Password != "" || all.Data[0].LastUsedAt == nil {
		h.Errorf("listed %+v, %v", all, err)
	}
	seen, err := h.c.ListSignIns(ctx, box, client.Paging{Limit: 1})
	if err != nil || len(seen.Data) != 1 || seen.Data[0].IP != from.String() || seen.Data[0].AppPassword != "Phone" || seen.Data[0].Result != "ok" || seen.Data[0].Protocol != "smtp" {
		h.Errorf("signed in: %+v, %v", seen, err)
	}
	reader, err := h.c.CreateAppPassword(ctx, box, "Reader", "imap")
	h.want("an app password for reading", err)
	bob, err := h.s.Mailboxes.Authenticate(ctx, mailbox.IMAP, "bob@demo.test", reader.Password, from)
	h.want("signing in", err)
	session := h.s.Mailboxes.OpenSession(bob, mailbox.IMAP, from)
	defer h.s.Mailboxes.CloseSession(session)
	h.s.Mailboxes.SetSessionProgram(session, "Reader 7")
	open, err := h.c.ListMailboxSessions(ctx, box, client.Paging{Limit: 10})
	if err != nil || len(open.Data) != 1 || open.Data[0].IP != from.String() || open.Data[0].Program != "Reader 7" || open.Data[0].AppPassword != "Reader" || open.Data[0].Protocol != "imap" {
		h.Errorf("sessions: %+v, %v", open, err)
	}
	h.want("revoking that", h.c.RevokeAppPassword(ctx, box, reader.ID))
	h.want("revoking", h.c.RevokeAppPassword(ctx, box, p.ID))
	if err := h.c.RevokeAppPassword(ctx, box, p.ID); !errors.Is(err, client.ErrNotFound) {
		h.Errorf("revoked twice: %v", err)
	}
}
