// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/mailstead/mailstead/internal/limit"
	"github.com/mailstead/mailstead/internal/server"
)

type accountLimits struct {
	where
	Email             string `required:"" help:"The account's e-mail address." placeholder:"ADDRESS"`
	RequestsPerSecond string `help:"Requests a second to the API of each node: a number, \"none\" for no limit, or \"default\" for what holds for all accounts. The other limits are given so, too." placeholder:"N"`
	Burst             string `help:"Requests that may come at once." placeholder:"N"`
	SendsPerHour      string `help:"Messages in an hour of UTC." placeholder:"N"`
	SendsPerDay       string `help:"Messages in a day of UTC." placeholder:"N"`
	RecipientsPerDay  string `help:"Recipients in a day of UTC." placeholder:"N"`
	StorageMB         string `name:"storage-mb" help:"What the quotas of its mailboxes may be together, in megabytes." placeholder:"N"`
}

func (c *accountLimits) Run() error {
	set, err := c.set()
	if err != nil {
		return err
	}
	return c.desk(func(ctx context.Context, d *server.Desk) error {
		acc, err := accountOf(ctx, d, "email", c.Email)
		if err != nil {
			return err
		}
		if set != limit.All(limit.Keep) {
			change := func() error { return d.Limits.Change(ctx, acc.ID, set) }
			if err := d.Change(ctx, acc.ID, "account limits", acc.ID.String(), "Set the limits of the account "+acc.Email+".", change); err != nil {
				return err
			}
		}
		if set, err = d.Limits.OfAccount(ctx, acc.ID); err != nil {
			return err
		}
		t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		for _, name := range limit.Names() {
			value := strconv.FormatInt(set.Get(name), 10)
			switch set.Get(name) {
			case limit.Default:
				value = "default"
			case limit.None:
				value = "none"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\n", strings.ReplaceAll(name, "_", "-"), value) // Flush tells
		}
		return t.Flush()
	})
}

// set reads the limits that were given.
func (c *accountLimits) set() (limit.Set, error) {
	set := limit.All(limit.Keep)
	given := []string{c.RequestsPerSecond, c.Burst, c.SendsPerHour, c.SendsPerDay, c.RecipientsPerDay, c.StorageMB}
	for i, name := range limit.Names() {
		switch given[i] {
		case "":
		case "default":
			set.Put(name, limit.Default)
		case "none":
			set.Put(name, limit.None)
		default:
			n, err := strconv.ParseInt(given[i], 10, 64)
			if err != nil || n < 1 || n > limit.Most {
				return set, fmt.Errorf(`--%s must be a number from 1 to %d, "none" or "default"`, strings.ReplaceAll(name, "_", "-"), int64(limit.Most))
			}
			set.Put(name, n)
		}
	}
	return set, nil
}
