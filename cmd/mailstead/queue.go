// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/server"
)

type queueCommand struct {
	List    queueList    `cmd:"" help:"Show what waits: by destination, or, with a choice, each delivery."`
	Show    queueShow    `cmd:"" help:"Show a message with its deliveries and attempts."`
	Retry   queueRetry   `cmd:"" help:"Try what waits now, also where no host could be reached."`
	Hold    queueHold    `cmd:"" help:"Hold mail until it is released; by --destination or --account also what is still to come."`
	Release queueRelease `cmd:"" help:"Release what is held."`
	Drop    queueDrop    `cmd:"" help:"End deliveries as failed. Senders of submissions get a report."`
}

// filterFlags select deliveries; all of them must match.
type filterFlags struct {
	Message     string        `arg:"" optional:"" help:"The id of a message."`
	Destination string        `help:"Those to a domain." placeholder:"DOMAIN" env:"-"`
	Account     string        `help:"Those of an account: its id or e-mail address." placeholder:"ACCOUNT" env:"-"`
	State       string        `help:"Those in a state: scheduled, queued, deferred, or sending." placeholder:"STATE" env:"-"`
	Sender      string        `help:"Those from an address, or from any of a domain." placeholder:"ADDRESS" env:"-"`
	OlderThan   time.Duration `help:"Those that were accepted so long ago at least, such as 4h or 2d." placeholder:"TIME" env:"-"`
	Held        bool          `help:"Those that are held." xor:"held" env:"-"`
	NotHeld     bool          `help:"Those that are not held." xor:"held" env:"-"`
}

func (c *filterFlags) filter(ctx context.Context, d *server.AdminTools) (f admin.Filter, err error) {
	f = admin.Filter{Destination: c.Destination, State: queue.State(c.State), Sender: c.Sender, OlderThan: c.OlderThan}
	if c.Held || c.NotHeld {
		f.Held = &c.Held
	}
	if c.Message != "" {
		if f.Message, err = parseMessageID(c.Message); err != nil {
			return f, err
		}
	}
	if c.Account != "" {
		acc, err := findAccount(ctx, d, "account", c.Account)
		if err != nil {
			return f, err
		}
		f.Account = acc.ID
	}
	return f, f.Normalize()
}

func parseMessageID(text string) (db.ID, error) {
	id, err := db.ParseID(text)
	if err != nil {
		err = errors.New("this is not the id of a message: give it as queue list shows it")
	}
	return id, err
}

// bulkFlags are the flags of all commands that change deliveries.
type bulkFlags struct {
	serviceFlags
	filterFlags
	All    bool `help:"Everything; needed when nothing is chosen." env:"-"`
	DryRun bool `help:"Only count." env:"-"`
	JSON   bool `name:"json" help:"Print the result as JSON." env:"-"`
}

type operatorFunc func(*admin.Queue, context.Context, admin.Command) (admin.Result, error)

// execute runs a command and prints the result.
func (c *bulkFlags) execute(past string, or admin.Command, which operatorFunc, before func(ctx context.Context, d *server.AdminTools, or admin.Command) error) error {
	return c.withAdminTools(func(ctx context.Context, d *server.AdminTools) error {
		var err error
		if or.Filter, err = c.filter(ctx, d); err != nil {
			return err
		}
		or.All, or.DryRun = c.All, c.DryRun
		if err := or.Normalize(); err != nil {
			return err
		}
		if before != nil && !or.DryRun {
			if err := before(ctx, d, or); err != nil {
				return err
			}
		}
		p := newQueueProgress(past)
		or.Progress = p.print
		var res admin.Result
		act := func() (err error) {
			res, err = which(d.Queue, ctx, or)
			return err
		}
		if or.DryRun {
			err = act()
		} else {
			of := cmp.Or(or.Filter.Account, account.OperatorAccount)
			err = d.Audit.RunCommand(ctx, of, "queue", cmp.Or(c.Message, c.Account), "Queued deliveries are "+past+c.filterText()+".", act)
		}
		p.end()
		return errors.Join(err, c.report(past, res))
	})
}

// filterText describes the selection for the audit log.
func (c *bulkFlags) filterText() (text string) {
	for _, given := range [][2]string{{"destination", c.Destination}, {"account", c.Account}, {"message", c.Message}, {"sender", c.Sender}, {"state", c.State}} {
		if given[1] != "" {
			text += ", " + given[0] + " " + given[1]
		}
	}
	return text
}

// bulkResult is the JSON result, with the API's names.
type bulkResult struct {
	Matched   int  `json:"matched"`
	Changed   int  `json:"changed"`
	Leased    int  `json:"leased"`
	StillHeld int  `json:"still_held"`
	DryRun    bool `json:"dry_run"`
}

