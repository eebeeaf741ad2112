// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
)

const overview = "(UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)"

// imapRun is the IMAP work on one system in one round, in a mailbox of its own.
type imapRun struct {
	b            *bench
	s            *system
	mailbox      mailbox
	c            *imap.Client // the session for most of the work
	messageCount int          // messages in the folder
}

// imapWork fills a folder and runs typical commands of mail clients on it.
func (b *bench) imapWork(ctx context.Context, s *system, round int) error {
	r := &imapRun{b: b, s: s, mailbox: s.privateMailboxes[round], messageCount: len(b.messages)}
	var err error
	if r.c, err = s.openIMAP(r.mailbox); err != nil {
		return err
	}
	defer func() { _ = r.c.Close() }()
	r.c.GrowBuffer()
	for _, folder := range []string{"Bench", "Other", "Big"} {
		if _, err := r.c.Command("CREATE " + folder); err != nil {
			return err
		}
	}
	for _, part := range []func() error{r.fill, r.login, r.open, r.read, func() error { return r.search(ctx) }, r.flags, r.notify, r.bigFolder, r.copyMove} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, part()) // the other parts still have results
	}
	return err
}

func (r *imapRun) add(row string, figures ...metric) {
	r.b.report.add("imap/"+row, r.s.name, figures...)
}

// runCommand runs a command and checks the number of untagged responses: a fast wrong response must not
// count. Servers may add a few of their own.
func runCommand(c *imap.Client, command string, lines int) (imap.Response, error) {
	a, err := c.Command(command)
	if err == nil && (a.Lines < lines || a.Lines > lines+lines/100+20) {
		err = fmt.Errorf("%.60s: %d responses instead of %d", command, a.Lines, lines)
	}
	return a, err
}

func (r *imapRun) measure(command string, lines int) (time.Duration, error) {
	return measureCommand(r.c, command, lines)
}

// median runs the same command n times and returns the median of its times.
func (r *imapRun) median(n int, command string, lines int) (time.Duration, error) {
	return medianDuration(n, func() error {
		_, err := runCommand(r.c, command, lines)
		return err
	})
}

// fill appends a fifth of the messages over one connection, the rest over four.
func (r *imapRun) fill() error {
	var next atomic.Int64
	for _, step := range []struct {
		row   string
		conns int
		until int
	}{{"append1", 1, r.messageCount / 5}, {"append4", 4, r.messageCount}} {
		out, err := runSessions(step.conns, runLimit{step.until - int(next.Load()), 10 * time.Minute}, func(int) (func() error, func() error, error) {
			c, err := r.s.openIMAP(r.mailbox)
			if err != nil {
				return nil, nil, err
			}
			return func() error {
				_, err := c.Append("Bench", r.b.messages[next.Add(1)-1])
				return err
			}, c.Close, nil
		})
		if err != nil {
			return err
		}
		r.add(step.row, rateMetric(out.rate()), durationMetric("p99", out.percentile(99)))
	}
	return nil
}

func (r *imapRun) login() error {
	var took []time.Duration
	for range 30 {
		c, err := imap.Dial(r.s.imap, "", clientTLS())
		if err != nil {
			return err
		}
		d, err := measure(func() error { return c.Login(r.mailbox.address, r.mailbox.password) })
		if err := errors.Join(err, c.Close()); err != nil {
			return err
		}
		took = append(took, d)
	}
	r.add("login", durationMetric("", median(took)))
	return nil
}

// open selects the folder.
func (r *imapRun) open() error {
	var took []time.Duration
	for range 30 {
		if _, err := r.c.Command("SELECT INBOX"); err != nil {
			return err
		}
		d, err := r.measure("SELECT Bench", 5)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	r.add("select", durationMetric("", median(took)))
	return nil
}

// bigFolder copies the folder several times into another one and reads that.
func (r *imapRun) bigFolder() error {
	for range r.b.options.big {
		if _, err := r.c.Command("COPY 1:* Big"); err != nil {
			return err
		}
	}
	if _, err := r.c.Command("SELECT Big"); err != nil {
		return err
	}
	n := r.messageCount * r.b.options.big
	var figures []metric
	for _, items := range []struct{ label, what string }{{"FLAGS", "FLAGS"}, {"overview", overview}, {"bodies", "BODY.PEEK[]"}} {
		took, err := r.measure("FETCH 1:* "+items.what, n)
		if err != nil {
			return err
		}
		figures = append(figures, labeledRate(items.label, float64(n)/took.Seconds()))
	}
	r.add("big", figures...)
	_, err := r.c.Command("SELECT Bench")
	return err
}
