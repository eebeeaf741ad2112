// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/blob"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/event"
	"github.com/mailstead/mailstead/internal/lease"
	"github.com/mailstead/mailstead/internal/queue/admin"
	"github.com/mailstead/mailstead/internal/secret"
	"github.com/mailstead/mailstead/internal/webhook"
)

// Data checks a service's database contents and the related files.
type Data struct {
	*Database
	Blobs string      // directory of large messages
	Key   *secret.Key // nil: unavailable, because of KeyErr
	// KeyErr is fs.ErrNotExist if serve would create a new key.
	KeyErr error
	Deep   bool // check everything, not a sample
	// Host is the service's host name, and Postmaster the operator's address.
	Host, Postmaster string
}

// Number of rows to check unless Deep is set.
const (
	maxKeys     = 100
	maxFiles    = 2000
	maxExamples = 3
)

// CheckSecretKey checks that the secret key belongs to the database, and decrypts the secrets in
// it.
func (k *Data) CheckSecretKey(ctx context.Context, r *Report) {
	restore := "Give the key that this database is used with: as --secret-key (MAILSTEAD_SECRET_KEY), or as the file secret.key of the data folder, from a backup or another node."
	known, err := k.KeyFingerprint(ctx)
	switch {
	case err != nil:
		r.Fail("Look at the log of the database.", "%v", err)
		return
	case k.Key == nil && errors.Is(k.KeyErr, fs.ErrNotExist) && known == "":
		r.OK("not there yet; mailstead serve will make it")
		return
	case k.Key == nil && errors.Is(k.KeyErr, fs.ErrNotExist):
		r.Fail(restore, "there is no secret key, and the database is used with one: what is sealed there, such as DKIM keys, can't be opened")
		return
	case k.Key == nil:
		r.Fail(FixFor(k.KeyErr, "Correct the file; if its text is damaged, take it from a backup or another node."), "%s", strings.TrimPrefix(k.KeyErr.Error(), "secret key "))
		return
	case known != "" && known != k.Key.Fingerprint():
		r.Fail(restore, "the database is used with another secret key, so mailstead serve does not start: what is sealed, such as DKIM keys, can't be opened")
		return
	}
	most := maxKeys
	if k.Deep {
		most = 0
	}
	broken, err := domain.CheckHostDKIMKey(ctx, k.Inspector, k.Key)
	var opened, closed int
	var selector string
	if err == nil {
		opened, closed, selector, err = domain.CheckSealedKeys(ctx, k.Inspector, k.Key, most)
	}
	switch {
	case err != nil:
		r.Fail("Look at the log of the database.", "%v", err)
	case broken != nil:
		r.Fail("Restore the row of host_key from a backup, or delete it: the service then generates another key. Publish its record, which mailstead dns prints.",
			"the DKIM key of %s can't sign reports and the service's own mail: %v", k.Host, broken)
	case closed > 0:
		r.Fail("Restore their rows from a backup, or delete these keys and let the domains have new ones: mail of theirs can't be signed.",
			"%s can't be opened, among them %s", plural(closed, false, "DKIM key", "DKIM keys"), selector)
	default:
		r.OK("the one of this database; opens %s", plural(opened, !k.Deep && opened >= maxKeys, "DKIM key", "DKIM keys"))
	}
}

// CheckBlobFiles checks that the large messages are in their directory.
func (k *Data) CheckBlobFiles(ctx context.Context, r *Report) {
	owner, database, used, err := blob.DirOwner(k.Blobs)
	if err != nil {
		r.Fail(FixFor(err, "Look at the disk, and whose the folder is."), "%v", err)
		return
	}
	name, err := k.InstanceName(ctx)
	if err != nil {
		r.Fail("Look at the log of the database.", "%v", err)
		return
	}
	if k.Key != nil && owner != "" && owner != k.Key.Fingerprint() {
		r.Fail("Let --blobs name the folder of this service; each would delete the other's files.", "%s is the folder of another service", k.Blobs)
		return
	}
	if database != "" && database != name {
		r.Fail(fmt.Sprintf("Give each a folder of its own, by --blobs; if the other database is used no more, delete %s/database.", k.Blobs),
			"%s is the folder of another database with the same secret key: no file is deleted there", k.Blobs)
		return
	}
	most := maxFiles
	if k.Deep {
		most = 0
	}
	w, err := blob.CheckFiles(ctx, k.Inspector, k.Blobs, most)
	switch {
	case err != nil:
		r.Fail("Look at the log of the database, and at the disk.", "after %s: %v", plural(w.Checked, false, "file", "files"), err)
	case w.Checked > 0 && !used && w.Missing == w.Checked:
		r.Fail("Look whether it is mounted, and whether --blobs is right.", "the large messages of this database are not in %s", k.Blobs)
	case w.Unreadable > 0:
		r.Fail(FixFor(w.Err, "Look at the disk. What it can't read any more, copy from a backup of the folder to the same names."),
			"of the newest %d, %d missing, %d of a wrong size and %d that can't be looked at: %v", w.Checked, w.Missing, w.WrongSize, w.Unreadable, w.Err)
	case w.Missing+w.WrongSize > 0:
		r.Fail("Copy them from a backup of the folder to the same names; until then these messages can't be read whole.",
			"of the newest %d, %d missing and %d of a wrong size, such as %s", w.Checked, w.Missing, w.WrongSize, w.FirstPath)
	case w.Checked == 0:
		r.OK("the database names none")
	case k.Deep:
		r.OK("all %d files that the database names are in %s", w.Checked, k.Blobs)
	default:
		r.OK("the newest %d that the database names are in %s", w.Checked, k.Blobs)
	}
}

