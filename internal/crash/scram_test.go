// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// scramAcrossNodes signs alice in by SCRAM-SHA-256 on one node while the other creates and revokes
// her passwords.
func (h *fixture) scramAcrossNodes() {
	h.Helper()
	box := h.a.Dev.Mailboxes[0]
	proves := func(password string) error {
		c := h.a.dialIMAP(nil)
		if err := c.Authenticate(&servertest.SCRAMClient{User: box.Address, Password: password}); err != nil {
			return err
		}
		return c.Logout().Wait()
	}
	app, err := h.b.Client().CreateAppPassword(h.Context(), box.ID.String(), "Phone")
	h.must(err)
	h.must(proves(app.Password))
	onApp := h.a.dialIMAP(nil)
	h.must(onApp.Authenticate(&servertest.SCRAMClient{User: box.Address, Password: app.Password}))
	h.must(h.b.Client().RevokeAppPassword(h.Context(), box.ID.String(), app.ID))
	if proves(app.Password) == nil {
		h.Error("a revoked app password still proves who it is at the other node")
	}
	next(h, onApp.Closed())

	h.must(proves(box.Password))
	session := h.a.dialIMAP(nil)
	h.must(session.Authenticate(&servertest.SCRAMClient{User: box.Address, Password: box.Password}))
	fresh, err := h.b.Client().SetMailboxPassword(h.Context(), box.ID.String(), "")
	h.must(err)
	if proves(box.Password) == nil {
		h.Error("the old password still proves who it is at the other node")
	}
	h.must(proves(fresh))
	next(h, session.Closed())
}
