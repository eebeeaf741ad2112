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
	"github.com/mailstead/mailstead/internal/notify"
)

// growthRun runs the same work in turn on a service with little data and on one with a hundred
// times as much.
type growthRun struct {
	b        *bench
	s        *system // system whose column it is
	services [2]*grownService
}

// grownService is a service whose rows were multiplied by SQL.
type grownService struct {
	*mailstead
	mailboxCount  int // mailboxes of all accounts
	label         string
	token         string  // of the account with a third of the data
	domainName    string  // domain that was copied
	domainID      string  // its id
	emptyDomainID string  // id of a domain without mailboxes
	mailboxID     string  // id of the mailbox that was copied
	sentID        string  // id of a message
	archiveID     string  // id of the mailbox with a large folder
	reader        mailbox // the same mailbox
	webhookID     string  // id of a webhook
	conn          *httpConn
	session       *imap.Client
}

const (
	growthMailboxes = 1000 // mailboxes of the smaller service
	growthFactor    = 100
	growthMessages  = 4 // per mailbox
	// growthPending is the number of pending deliveries of the webhook, whose host doesn't exist:
	// for the domain, two mailboxes, and two per message.
	growthPending        = 1 + 2 + 2*(1+growthMessages)
	growthFolderMessages = 3 // in the large folder, per mailbox of the service
)

// growth compares a service with one that has a hundred times its data.
func (b *bench) growth(ctx context.Context, s *system, round int) error {
	if round > 0 {
		return nil // one round takes long enough
	}
	few := growthMailboxes
	if b.options.quick {
		few = 50
	}
	r := &growthRun{b: b, s: s}
	defer r.close()
	for i, boxes := range []int{few, few * growthFactor} {
		g, err := r.grow(ctx, boxes)
		if err != nil {
			return fmt.Errorf("making %d mailboxes: %w", boxes, err)
		}
		r.services[i] = g
	}
	if err := r.startBoth(ctx); err != nil {
		return err
	}
	var err error
	for _, part := range []func() error{r.lists, r.changes, r.folders, r.receive, func() error { return r.backups(ctx) }} {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, part()) // the other parts still have results
	}
	return err
}

func (r *growthRun) close() {
	for _, g := range r.services {
		if g == nil {
			continue
		}
		if g.conn != nil {
			_ = g.conn.close()
		}
		if g.session != nil {
			_ = g.session.Close()
		}
		_ = g.system.process.stop() // the measurement is done
	}
}

// grow creates a service with some data of each kind, stops it and multiplies its rows.
func (r *growthRun) grow(ctx context.Context, boxes int) (*grownService, error) {
	sqlite := strings.HasSuffix(r.s.name, "SQLite")
	label := fmt.Sprintf("growth-%s-%d", strings.ToLower(strings.TrimPrefix(r.s.name, "Mailstead, ")), boxes)
	database := "sqlite"
	if !sqlite {
		var err error
		if database, err = newDatabase(ctx, r.b.options.postgres, fmt.Sprintf("growth%d", boxes)); err != nil {
			return nil, err
		}
	}
	g := &grownService{mailboxCount: boxes, label: thousands(float64(boxes)), domainName: label + ".bench-home.net", mailstead: &mailstead{
		binary: r.b.options.mailstead, dir: filepath.Join(r.b.dir, label), database: database, names: r.b.names,
		system: &system{sink: r.s.sink},
	}}
	if err := g.launch(ctx); err != nil {
		return nil, err
	}
	err := g.seed(ctx)
	if stopped := g.system.process.stop(); err != nil || stopped != nil {
		return nil, errors.Join(err, stopped)
	}
	took, err := measure(func() error { return g.multiplyRows(ctx) })
	r.b.report.add("growth/fill", r.s.name, metric{g.label + ":", took.Seconds(), seconds})
	return g, err
}

// launch starts the service on free ports.
func (g *grownService) launch(ctx context.Context) (err error) {
	if err := g.choosePorts(); err != nil {
		return err
	}
	g.system.process, err = g.start(ctx)
	return err
}