// CheckDomains counts the domains with problems.
func (k *Data) CheckDomains(ctx context.Context, r *Report) {
	count, named, err := domain.CountByStatus(ctx, k.Inspector, maxExamples)
	if err != nil {
		r.Fail("Look at the log of the database.", "%v", err)
		return
	}
	all := 0
	for _, n := range count {
		all += n
	}
	if n := count[domain.StatusDegraded] + count[domain.StatusFailed]; n > 0 {
		slices.Sort(named)
		text := strings.Join(named, ", ")
		if n > len(named) {
			text += " and others"
		}
		r.Warn("Their pages on the dashboard show which DNS records are missing or wrong.", "%d of %d are degraded or failed: %s", n, all, text)
		return
	}
	r.OK("%d verified, %d pending, %d suspended", count[domain.StatusVerified], count[domain.StatusPending], count[domain.StatusSuspended])
}

// How late work may be before it is reported.
const (
	maxQueueDelay = 15 * time.Minute
	maxEventDelay = time.Minute
)

// CheckQueue checks the delivery queue, and whether a node works on it.
func (k *Data) CheckQueue(ctx context.Context, r *Report) {
	b, err := admin.ReadBacklog(ctx, k.Inspector)
	if err != nil {
		r.Fail("Look at the log of the database.", "%v", err)
		return
	}
	text := plural(b.Waiting, b.MoreWaiting, "delivery waits", "deliveries wait")
	if b.Held > 0 {
		text += ", " + plural(b.Held, b.MoreHeld, "is held", "are held")
	}
	late := time.Duration(0)
	if !b.DueAt.IsZero() {
		late = k.Database.Now().Sub(b.DueAt)
	}
	if late > 0 {
		text += ", the longest due for " + formatDuration(late)
	}
	switch {
	case late > maxQueueDelay && k.nodeRunningFor(maxQueueDelay) && !b.AnyLeased:
		r.Fail("Restart the service; its log says what keeps the queue (level=ERROR), mailstead queue list what waits.", "%s, and nothing is being delivered: the queue stands still", text)
	case late > maxQueueDelay && k.nodeRunningFor(maxQueueDelay):
		r.Warn("mailstead queue list shows for which destinations.", "%s: the queue lags", text)
	case late > maxQueueDelay && len(k.liveNodes()) == 0:
		r.Warn("Start the service.", "%s, and no node is at work", text)
	default:
		r.OK("%s", text)
	}
}

// nodeRunningFor reports whether a node has been running for at least this long.
func (k *Data) nodeRunningFor(at time.Duration) bool {
	return slices.ContainsFunc(k.liveNodes(), func(n lease.NodeState) bool { return k.Database.Now().Sub(n.LeaseID.Time()) > at })
}

// CheckEvents checks that events get sequence numbers: webhooks and streams receive no others.
func (k *Data) CheckEvents(ctx context.Context, r *Report) {
	n, oldest, err := event.CountUnnumbered(ctx, k.Inspector)
	if err != nil {
		r.Fail("Look at the log of the database.", "%v", err)
		return
	}
	text := plural(n, n == event.MaxUnnumbered, "event is", "events are") + " to be numbered"
	late := k.Database.Now().Sub(oldest)
	if n > 0 && late > maxEventDelay && k.nodeRunningFor(maxEventDelay) {
		r.Warn("Look for “numbering events failed” in the log of each node, and restart them.", "%s, the oldest for %s: webhooks and streams don't hear of them", text, formatDuration(late))
		return
	}
	r.OK("%s", text)
}

// CheckWebhooks counts the disabled webhooks.
func (k *Data) CheckWebhooks(ctx context.Context, r *Report) {
	all, failed, some, err := webhook.CountDisabled(ctx, k.Inspector, maxExamples)
	switch {
	case err != nil:
		r.Fail("Look at the log of the database.", "%v", err)
	case failed > 0:
		var ids []string
		for _, id := range some {
			ids = append(ids, id.String())
		}
		r.Warn("Tell their owners: once the endpoint is mended they enable it on the dashboard or by the API.",
			"%d of %d were disabled because they failed, such as %s", failed, all, strings.Join(ids, ", "))
	default:
		r.OK("%s, none disabled by failure", plural(all, false, "webhook", "webhooks"))
	}
}
