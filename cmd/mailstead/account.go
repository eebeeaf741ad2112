// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/server"
)

type accountCommand struct {
	Create  accountCreate  `cmd:"" help:"Make an account and its first API key."`
	Suspend accountSuspend `cmd:"" help:"Let an account send, receive and sign in no more; what it has is kept."`
	Resume  accountResume  `cmd:"" help:"End that."`
	Limits  accountLimits  `cmd:"" help:"Show what an account may use, or set it: requests, messages, recipients, storage. It holds within seconds."`
}

type accountCreate struct {
	serviceFlags
	Email string `required:"" help:"The customer's e-mail address." placeholder:"ADDRESS"`
	Name  string `help:"The customer's name." placeholder:"NAME"`
}

func (c *accountCreate) Run() error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		var acc account.Account
		var token string
		err := d.RunAudited(ctx, account.OperatorAccount, "account create", "", "Created the account "+c.Email+".", func() (err error) {
			acc, err = d.Accounts.Create(ctx, c.Email, c.Name)
			return err
		})
		if err != nil {
			return err
		}
		err = d.RunAudited(ctx, acc.ID, "account create", acc.ID.String(), "Created the account "+acc.Email+" and its first API key.", func() (err error) {
			_, token, err = d.Accounts.CreateKey(ctx, acc.ID, account.KeyParams{Name: "first key"})
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Printf("account  %s\napi key  %s   (shown this once)\n", acc.ID, token)
		return err
	})
}

// findAccount finds the account in a flag's value: its e-mail address or id.
func findAccount(ctx context.Context, d *server.AdminTools, flag, name string) (acc account.Account, err error) {
	if strings.ContainsRune(name, '@') {
		acc, err = d.Accounts.ByEmail(ctx, name)
	} else {
		var id db.ID
		if id, err = db.ParseID(name); err == nil {
			acc, err = d.Accounts.Get(ctx, id)
		}
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Invalid) {
		err = fmt.Errorf("--%s: there is no such account; give its e-mail address or id", flag)
	}
	return acc, err
}
