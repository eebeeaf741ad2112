// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mailstead/mailstead/cmd/load/imap"
)

// growthRun does the same work on a service that has little and on one that
// has a hundred times as much of everything, in turns.
type growthRun struct {
	b     *bench
	s     *system // whose column it is
	sides [2]*grown
}

// grown is a service whose rows were made by SQL.
type grown struct {
	*mailstead
	boxes   int // mailboxes, over all accounts
	label   string
	token   string // of the account that holds a third of everything
	home    string // the domain that the others were copied from
	domain  string // its id
	empty   string // the id of a domain without mailboxes
	box     string // the id of the mailbox that the others were copied from
	sent    string // the id of a message
	archive string // the id of the mailbox with a large folder
	reader  box    // the same
	hook    string // the id of a webhook
	conn    *httpConn
	session *imap.Client
}

const (
	growthBoxes = 1000 // mailboxes of the smaller service
	growthTimes = 100
	growthMails = 4 // sent to each mailbox
	// growthPending are the deliveries that the webhook, whose place does not
	// answer, still waits for: of the domain, two mailboxes, and two for each mail.
	growthPending = 1 + 2 + 2*(1+growthMails)
	growthLetters = 3 // in the large folder, for each mailbox of the service
)

// growth compares a service with one that has a hundred times its data.
func (b *bench) growth(ctx context.Context, s *system, round int) error {
	if round > 0 {
		return nil // once is long enough
	}
	few := growthBoxes
	if b.options.quick {
		few = 50
	}
	r := &growthRun{b: b, s: s}
	defer r.close()
	for i, boxes := range []int{few, few * growthTimes} {
		g, err := r.grow(ctx, boxes)
		if err != nil {
			return fmt.Errorf("making %d mailboxes: %w", boxes, err)
		}
		r.sides[i] = g
	}
	if err := r.starts(ctx); err != nil {
		return err
	}
	var err error
	for _, part := range []func() error{r.lists, r.changes, r.folders, r.arrive, func() error { return r.backups(ctx) }} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, part()) // the other parts have their figures all the same
	}
	return err
}

func (r *growthRun) close() {
	for _, g := range r.sides {
		if g == nil {
			continue
		}
		if g.conn != nil {
			_ = g.conn.close()
		}
		if g.session != nil {
			_ = g.session.Close()
		}
		_ = g.sys.process.stop() // what counts has been measured
	}
}

// grow makes a service with a bit of everything, stops it and multiplies its
// rows.
func (r *growthRun) grow(ctx context.Context, boxes int) (*grown, error) {
	sqlite := strings.HasSuffix(r.s.name, "SQLite")
	label := fmt.Sprintf("growth-%s-%d", strings.ToLower(strings.TrimPrefix(r.s.name, "Mailstead, ")), boxes)
	database := "sqlite"
	if !sqlite {
		var err error
		if database, err = newDatabase(ctx, r.b.options.postgres, fmt.Sprintf("growth%d", boxes)); err != nil {
			return nil, err
		}
	}
	g := &grown{boxes: boxes, label: thousands(float64(boxes)), home: label + ".bench-home.net", mailstead: &mailstead{
		binary: r.b.options.mailstead, dir: filepath.Join(r.b.dir, label), database: database, names: r.b.names,
		sys: &system{sink: r.s.sink},
	}}
	if err := g.begin(ctx); err != nil {
		return nil, err
	}
	err := g.seed(ctx)
	if stopped := g.sys.process.stop(); err != nil || stopped != nil {
		return nil, errors.Join(err, stopped)
	}
	took, err := timed(func() error { return g.multiply(ctx) })
	r.b.report.add("growth/fill", r.s.name, figure{g.label + ":", took.Seconds(), seconds})
	return g, err
}

// begin starts the service on ports that are free now.
func (g *grown) begin(ctx context.Context) (err error) {
	if err := g.choosePorts(); err != nil {
		return err
	}
	g.sys.process, err = g.start(ctx)
	return err
}

