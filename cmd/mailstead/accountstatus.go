// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server"
)

type accountSuspend struct {
	serviceFlags
	Email string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
}

func (c *accountSuspend) Run() error { return c.setStatus(c.Email, account.StatusSuspended) }

type accountResume struct {
	serviceFlags
	Email string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
}

func (c *accountResume) Run() error { return c.setStatus(c.Email, account.StatusActive) }

func (w serviceFlags) setStatus(email, status string) error {
	return w.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		acc, err := findAccount(ctx, d, "email", email)
		if err != nil {
			return err
		}
		what := map[string]string{account.StatusSuspended: "Suspended the account ", account.StatusActive: "Resumed the account "}[status] + acc.Email + "."
		if err := d.RunAudited(ctx, acc.ID, "account status", acc.ID.String(), what, func() error { return d.SetAccountStatus(ctx, acc.ID, status) }); err != nil {
			return err
		}
		_, err = fmt.Printf("account  %s is %s; running nodes know within seconds\n", acc.Email, status)
		return err
	})
}
