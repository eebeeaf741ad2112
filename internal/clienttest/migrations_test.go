// SPDX-License-Identifier: Apache-2.0

package clienttest

import "github.com/mailstead/mailstead/client"

func (h *fixture) migrations() {
	h.Helper()
	ctx := h.Context()
	_, err := h.c.CreateMigration(ctx, client.NewMigration{MailboxID: nobody, Source: client.NewMigrationSource{Host: "a b", Port: 70000, TLS: "some"}})
	refused(h, "a bad migration", err, 422, "validation_failed", "source.port out_of_range", "source.tls unknown_value",
		"mailbox_id not_found", "source.host invalid_host", "source.username required", "source.password required")
	source := client.NewMigrationSource{Host: "localhost", Port: 1, TLS: "none", Username: "ann", Password: "Secret-1", Folders: []string{"INBOX"}}
	_, err = h.c.TestMigrationSource(ctx, source)
	refused(h, "trying a source that is not there", err, 422, "validation_failed", "source.host source_failed")
	box := h.s.Dev.Mailboxes[1]
	offered, err := h.c.TestMigrationSource(ctx, client.NewMigrationSource{Host: "localhost", Port: h.s.Dev.Ports["imaps"], Username: box.Address, Password: box.Password, InsecureSkipVerify: true})
	h.want("trying a source", err)
	if len(offered.Folders) < 2 || offered.Folders[0].Name != "INBOX" || !offered.Folders[0].Copied || offered.Folders[0].Bytes == nil {
		h.Errorf("the source has %+v", offered)
	}
	m, err := h.c.CreateMigration(ctx, client.NewMigration{MailboxID: h.boxes[1], Source: source})
	h.want("asking for a migration", err)
	if m.Ended() || m.MailboxID != h.boxes[1] || m.Source.Host != "localhost" || m.Source.Port != 1 || m.Source.TLS != "none" || len(m.Source.Folders) != 1 {
		h.Errorf("made %+v", m)
	}
	told := 0
	for now, err := range h.c.FollowMigration(ctx, m.ID) {
		h.want("following a migration", err)
		if told++; told == 1 && !now.Ended() {
			if m, err = h.c.CancelMigration(ctx, m.ID); err != nil || m.Status != "cancelled" || m.FinishedAt == nil {
				h.Errorf("cancelled %+v, %v", m, err)
			}
		}
		m = &now
	}
	if m.Status != "cancelled" {
		h.Errorf("it ended as %+v", m)
	}
	again, err := h.c.CancelMigration(ctx, m.ID)
	if err != nil || again.FinishedAt == nil || !again.FinishedAt.Equal(*m.FinishedAt) {
		h.Errorf("cancelled once more: %+v, %v", again, err)
	}
	if d, err := h.c.GetMigration(ctx, m.ID); err != nil || d.Status != "cancelled" || len(d.Folders) != 0 || len(d.Failures) != 0 {
		h.Errorf("shown as %+v, %v", d, err)
	}
	if all := collect(h, h.c.Migrations(ctx)); len(all) != 1 || all[0].ID != m.ID {
		h.Errorf("the migrations are %+v", all)
	}
}
