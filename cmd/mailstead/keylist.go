// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server"
)

type keyList struct {
	serviceFlags
	Email    string `help:"The account's e-mail address." placeholder:"ADDRESS"`
	Operator bool   `help:"The keys of operators instead."`
}

func (c *keyList) Run() error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		whose, err := findKeyOwner(ctx, d, c.Email, c.Operator)
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(t, "ID\tBEGINS\tNAME\tSCOPES\tLAST USED\tEXPIRES") // Flush returns the error
		for at := (db.Page{Limit: db.MaxPageSize}); ; {
			keys, more, err := d.Accounts.Keys(ctx, whose, at)
			if err != nil {
				return err
			}
			for _, k := range keys {
				_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", k.ID, k.Hint, printable(k.Name, 40), strings.Join(k.Scopes, ","), formatTime(k.LastUsedAt), formatTime(k.ExpiresAt))
				at.After = k.ID
			}
			if !more {
				return t.Flush()
			}
		}
	})
}
