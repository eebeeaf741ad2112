// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/mailstead/mailstead/internal/api"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/server"
)

type queueList struct {
	serviceFlags
	filterFlags
	Deliveries bool `help:"Each delivery, also when nothing is chosen." env:"-"`
	Holds      bool `help:"List the active holds instead." env:"-"`
	Limit      int  `help:"How many lines at most; 0 for all." default:"100" placeholder:"N" env:"-"`
	JSON       bool `name:"json" help:"Print a JSON object per line." env:"-"`
}

func (c *queueList) Run() error {
	if c.Limit < 0 {
		return errors.New("--limit must be a number of lines, or 0 for all")
	}
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		f, err := c.filter(ctx, d)
		if err != nil {
			return err
		}
		t := &table{w: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0), json: c.JSON, remaining: c.Limit, all: c.Limit == 0}
		switch {
		case c.Holds && (c.Deliveries || f != admin.Filter{}):
			return errors.New("--holds lists all active holds: remove the other flags")
		case c.Holds:
			err = listHolds(ctx, d, t)
		case c.Deliveries || f != admin.Filter{}:
			err = listDeliveries(ctx, d, f, t)
		default:
			err = listDestinations(ctx, d, t)
		}
		return errors.Join(err, t.flush())
	})
}

// table prints rows as JSON or in columns, up to a limit.
type table struct {
	w         *tabwriter.Writer
	json      bool
	all       bool
	remaining int
	more      bool // there are more rows than the limit
	rows      int
}

// row prints a row; it returns false at the limit.
func (t *table) row(head string, v any, format string, args ...any) (bool, error) {
	if !t.all && t.remaining == 0 {
		t.more = true
		return false, nil
	}
	t.remaining--
	t.rows++
	if t.json {
		return true, printJSON(os.Stdout, v)
	}
	if t.rows == 1 {
		if _, err := fmt.Fprintln(t.w, head); err != nil {
			return false, err
		}
	}
	_, err := fmt.Fprintf(t.w, format+"\n", args...)
	if err == nil && t.rows%200 == 0 { // column widths fit these rows
		err = t.w.Flush()
	}
	return true, err
}

func (t *table) flush() error {
	err := t.w.Flush()
	switch {
	case t.more:
		_, _ = fmt.Fprintln(os.Stderr, "There is more: see --limit.")
	case t.rows == 0 && !t.json:
		_, _ = fmt.Fprintln(os.Stderr, "Nothing waits.")
	}
	return err
}

// pageSize is the number of rows per query.
const pageSize = 100

func listDestinations(ctx context.Context, d *server.AdminTools, t *table) error {
	for after := ""; ; {
		page, next, err := d.Queue.Destinations(ctx, "", after, pageSize)
		if err != nil {
			return err
		}
		for _, o := range page {
			held := formatCount(o.Held, o.MoreHeld)
			if o.Hold != nil {
				held += " (all)"
			}
			if goOn, err := t.row("DESTINATION\tWAITING\tHELD\tIN HAND\tOLDEST\tNEXT TRY\tLAST ANSWER", api.NewQueueDestinationResponse(o), "%s\t%s\t%s\t%d\t%s\t%s\t%s",
				o.Destination, formatCount(o.Waiting, o.MoreWaiting), held, o.Leased, formatAge(o.OldestAt), formatTime(o.NextAttemptAt),
				printable(formatReply(o.Code, o.Enhanced, o.Reply), 100)); !goOn || err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

func formatCount(n int, more bool) string {
	if more {
		return fmt.Sprint(n, "+")
	}
	return fmt.Sprint(n)
}

func listDeliveries(ctx context.Context, d *server.AdminTools, f admin.Filter, t *table) error {
	for after := ""; ; {
		page, next, err := d.Queue.List(ctx, f, after, pageSize)
		if err != nil {
			return err
		}
		for _, e := range page {
			v := api.NewQueueDeliveryResponse(e)
			try := "-"
			if v.NextAttemptAt != nil {
				try = formatTime(e.DueAt)
			}
			if goOn, err := t.row("MESSAGE\tRECIPIENT\tSTATE\tAGE\tTRIES\tNEXT TRY\tFROM\tLAST ANSWER", v, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s",
				e.Message, printable(e.Recipient, 50), formatState(e.State, e.Held), formatAge(e.AcceptedAt), e.Attempts, try, printable(e.View.From, 40),
				printable(formatReply(e.Code, e.Enhanced, e.Reply), 100)); !goOn || err != nil {
				return err
			}
		}
		if after = next; next == "" {
			return nil
		}
	}
}

func listHolds(ctx context.Context, d *server.AdminTools, t *table) error {
	holds, err := d.Queue.Holds(ctx)
	if err != nil {
		return err
	}
	for _, h := range holds {
		target := h.Target
		if id, ok := h.Account(); ok {
			target = id.String()
			if acc, err := d.Accounts.Get(ctx, id); err == nil {
				target = acc.Email
			}
		}
		if goOn, err := t.row("HELD\t\tSINCE\tREASON", api.NewQueueHoldResponse(h), "%s\t%s\t%s\t%s", h.Kind, printable(target, 100), formatTime(h.CreatedAt), printable(h.Reason, 100)); !goOn || err != nil {
			return err
		}
	}
	return nil
}
