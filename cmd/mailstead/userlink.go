// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/server"
	"github.com/mailstead/mailstead/internal/user"
)

type userCommand struct {
	Link userLink `cmd:"" help:"Make a link that lets somebody into the dashboard once: to join an account, or to choose a new password."`
}

type userLink struct {
	serviceFlags
	Email    string `required:"" help:"Whom it is for." placeholder:"ADDRESS"`
	Account  string `help:"The account to join, by its e-mail address; that of whom it is for unless given." placeholder:"ADDRESS"`
	Role     string `help:"What they may do there: owner, member or reader." enum:"owner,member,reader" default:"owner"`
	Operator bool   `help:"Join the operators of the service instead."`
	Host     string `required:"" help:"The service's own host name, for the link." placeholder:"NAME"`
	Verified bool   `help:"Take the link as proof of the address. Use it only where nobody but the holder of the address gets the link. Without it the user confirms the address by a mailed link later."`
}

func (c *userLink) Run() error {
	host, err := address.ParseDomain(c.Host)
	if err != nil {
		return errors.New("--host: this is not a host name; give the one that mailstead serve has as --host")
	}
	c.Host = host
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		who, err := d.Users.ByEmail(ctx, c.Email)
		if err == nil && c.Account == "" && !c.Operator {
			token, err := c.createResetLink(ctx, d, who)
			if err != nil {
				return err
			}
			_, err = fmt.Printf("https://%s/reset/%s\nIt lets %s choose a new password, once, within an hour.\n", c.Host, token, who.Email)
			return err
		}
		if err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
		to, err := c.account(ctx, d)
		if err != nil {
			return err
		}
		var token string
		what := "Made a link for " + c.Email + " to join as " + c.Role + "."
		err = d.Audit.RunCommand(ctx, to, "user link", "", what, func() (err error) {
			token, err = d.Users.CreateInviteLink(ctx, to, c.Email, user.Role(c.Role), c.Verified)
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Printf("https://%s/join/%s\nIt lets %s join, once, within seven days.\n", c.Host, token, c.Email)
		return err
	})
}

// createResetLink creates a password reset link. The audit log of the user's first account records
// it.
func (c *userLink) createResetLink(ctx context.Context, d *server.AdminTools, who user.User) (token string, err error) {
	of, err := d.Users.Memberships(ctx, who.ID)
	if err != nil {
		return "", err
	}
	issue := func() (err error) {
		token, err = d.Users.CreateResetLink(ctx, who, c.Verified)
		return err
	}
	for _, m := range of {
		inner := issue
		issue = func() error {
			return d.Audit.RunCommand(ctx, m.Account, "user link", who.ID.String(), "Made a link for "+who.Email+" to choose a new password.", inner)
		}
	}
	err = issue()
	return token, err
}

func (c *userLink) account(ctx context.Context, d *server.AdminTools) (db.ID, error) {
	if c.Operator {
		if err := d.Accounts.EnsureOperatorAccount(ctx); err != nil {
			return 0, err
		}
	}
	switch {
	case c.Operator && c.Account != "":
		return 0, errors.New("--operator and --account exclude each other")
	case c.Operator:
		return account.OperatorAccount, nil
	case c.Account != "":
		acc, err := findAccount(ctx, d, "account", c.Account)
		return acc.ID, err
	}
	acc, err := d.Accounts.ByEmail(ctx, c.Email)
	if fault.Is(err, fault.NotFound) {
		err = errors.New("--email: there is no such user, and no such account; say by --account which one to join, or make one by mailstead account create")
	}
	return acc.ID, err
}
