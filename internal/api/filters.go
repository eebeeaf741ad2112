// SPDX-License-Identifier: Apache-2.0

package api

import (
	"cmp"
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// maxFilterValues is the maximum number of values of one parameter of a query.
const maxFilterValues = 10

// filterIDs finds the objects whose ids a parameter has. The message says that there is none.
func (a *API) filterIDs(ctx context.Context, p account.Principal, bad *fault.FieldErrors, field string, texts []string, message string,
	find func(context.Context, account.Principal, *idParams) (db.ID, error)) (ids []db.ID, err error) {
	for _, text := range texts {
		id, err := find(ctx, p, &idParams{text})
		if err := notFoundAsFieldFault(err, field, message); err != nil {
			return nil, mergeFaults(bad, err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// readAny returns a reader of the entries that match one of the values, or none if there are no
// values. It reads a page for each value, by the index of a single one.
func readAny[V cmp.Ordered, S any](values []V, none V, id func(S) db.ID, read func(V) pageReader[S]) pageReader[S] {
	values = slices.Clone(values)
	slices.Sort(values)
	switch values = slices.Compact(values); len(values) {
	case 0:
		return read(none)
	case 1:
		return read(values[0])
	}
	return func(at db.Page) (all []S, more bool, err error) {
		for _, value := range values {
			some, goesOn, err := read(value)(at)
			if err != nil {
				return nil, false, err
			}
			all, more = append(all, some...), more || goesOn
		}
		slices.SortFunc(all, func(a, b S) int { return cmp.Compare(id(b), id(a)) })
		all = slices.CompactFunc(all, func(a, b S) bool { return id(a) == id(b) })
		cut := len(all) - at.Limit
		switch {
		case cut <= 0:
			return all, more, nil
		case at.After == 0 && at.Before != 0: // towards the newest
			return all[cut:], true, nil
		}
		return all[:at.Limit], true, nil
	}
}
