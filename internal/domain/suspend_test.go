// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
)

var countAudited = db.SQL(`SELECT COUNT(*) FROM dashboard_audit WHERE action = 'suspendDomain'`)

// suspends suspends a name or ends its suspension, and fails unless that many claims change, each
// with an entry in the audit log.
func (w *world) suspends(name string, yes bool, want int) {
	w.t.Helper()
	var before, after int
	for _, err := range []error{
		w.db.One(w.t.Context(), countAudited.With(), &before),
		w.SetSuspended(w.t.Context(), name, yes),
		w.db.One(w.t.Context(), countAudited.With(), &after),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	if after-before != want {
		w.t.Fatalf("changed %d, want %d", after-before, want)
	}
}

// A suspension blocks all uses of a domain, survives its checks, and defers their effects until it
// ends.
func TestSuspend(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, ctx := open(t, d), t.Context()
		if err := w.SetSuspended(ctx, "shop.test", true); !fault.Is(err, fault.NotFound) {
			t.Errorf("a name that nobody claims: %v", err)
		}
		dom := w.create(w.ann, "shop.test")
		w.publish(dom)
		w.expect(w.check(dom), domain.StatusVerified, true, true)
		events := w.verifiedEvents(w.ann)

		w.suspends("Shop.test", true, 1)
		w.suspends("shop.test", true, 0) // already suspended
		w.decidesAsShown(w.get(dom))
		w.blocked(w.get(dom), "suspended", "suspended")
		denied := func(what string, err error) {
			t.Helper()
			if !fault.Is(err, fault.Denied) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := w.SendingDomain(ctx, w.ann, "shop.test")
		denied("sending", err)
		_, err = w.VerifiedName(ctx, w.ann, dom.ID)
		denied("making mailboxes", err)
		_, err = w.RotateKeys(ctx, w.ann, dom.ID, "")
		denied("rotating keys", err)
		denied("deleting", w.Delete(ctx, w.ann, dom.ID))
		if h, ok, err := w.FindHosted(ctx, "shop.test"); err != nil || !ok || !h.Suspended {
			t.Errorf("hosted %+v, %t, %v", h, ok, err)
		}
		if _, ok, err := w.STSPolicy(ctx, "shop.test"); err != nil || ok {
			t.Errorf("it has a policy: %t, %v", ok, err)
		}
		if err := w.CheckServedName(ctx, "mta-sts.shop.test"); err == nil {
			t.Error("its policy host may have a certificate")
		}
		if h, err := w.OwnerOf(ctx, "shop.test"); err != nil || !h.Suspended || h.Account != w.ann {
			t.Errorf("operators see %+v, %v", h, err)
		}
		if count, _, err := domain.CountByStatus(ctx, d, 1); err != nil || count[domain.StatusSuspended] != 1 || count[domain.StatusVerified] != 0 {
			t.Errorf("doctor counts %v, %v", count, err)
		}
		if all, err := domain.SuspendedDomains(ctx, d); err != nil || len(all) != 1 || !all[dom.ID] {
			t.Errorf("suspended are %v, %v", all, err)
		}

		// Manual and scheduled checks record results and change nothing else.
		w.withdraw(dom)
		w.expect(w.check(dom), domain.StatusSuspended, false, false)
		w.clock.Add(27 * time.Hour)
		w.poll()
		if got := w.get(dom); got.Status != domain.StatusSuspended || record(t, got, domain.KindMX).Status != domain.RecordFailed {
			t.Errorf("after a check it is %s, a record %s", got.Status, record(t, got, domain.KindMX).Status)
		}
		w.publish(dom)
		w.clock.Add(27 * time.Hour)
		w.poll()
		w.expect(w.get(dom), domain.StatusSuspended, false, false)

		w.suspends("shop.test", false, 1)
		w.suspends("shop.test", false, 0)
		w.expect(w.get(dom), domain.StatusVerified, true, true)
		w.poll()
		w.expect(w.get(dom), domain.StatusVerified, true, true)
		if n := w.verifiedEvents(w.ann); n != events {
			t.Errorf("%d events, had %d", n, events)
		}
		if _, err := w.SendingDomain(ctx, w.ann, "shop.test"); err != nil {
			t.Errorf("sending again: %v", err)
		}
		if _, ok, err := w.STSPolicy(ctx, "shop.test"); err != nil || !ok {
			t.Errorf("it has no policy: %v", err)
		}
		for name, served := range map[string]bool{"mta-sts.shop.test": true, "autoconfig.shop.test": true, "www.shop.test": false, "mta-sts.other.test": false} {
			if err := w.CheckServedName(ctx, name); (err == nil) != served {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A suspended name doesn't change hands; otherwise another account of the same people could end the
// suspension with a TXT record.
func TestSuspendedChangesNoHands(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := open(t, d)
		mine := w.create(w.ann, "shop.test")
		w.publish(mine)
		w.expect(w.check(mine), domain.StatusVerified, true, true)
		w.suspends("shop.test", true, 1)
		w.withdraw(mine)
		theirs := w.create(w.bob, "shop.test")
		w.publish(theirs)
		for range 3 {
			w.check(theirs)
			w.check(mine)
			w.clock.Add(25 * time.Hour)
		}
		w.expect(w.get(theirs), domain.StatusPending, false, false)
		if h, ok, err := w.FindHosted(t.Context(), "shop.test"); err != nil || !ok || h.Account != w.ann || !h.Suspended {
			t.Errorf("hosted by %+v, %v", h, err)
		}
		w.suspends("shop.test", false, 1)
		w.check(theirs)
		w.clock.Add(25 * time.Hour)
		w.check(theirs)
		if h, _, err := w.FindHosted(t.Context(), "shop.test"); err != nil || h.Account != w.bob {
			t.Errorf("afterwards it is hosted by %+v, %v", h, err)
		}
	})
}
