// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// MaxForwards is the maximum number of addresses that a mailbox forwards to.
const MaxForwards = 10

// parseForwards reads the forwarding addresses of a mailbox, without duplicates, and returns them
// as stored. An invalid address, the mailbox's own, or one on a domain of the account that has no
// such address, is a fault of forward_to[i].
func (m *Mailboxes) parseForwards(ctx context.Context, bad *fault.FieldErrors, account, id db.ID, given []string) (string, error) {
	if len(given) > MaxForwards {
		bad.Add("forward_to", "too_many", "Give at most %d addresses.", MaxForwards)
		return "", nil
	}
	box, err := m.Get(ctx, account, id)
	if err != nil {
		return "", err
	}
	own := address.KeyOf(box.Address)
	var all, keys []string
	for i, text := range given {
		field := fmt.Sprintf("forward_to[%d]", i)
		a, err := address.Parse(text)
		base, _ := a.SplitTag()
		switch {
		case err != nil:
			bad.Add(field, "invalid_address", "Give an address such as bob@example.org.")
			continue
		case base.Key() == own:
			bad.Add(field, "own_address", "This is the mailbox's own address.")
			continue
		}
		there, err := m.isReachable(ctx, account, a)
		if err != nil {
			return "", err
		}
		if !there {
			bad.Add(field, "not_found", "There is no mailbox and no alias of yours with this address.")
			continue
		}
		if !slices.Contains(keys, a.Key()) {
			all, keys = append(all, a.String()), append(keys, a.Key())
		}
	}
	return strings.Join(all, "\n"), nil
}

// isReachable reports whether mail to an address may arrive, as far as the account may know. Any
// address outside the account's own domains may be reachable.
func (m *Mailboxes) isReachable(ctx context.Context, account db.ID, a address.Address) (bool, error) {
	h, hosted, err := m.FindHosted(ctx, a.Domain)
	if err != nil || !hosted || h.Account != account {
		return true, err
	}
	_, err = m.Route(ctx, a)
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	if fault.Is(err, fault.Denied) { // it is suspended, but may be resumed
		err = nil
	}
	return true, err
}

// splitForwards reads the stored form of the forwarding addresses.
func splitForwards(stored string) (all []address.Address) {
	for text := range strings.SplitSeq(stored, "\n") {
		if a, err := address.Parse(text); err == nil {
			all = append(all, a)
		}
	}
	return all
}