// seed makes by the API what is multiplied.
func (g *grown) seed(ctx context.Context) (err error) {
	if g.conn, err = dialHTTP(g.sys.http); err != nil {
		return err
	}
	defer func() { _ = g.conn.close() }()
	if g.token, err = g.account(ctx, "owner@"+g.home); err != nil {
		return err
	}
	if g.domain, err = g.mailstead.domain(g.conn, g.token, g.home); err != nil {
		return err
	}
	// There is no such host.
	if g.hook, err = g.make("/webhooks", map[string]any{"url": "https://nowhere.bench-sink.net/", "events": []string{"all"}}); err != nil {
		return err
	}
	if _, err = g.make("/suppressions", map[string]any{"address": "seed@bench-sink.net"}); err != nil {
		return err
	}
	g.reader = box{"archive@" + g.home, "Bench-Growth-Passw0rd!"}
	for _, m := range []struct {
		name  string
		mails int
		quota int // MB; all together are within the account's limit
		id    *string
	}{{"archive", 1, 20480, &g.archive}, {"seed", growthMails, 1, &g.box}} {
		*m.id, err = g.make("/mailboxes", map[string]any{"domain_id": g.domain, "local_part": m.name, "password": g.reader.password, "quota_mb": m.quota})
		for i := 0; i < m.mails && err == nil; i++ {
			g.sent, err = g.make("/outbound/send", map[string]any{
				"from_email": "sender@" + g.home, "to": []string{m.name + "@" + g.home}, "subject": "The " + rareSubject + " figures",
				"text": text(random(uint64(i)), 600),
			})
		}
		if err != nil {
			return err
		}
	}
	return g.arrived(ctx, 1+growthMails)
}

// make creates something and returns its id.
func (g *grown) make(path string, in map[string]any) (id string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	err = call(g.conn, "POST", path, g.token, in, &made)
	return made.ID, err
}

// arrived waits until the events of n arrivals can be read, and the sent
// messages can be found.
func (g *grown) arrived(ctx context.Context, n int) error {
	for _, path := range []string{"/events?type=inbound_email", "/events?type=delivery_status", "/outbound/messages?recipient=" + g.home} {
		for {
			got, err := g.list(path)
			if err != nil || len(got.Data) >= n {
				if err != nil {
					return err
				}
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

// listed is a page of a list.
type listed struct {
	Data    []json.RawMessage `json:"data"`
	HasMore bool              `json:"has_more"`
	Next    *string           `json:"next_cursor"`
}

func (g *grown) list(path string) (got listed, err error) {
	return got, call(g.conn, "GET", path, g.token, nil, &got)
}

// starts starts both services on what they have, and waits until their search
// indexes are at rest, so that these don't disturb what is measured.
func (r *growthRun) starts(ctx context.Context) error {
	var took [2]time.Duration
	for i, g := range r.sides {
		// The first start after so many rows were made cleans up after that.
		if err := errors.Join(g.begin(ctx), g.sys.process.stop()); err != nil {
			return err
		}
		var err error
		took[i], err = timed(func() error { return g.begin(ctx) })
		if err != nil {
			return err
		}
	}
	r.compare("start", took[0], took[1])
	for _, g := range r.sides {
		g.sys.data = g.dir
		if _, err := g.sys.indexed(ctx); err != nil {
			return err
		}
	}
	for _, g := range r.sides { // by now, since a server ends a connection that rests
		if err := g.connect(); err != nil {
			return err
		}
		bytes, err := g.sys.process.memory()
		if err != nil {
			return err
		}
		r.b.report.add("growth/memory", r.s.name, memory(g.label+":", bytes))
	}
	return nil
}

func (g *grown) connect() (err error) {
	if g.conn, err = dialHTTP(g.sys.http); err != nil {
		return err
	}
	if g.session, err = imap.Dial(g.sys.imap, "", clientTLS()); err != nil {
		return err
	}
	g.session.Roomy()
	return g.session.Login(g.reader.address, g.reader.password)
}

// both measures the same on the two services in turn. The first time is not counted: it
// reads what was never read.
func (r *growthRun) both(row string, times int, do func(g *grown, i int) error) error {
	took, err := inTurn(r.sides, times+1, func(g *grown, i int) (time.Duration, error) {
		d, err := timed(func() error { return do(g, i) })
		if err != nil {
			err = fmt.Errorf("%s with %s mailboxes: %w", row, g.label, err)
		}
		return d, err
	})
	if err == nil {
		r.compare(row, median(took[0][1:]), median(took[1][1:]))
	}
	return err
}

func (r *growthRun) compare(row string, few, many time.Duration) {
	r.b.report.add("growth/"+row, r.s.name, duration(r.sides[0].label+":", few), duration(r.sides[1].label+":", many), figure{"×", float64(many) / float64(max(few, 1)), ratio})
}

// backups copies each service once. That takes time for all that there is, so
// what counts is the time for each megabyte.
func (r *growthRun) backups(ctx context.Context) error {
	for _, g := range r.sides {
		to := g.dir + "-backup"
		took, err := timed(func() error {
			out, err := exec.CommandContext(ctx, g.binary, "backup", to, "--data", g.dir, "--database", g.database).CombinedOutput()
			if err != nil {
				return fmt.Errorf("backup: %w: %s", err, out)
			}
			return nil
		})
		if err != nil {
			return err
		}
		size, err := folderSize(to)
		if err != nil {
			return err
		}
		r.b.report.add("growth/backup", r.s.name, figure{g.label + ":", took.Seconds(), seconds}, memory(g.label+" of", size))
	}
	return nil
}
