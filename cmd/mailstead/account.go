// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/quota"
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
		err := d.Audit.RunCommand(ctx, account.OperatorAccount, "account create", "", "Created the account "+c.Email+".", func() (err error) {
			acc, err = d.Accounts.Create(ctx, c.Email, c.Name)
			return err
		})
		if err != nil {
			return err
		}
		err = d.Audit.RunCommand(ctx, acc.ID, "account create", acc.ID.String(), "Created the account "+acc.Email+" and its first API key.", func() (err error) {
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
		if err := d.Audit.RunCommand(ctx, acc.ID, "account status", acc.ID.String(), what, func() error { return d.Accounts.SetStatus(ctx, acc.ID, status) }); err != nil {
			return err
		}
		_, err = fmt.Printf("account  %s is %s; running nodes know within seconds\n", acc.Email, status)
		return err
	})
}

type accountLimits struct {
	serviceFlags
	Email             string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
	RequestsPerSecond string `help:"Requests a second to the API of each node: a number, \"none\" for no limit, or \"default\" for what holds for all accounts. The other limits are given so, too." placeholder:"N"`
	Burst             string `help:"Requests that may come at once." placeholder:"N"`
	SendsPerHour      string `help:"Messages in an hour of UTC." placeholder:"N"`
	SendsPerDay       string `help:"Messages in a day of UTC." placeholder:"N"`
	RecipientsPerDay  string `help:"Recipients in a day of UTC." placeholder:"N"`
	StorageMB         string `name:"storage-mb" help:"What the quotas of its mailboxes may be together, in megabytes." placeholder:"N"`
}

func (c *accountLimits) Run() error {
	set, err := c.parse()
	if err != nil {
		return err
	}
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		acc, err := findAccount(ctx, d, "email", c.Email)
		if err != nil {
			return err
		}
		if set != quota.Uniform(quota.Unchanged) {
			change := func() error { return d.Limits.SetOverrides(ctx, acc.ID, set) }
			if err := d.Audit.RunCommand(ctx, acc.ID, "account limits", acc.ID.String(), "Set the limits of the account "+acc.Email+".", change); err != nil {
				return err
			}
		}
		if set, err = d.Limits.Overrides(ctx, acc.ID); err != nil {
			return err
		}
		t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, name := range quota.Names() {
			value := strconv.FormatInt(set.Value(name), 10)
			switch set.Value(name) {
			case quota.Default:
				value = "default"
			case quota.Unlimited:
				value = "none"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\n", strings.ReplaceAll(name, "_", "-"), value) // Flush returns the error
		}
		return t.Flush()
	})
}

// parse parses the given limits.
func (c *accountLimits) parse() (quota.AccountLimits, error) {
	set := quota.Uniform(quota.Unchanged)
	given := []string{c.RequestsPerSecond, c.Burst, c.SendsPerHour, c.SendsPerDay, c.RecipientsPerDay, c.StorageMB}
	for i, name := range quota.Names() {
		switch given[i] {
		case "":
		case "default":
			set.SetValue(name, quota.Default)
		case "none":
			set.SetValue(name, quota.Unlimited)
		default:
			n, err := strconv.ParseInt(given[i], 10, 64)
			if err != nil || n < 1 || n > quota.MaxValue {
				return set, fmt.Errorf(`--%s must be a number from 1 to %d, "none" or "default"`, strings.ReplaceAll(name, "_", "-"), int64(quota.MaxValue))
			}
			set.SetValue(name, n)
		}
	}
	return set, nil
}
