// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/server"
)

type keyCommand struct {
	Create keyCreate `cmd:"" help:"Make an API key of an account, or, with --scope operator, one for operators."`
	List   keyList   `cmd:"" help:"List the API keys of an account, or of the operators."`
	Delete keyDelete `cmd:"" help:"Delete an API key, which stops working within seconds."`
}

var (
	errNoAccount     = errors.New("--email must name the account")
	errOperatorEmail = errors.New("an operator's key belongs to no account: leave --email out")
)

// findKeyOwner returns the account that owns the keys.
func findKeyOwner(ctx context.Context, d *server.AdminTools, email string, operator bool) (db.ID, error) {
	switch {
	case operator && email != "":
		return 0, errOperatorEmail
	case operator:
		return account.OperatorAccount, nil
	case email == "":
		return 0, errNoAccount
	}
	acc, err := findAccount(ctx, d, "email", email)
	return acc.ID, err
}

type keyCreate struct {
	serviceFlags
	Email   string        `help:"The account's e-mail address; none for an operator's key." placeholder:"ADDRESS"`
	Name    string        `help:"What the key is for." default:"key" placeholder:"NAME"`
	Scope   []string      `help:"What it may do, separated by commas; everything that the account can by default. \"operator\", alone, reaches the queue of all accounts." placeholder:"SCOPE" field:"scopes"`
	Domain  string        `help:"The only domain it may act for." placeholder:"NAME"`
	Network []string      `help:"Addresses or networks it may be used from." placeholder:"PREFIX" field:"allowed_ips"`
	Expires time.Duration `help:"How long it is valid, such as 12h or 90d; for ever by default." placeholder:"TIME" field:"expires_at"`

	RequestsPerSecond int64 `help:"Requests a second that it may make to each node, beside the account's limit, as the following; none of its own by default." placeholder:"N"`
	Burst             int64 `help:"Requests that may come at once; as many as in a second by default." placeholder:"N"`
	SendsPerHour      int64 `help:"Messages in an hour of UTC." placeholder:"N"`
	SendsPerDay       int64 `help:"Messages in a day of UTC." placeholder:"N"`
	RecipientsPerDay  int64 `help:"Recipients in a day of UTC." placeholder:"N"`
}

func (c *keyCreate) Run() error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		operator := slices.Contains(c.Scope, account.ScopeOperator)
		if operator && len(c.Scope) > 1 {
			return errors.New("the scope operator stands alone: make another key for the rest")
		}
		whose, err := findKeyOwner(ctx, d, c.Email, operator)
		if err != nil {
			return err
		}
		n := account.KeyParams{Name: c.Name, Scopes: c.Scope, Domain: c.Domain, Networks: c.Network, Limits: account.Rates{
			RequestsPerSecond: c.RequestsPerSecond, Burst: c.Burst, SendsPerHour: c.SendsPerHour, SendsPerDay: c.SendsPerDay, RecipientsPerDay: c.RecipientsPerDay,
		}}
		if c.Expires != 0 { // times in the past are rejected
			n.ExpiresAt = time.Now().Add(c.Expires)
		}
		var token string
		what := fmt.Sprintf("Created the API key %q (scopes %s).", c.Name, strings.Join(c.Scope, ", "))
		err = d.Audit.RunCommand(ctx, whose, "key create", "", what, func() (err error) {
			_, token, err = d.Accounts.CreateKey(ctx, whose, n)
			return err
		})
		if err != nil {
			return err
		}
		_, err = fmt.Println(token)
		return err
	})
}

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
		return d.Audit.RunCommand(ctx, whose, "key delete", id.String(), "Deleted an API key.", func() error { return d.Accounts.DeleteKey(ctx, whose, id) })
	})
}