func (c *bulkFlags) report(past string, res admin.Result) error {
	if c.JSON {
		return printJSON(os.Stdout, bulkResult{res.Matched, res.Changed, res.Leased, res.StillHeld, c.DryRun})
	}
	text := fmt.Sprintf("%s %s", formatDeliveries(res.Changed), past)
	if c.DryRun {
		text = fmt.Sprintf("%s would be %s", formatDeliveries(res.Matched), past)
	}
	if res.Leased > 0 {
		text += fmt.Sprintf("; %d in the hand of a node at this moment, and held when it lets go", res.Leased)
	}
	if res.StillHeld > 0 {
		text += fmt.Sprintf("; %d kept, since another hold is on them (queue list --holds)", res.StillHeld)
	}
	_, err := fmt.Println(text)
	return err
}

func formatDeliveries(n int) string {
	if n == 1 {
		return "1 delivery"
	}
	return fmt.Sprintf("%d deliveries", n)
}

// queueProgress shows the progress of a long command on stderr: now and then, and on a terminal in
// place.
type queueProgress struct {
	verb      string
	terminal  bool
	printedAt time.Time
	printed   bool
}

func newQueueProgress(past string) *queueProgress {
	return &queueProgress{verb: past, terminal: isTerminal(os.Stderr), printedAt: time.Now()}
}

func (p *queueProgress) print(res admin.Result) {
	every, before, after := 10*time.Second, "", "\n"
	if p.terminal {
		every, before, after = time.Second, "\r", ""
	}
	if time.Since(p.printedAt) < every {
		return
	}
	p.printedAt, p.printed = time.Now(), true
	_, _ = fmt.Fprintf(os.Stderr, "%s%d chosen, %d %s, %d leased%s", before, res.Matched, res.Changed, p.verb, res.Leased, after)
}

func (p *queueProgress) end() {
	if p.terminal && p.printed {
		_, _ = fmt.Fprintln(os.Stderr)
	}
}

type queueRetry struct{ bulkFlags }

func (c *queueRetry) Run() error {
	return c.execute("due now", admin.Command{}, (*admin.Queue).Retry, nil)
}

type queueHold struct {
	bulkFlags
	Reason string `help:"Why, for those who look at the queue." placeholder:"TEXT" env:"-"`
	Once   bool   `help:"Hold only what is there, not what is still to come." env:"-"`
}

func (c *queueHold) Run() error {
	return c.execute("held", admin.Command{Reason: c.Reason, ExistingOnly: c.Once}, (*admin.Queue).Hold, nil)
}

type queueRelease struct {
	bulkFlags
	Once bool `help:"Release the messages held now, and keep the hold for later ones." env:"-"`
}

func (c *queueRelease) Run() error {
	return c.execute("released", admin.Command{ExistingOnly: c.Once}, (*admin.Queue).Release, nil)
}

// maxUnconfirmedDrops is the maximum number of deliveries dropped without confirmation.
const maxUnconfirmedDrops = 10

type queueDrop struct {
	bulkFlags
	Reason string        `help:"Why, for the accounts and senders." placeholder:"TEXT" env:"-"`
	Silent bool          `help:"Send the senders of submissions no report." env:"-"`
	Wait   time.Duration `help:"How long to wait until nodes release leased deliveries." default:"30s" placeholder:"TIME" env:"-"`
	Yes    bool          `help:"Drop more than 10 deliveries without a question." env:"-"`
}

func (c *queueDrop) Run() error {
	if c.Wait < 0 {
		return errors.New("--wait must be a time such as 30s")
	}
	return c.execute("dropped", admin.Command{Reason: c.Reason, Silent: c.Silent, Wait: c.Wait}, func(o *admin.Queue, ctx context.Context, or admin.Command) (admin.Result, error) {
		res, err := o.Drop(ctx, or)
		if err == nil && res.Leased > 0 {
			err = fmt.Errorf("%s still in the hand of a node, and held when it lets go: give the order again", formatDeliveries(res.Leased))
		}
		return res, err
	}, c.confirm)
}

// confirm asks before many deliveries are dropped.
func (c *queueDrop) confirm(ctx context.Context, d *server.AdminTools, or admin.Command) error {
	if c.Yes {
		return nil
	}
	p := newQueueProgress("dropped")
	or.DryRun, or.Progress = true, p.print
	res, err := d.Queue.Drop(ctx, or)
	p.end()
	if err != nil || res.Matched <= maxUnconfirmedDrops {
		return err
	}
	if !isTerminal(os.Stdin) {
		return fmt.Errorf("this would drop %s: repeat it with --yes if that is meant", formatDeliveries(res.Matched))
	}
	_, _ = fmt.Fprintf(os.Stderr, "Drop %s? [y/N] ", formatDeliveries(res.Matched))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // EOF means no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("nothing was dropped: answer y, or repeat it with --yes")
}
