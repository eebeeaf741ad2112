// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"errors"
	"slices"

	"github.com/mailstead/mailstead/client"
)

// aliases makes, changes, walks through and deletes aliases.
func (h *house) aliases() {
	ctx := h.Context()
	a, err := h.c.CreateAlias(ctx, "Info@demo.test", "alice@demo.test", h.boxes[1])
	h.want("an alias", err)
	if a.Address != "Info@demo.test" || a.DomainID != h.domain || !slices.Equal(a.Targets, h.boxes[:2]) || a.CreatedAt.IsZero() {
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
