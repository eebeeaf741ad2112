// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server"
)

type accountSuspend struct {
	where
	Email string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
}

func (c *accountSuspend) Run() error { return c.setStatus(c.Email, account.Suspended) }

type accountResume struct {
	where
	Email string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
}

func (c *accountResume) Run() error { return c.setStatus(c.Email, account.Active) }

func (w where) setStatus(email, status string) error {
	return w.desk(func(ctx context.Context, d *server.Desk) error {
		acc, err := accountOf(ctx, d, "email", email)
		if err != nil {
			return err
		}
		what := map[string]string{account.Suspended: "Suspended the account ", account.Active: "Resumed the account "}[status] + acc.Email + "."
		if err := d.Change(ctx, acc.ID, "account status", acc.ID.String(), what, func() error { return d.SetAccountStatus(ctx, acc.ID, status) }); err != nil {
			return err
		}
		_, err = fmt.Printf("account  %s is %s; running nodes know within seconds\n", acc.Email, status)
		return err
	})
}