// seed creates, by the API, the data to multiply.
func (g *grownService) seed(ctx context.Context) (err error) {
	if g.conn, err = dialHTTP(g.system.http); err != nil {
		return err
	}
	defer func() { _ = g.conn.close() }()
	if g.token, err = g.createAccount(ctx, "owner@"+g.domainName); err != nil {
		return err
	}
	if g.domainID, err = g.mailstead.createDomain(g.conn, g.token, g.domainName); err != nil {
		return err
	}
	// The host doesn't exist.
	if g.webhookID, err = g.create("/webhooks", map[string]any{"url": "https://nowhere.bench-sink.net/", "events": []string{"all"}}); err != nil {
		return err
	}
	if _, err = g.create("/suppressions", map[string]any{"email": "seed@bench-sink.net"}); err != nil {
		return err
	}
	g.reader = mailbox{"archive@" + g.domainName, "Bench-Growth-Passw0rd!"}
	for _, m := range []struct {
		name  string
		mails int
		quota int // MB; together within the account's limit
		id    *string
	}{{"archive", 1, 20480, &g.archiveID}, {"seed", growthMessages, 1, &g.mailboxID}} {
		*m.id, err = g.create("/mailboxes", map[string]any{"domain_id": g.domainID, "local_part": m.name, "password": g.reader.password, "quota_mb": m.quota})
		for i := 0; i < m.mails && err == nil; i++ {
			g.sentID, err = g.create("/outbound/send", map[string]any{
				"from_email": "sender@" + g.domainName, "to": []string{m.name + "@" + g.domainName}, "subject": "The " + rareSubject + " figures",
				"text": randomText(newRand(uint64(i)), 600),
			})
		}
		if err != nil {
			return err
		}
	}
	return g.waitInbound(ctx, 1+growthMessages)
}

// create creates something and returns its id.
func (g *grownService) create(path string, in map[string]any) (id string, err error) {
	var made struct {
		ID string `json:"id"`
	}
	err = callAPI(g.conn, "POST", path, g.token, in, &made)
	return made.ID, err
}

// waitInbound waits until the events of n received messages can be read, and the sent messages can
// be found.
func (g *grownService) waitInbound(ctx context.Context, n int) error {
	for _, path := range []string{"/events?type=inbound_email", "/events?type=delivery_status", "/outbound/messages?recipient=" + g.domainName} {
		for found := 0; found < n; {
			got, err := g.getPage(path)
			if err == nil {
				err = notify.Sleep(ctx, 50*time.Millisecond)
			}
			if err != nil {
				return err
			}
			found = len(got.Data)
		}
	}
	return nil
}

// listPage is a page of a list.
type listPage struct {
	Data    []json.RawMessage `json:"data"`
	HasMore bool              `json:"has_more"`
	Next    *string           `json:"next_cursor"`
}

func (g *grownService) getPage(path string) (got listPage, err error) {
	return got, callAPI(g.conn, "GET", path, g.token, nil, &got)
}

// startBoth starts both services with their data, and waits until their search indexes are idle, so
// that indexing doesn't affect the results.
func (r *growthRun) startBoth(ctx context.Context) error {
	var took [2]time.Duration
	for i, g := range r.services {
		// The first start after the fill cleans up.
		if err := errors.Join(g.launch(ctx), g.system.process.stop()); err != nil {
			return err
		}
		var err error
		took[i], err = measure(func() error { return g.launch(ctx) })
		if err != nil {
			return err
		}
	}
	r.compare("start", took[0], took[1])
	for _, g := range r.services {
		g.system.dataDir = g.dir
		if _, err := g.system.waitIndexed(ctx); err != nil {
			return err
		}
	}
	for _, g := range r.services { // only now, because servers close idle connections
		if err := g.connect(); err != nil {
			return err
		}
		bytes, err := g.system.process.memory()
		if err != nil {
			return err
		}
		r.b.report.add("growth/memory", r.s.name, memoryMetric(g.label+":", bytes))
	}
	return nil
}

func (g *grownService) connect() (err error) {
	if g.conn, err = dialHTTP(g.system.http); err != nil {
		return err
	}
	if g.session, err = g.system.openIMAP(g.reader); err == nil {
		g.session.GrowBuffer()
	}
	return err
}

// measureBoth measures the same on both services in turn. It discards the first result, which reads
// uncached data.
func (r *growthRun) measureBoth(row string, times int, do func(g *grownService, i int) error) error {
	took, err := alternate(r.services, times+1, func(g *grownService, i int) (time.Duration, error) {
		d, err := measure(func() error { return do(g, i) })
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
	r.b.report.add("growth/"+row, r.s.name, durationMetric(r.services[0].label+":", few), durationMetric(r.services[1].label+":", many), metric{"×", float64(many) / float64(max(few, 1)), ratio})
}

// backups backs up each service once. The duration depends on the data, so the result is the time
// per megabyte.
func (r *growthRun) backups(ctx context.Context) error {
	for _, g := range r.services {
		to := g.dir + "-backup"
		took, err := measure(func() error {
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
		r.b.report.add("growth/backup", r.s.name, metric{g.label + ":", took.Seconds(), seconds}, memoryMetric(g.label+" of", size))
	}
	return nil
}
