// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/mailstead/mailstead/cmd/load/smtp"
)

// lists reads the API's lists with their filters: the first page, or all pages if few or no entries
// match.
func (r *growthRun) lists() error {
	var err error
	for _, l := range []struct {
		row  string
		path func(g *grownService) string
		n    int // entries in all pages; -1: read only the first page, which must be full
	}{
		{"events", func(*grownService) string { return "/events?limit=50" }, -1},
		{"events-recipient", func(g *grownService) string { return "/events?recipient=seed@" + g.domainName }, 2 * growthMessages},
		{"events-message", func(g *grownService) string { return "/events?message=" + g.sentID }, 1},
		{"events-kind", func(*grownService) string { return "/events?type=domain_verified" }, 1},
		{"events-kinds", func(*grownService) string { return "/events?type=domain_verified,migration_complete" }, 1},
		{"events-mailbox", func(g *grownService) string { return "/events?mailbox_id=" + g.archiveID }, 2},
		{"events-domain", func(g *grownService) string { return "/events?domain_id=" + g.emptyDomainID }, 0},
		{"domains", func(*grownService) string { return "/domains?limit=50" }, -1},
		{"mailboxes", func(*grownService) string { return "/mailboxes?limit=50" }, -1},
		{"mailboxes-domain", func(g *grownService) string { return "/mailboxes?domain_id=" + g.domainID }, 2},
		{"mailboxes-empty", func(g *grownService) string { return "/mailboxes?domain_id=" + g.emptyDomainID }, 0},
		{"mailboxes-deleted", func(*grownService) string { return "/mailboxes?deleted=true" }, 0},
		{"limits", func(*grownService) string { return "/limits" }, -1},
		{"suppressions", func(*grownService) string { return "/suppressions?limit=50" }, -1},
		{"suppressions-address", func(*grownService) string { return "/suppressions?email=seed@bench-sink.net" }, 1},
		{"suppressions-reason", func(*grownService) string { return "/suppressions?reason=complaint" }, 0},
		{"sent", func(*grownService) string { return "/outbound/messages?limit=50" }, -1},
		{"sent-recipient", func(g *grownService) string { return "/outbound/messages?recipient=seed@" + g.domainName }, growthMessages},
		{"sent-status", func(*grownService) string { return "/outbound/messages?status=bounced" }, 0},
		{"sent-subject", func(*grownService) string { return "/outbound/messages?subject=zeitgeber" }, 0},
		{"sent-domain", func(g *grownService) string { return "/outbound/messages?domain_id=" + g.emptyDomainID }, 0},
		{"received", func(g *grownService) string { return "/mailboxes/" + g.archiveID + "/messages?limit=50" }, -1},
		{"received-subject", func(g *grownService) string { return "/mailboxes/" + g.archiveID + "/messages?subject=zeitgeber" }, 0},
		{"received-from", func(g *grownService) string { return "/mailboxes/" + g.archiveID + "/messages?from=nobody@example.com" }, 0},
		{"webhook-deliveries", func(g *grownService) string { return "/webhooks/" + g.webhookID + "/deliveries?limit=50" }, -1},
		{"webhook-pending", func(g *grownService) string { return "/webhooks/" + g.webhookID + "/deliveries?status=pending" }, growthPending},
		{"audit", func(*grownService) string { return "/activity?limit=50" }, -1},
	} {
		err = errors.Join(err, r.measureBoth(l.row, 15, func(g *grownService, _ int) error { return g.getPages(l.path(g), l.n) }))
	}
	return err
}

// getPages reads a page, or all pages, which must have n entries.
func (g *grownService) getPages(path string, n int) error {
	got, err := g.getPage(path)
	for all := len(got.Data); err == nil && n >= 0; all += len(got.Data) {
		if !got.HasMore {
			if all != n {
				err = fmt.Errorf("%s: %d entries instead of %d", path, all, n)
			}
			return err
		}
		got, err = g.getPage(path + "&after=" + url.QueryEscape(*got.Next))
	}
	return err
}

// changes creates, changes and deletes a mailbox, and sends a message.
func (r *growthRun) changes() error {
	made := map[*grownService][]string{}
	err := r.measureBoth("mailbox-make", 15, func(g *grownService, i int) error {
		id, err := g.create("/mailboxes", map[string]any{"domain_id": g.domainID, "local_part": fmt.Sprintf("new%d", i), "password": g.reader.password, "quota_mb": 10})
		made[g] = append(made[g], id)
		return err
	})
	err = errors.Join(err, r.measureBoth("mailbox-quota", 15, func(g *grownService, i int) error {
		return callAPI(g.conn, "PATCH", "/mailboxes/"+made[g][i], g.token, map[string]any{"quota_mb": 11 + i}, new(any))
	}))
	err = errors.Join(err, r.measureBoth("mailbox-delete", 15, func(g *grownService, i int) error {
		status, answer, err := g.conn.do("DELETE", "/mailboxes/"+made[g][i], g.token, nil)
		if err == nil && status != 204 {
			err = fmt.Errorf("%d %s", status, answer)
		}
		return err
	}))
	return errors.Join(err, r.measureBoth("send", 30, func(g *grownService, i int) error {
		_, err := g.create("/outbound/send", map[string]any{
			"from_email": "sender@" + g.domainName, "to": []string{"archive@" + g.domainName}, "subject": fmt.Sprintf("Number %d", i), "text": "Hello!",
		})
		return err
	}))
}

// folders opens the large folder and searches it.
func (r *growthRun) folders() error {
	run := func(command string) func(*grownService, int) error {
		return func(g *grownService, _ int) error {
			_, err := g.session.Command(command)
			return err
		}
	}
	var err error
	for _, c := range []struct{ row, command string }{
		{"select", "SELECT INBOX"}, {"search-text", "UID SEARCH TEXT zeitgeber"}, {"search-subject", "UID SEARCH SUBJECT zeitgeber"},
		{"newest", "UID FETCH 1:2 (FLAGS ENVELOPE)"},
	} {
		err = errors.Join(err, r.measureBoth(c.row, 15, run(c.command)))
	}
	return err
}

// receive sends mail to the MX.
func (r *growthRun) receive() error {
	const from = "writer@bench-sink.net"
	sessions, mail := map[*grownService]*smtp.Client{}, map[*grownService][]byte{}
	defer func() {
		for _, c := range sessions {
			_ = c.Close() // the measurement is done
		}
	}()
	return r.measureBoth("arrive", 30, func(g *grownService, _ int) (err error) {
		if sessions[g] == nil { // the first is not counted
			if mail[g], err = r.b.signer.sign(plainMessage(1, from, g.reader.address), "bench-sink.net"); err != nil {
				return err
			}
			if sessions[g], err = smtp.Dial(g.system.mx); err != nil {
				return err
			}
		}
		return sessions[g].Send(from, g.reader.address, mail[g])
	})
}

// folderSize returns the total size of the files in a directory, in bytes.
func folderSize(dir string) (bytes float64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = e.Info(); err == nil {
				bytes += float64(info.Size())
			}
		}
		return err
	})
	return bytes, err
}
