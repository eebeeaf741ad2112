// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/server"
)

// where says which service a command for operators works on.
type where struct {
	Data     string `help:"The service's data folder." default:"/var/lib/mailstead" placeholder:"DIR"`
	Database string `help:"\"sqlite\" in the data folder, or a postgres:// URL." default:"sqlite" placeholder:"URL"`
}

func (w where) accounts(do func(ctx context.Context, a *account.Accounts) error) error {
	ctx := context.Background()
	a, done, err := server.Accounts(ctx, w.Data, w.Database)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx, a)
}

type accountCommand struct {
	Create accountCreate `cmd:"" help:"Make an account and its first API key."`
}

type accountCreate struct {
	where
	Email string `required:"" help:"The customer's e-mail address." placeholder:"ADDRESS"`
	Name  string `help:"The customer's name." placeholder:"NAME"`
}

func (c *accountCreate) Run() error {
	return c.accounts(func(ctx context.Context, a *account.Accounts) error {
		acc, err := a.Create(ctx, c.Email, c.Name)
		if err != nil {
			return err
		}
		_, token, err := a.CreateKey(ctx, acc.ID, account.NewKey{Name: "first key"})
		if err != nil {
			return err
		}
		_, err = fmt.Printf("account  %s\napi key  %s   (shown this once)\n", acc.ID, token)
		return err
	})
}

type keyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key."`
}

type keyCreate struct {
	where
	Email   string        `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
	Name    string        `help:"What the key is for." default:"key" placeholder:"NAME"`
	Scope   []string      `help:"What it may do, separated by commas; everything by default." placeholder:"SCOPE"`
	Domain  string        `help:"The only domain it may act for." placeholder:"NAME"`
	Network []string      `help:"Addresses or networks it may be used from." placeholder:"PREFIX"`
	Expires time.Duration `help:"How long it is valid; for ever by default." placeholder:"TIME"`
}

func (c *keyCreate) Run() error {
	return c.accounts(func(ctx context.Context, a *account.Accounts) error {
		acc, err := a.ByEmail(ctx, c.Email)
		if err != nil {
			return err
		}
		n := account.NewKey{Name: c.Name, Scopes: c.Scope, Domain: c.Domain, Networks: c.Network}
		if c.Expires > 0 {
			n.ExpiresAt = time.Now().Add(c.Expires)
		}
		_, token, err := a.CreateKey(ctx, acc.ID, n)
		if err != nil {
			return err
		}
		_, err = fmt.Println(token)
		return err
	})
}
