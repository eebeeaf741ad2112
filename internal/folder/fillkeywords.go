// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"slices"
	"strings"

	"github.com/mailstead/mailstead/internal/db"
)

var keywordsByUIDQuery = db.SQL(`SELECT uid, keywords FROM folder_message
	WHERE folder = $17 AND uid ` + inList)

// FillKeywords reads the Keywords that Sync and UpdateFlags could not return because the table did
// not accept them. They take memory of their own: fill and release at most MaxFillKeywords at a
// time.
func (v *View) FillKeywords(ctx context.Context, changes []FlagChange) error {
	return v.fillKeywords(ctx, len(changes), func(i int) *FlagChange { return &changes[i] })
}

// MaxFillKeywords is for how many messages keywords are read at once.
const MaxFillKeywords = 100

func (v *View) fillKeywords(ctx context.Context, n int, at func(i int) *FlagChange) error {
	var open []*FlagChange
	for i := range n {
		if c := at(i); c.keywordsMissing {
			open = append(open, c)
		}
	}
	for some := range slices.Chunk(open, db.InListSize) {
		args := db.InListArgs(len(some), func(i int) any { return some[i].UID })
		err := v.store.DB.Each(ctx, keywordsByUIDQuery.With(append(args, v.shared.id)...), func(r db.Row) error {
			var uid uint32
			var text string
			err := r.Scan(&uid, &text)
			for _, c := range some {
				if c.UID == uid {
					c.Keywords = strings.Fields(text)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
