// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server"
)

type keyDelete struct {
	serviceFlags
	ID       string `arg:"" help:"The key's id, as key list shows it."`
	Email    string `help:"The account's e-mail address." placeholder:"ADDRESS"`
	Operator bool   `help:"A key of operators instead."`
}

func (c *keyDelete) Run() error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		whose, err := findKeyOwner(ctx, d, c.Email, c.Operator)
		if err != nil {
			return err
		}
		id, err := db.ParseID(c.ID)
		if err != nil {
			return err
		}
		return d.RunAudited(ctx, whose, "key delete", id.String(), "Deleted an API key.", func() error { return d.Accounts.DeleteKey(ctx, whose, id) })
	})
}
