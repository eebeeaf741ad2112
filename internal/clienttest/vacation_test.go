// SPDX-License-Identifier: Apache-2.0

package clienttest

import "github.com/mailstead/mailstead/client"

func (h *fixture) vacations() {
	h.Helper()
	ctx := h.Context()
	set, err := h.c.SetVacation(ctx, h.boxes[1], client.NewVacation{Enabled: true, Subject: "Away", Text: "Until Monday."})
	h.want("setting an answer", err)
	if got, err := h.c.GetVacation(ctx, h.boxes[1]); err != nil || !got.Enabled || got.Subject != "Away" || got.Text != set.Text {
		h.Errorf("the answer is %+v, %v", got, err)
	}
	h.want("deleting an answer", h.c.DeleteVacation(ctx, h.boxes[1]))
	if got, err := h.c.GetVacation(ctx, h.boxes[1]); err != nil || got.Enabled {
		h.Errorf("the answer is still %+v, %v", got, err)
	}
}
