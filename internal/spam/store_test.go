// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/summary"
)

// Pruning deletes the rarest tokens first, and among those the oldest. A token that was pruned
// before it is taken back counts as unseen.
func TestForget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := time.Unix(1_800_000_000, 0)
		b := NewBayes(Bayes{DB: d, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)})
		const account = db.ID(7)
		dbtest.Exec(t, d, addTrainingQuery.With(account, 20, 20))
		for n := range 40 {
			dbtest.Exec(t, d, countTokenQuery.With(account, n, n%4, 0, n), countTokenQuery.With(db.ID(8), n, 1, 0, 0))
		}
		dbtest.Exec(t, d, addLessonQuery.With(account, 1, true, b.today()-lessonDays-1), addLessonQuery.With(account, 2, true, b.today()-lessonDays))
		if err := b.forgetTokens(t.Context(), account, 25); err != nil {
			t.Fatal(err)
		}
		left := func(of db.ID) (n int) {
			if err := d.One(t.Context(), tokenTotalQuery.With(of), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if left(account) != 15 || left(8) != 40 {
			t.Errorf("%d words are left, and %d of another account's", left(account), left(8))
		}
		if err := d.One(t.Context(), lessonQuery.With(account, 2), new(bool)); err != nil {
			t.Errorf("a lesson of its last day: %v", err)
		}
		if err := d.One(t.Context(), lessonQuery.With(account, 1), new(bool)); err == nil {
			t.Error("a lesson of long ago is kept")
		}
		dbtest.Exec(t, d, countTokenQuery.With(account, 0, -1, 0, 0)) // it was pruned
		got, err := b.Score(t.Context(), account, func() []uint64 { return []uint64{0, 3, 7, 11, 15, 19, 23, 27, 31, 35, 39} })
		if err != nil || len(got) != 1 || got[0].Name != "BAYES_99" {
			t.Errorf("it judges %v, %v", got, err)
		}
		ofOther := func() []summary.SpamReason {
			got, err := b.Score(t.Context(), 8, func() []uint64 { return []uint64{1} })
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := ofOther(); got != nil {
			t.Errorf("an account that taught nothing judges %v", got)
		}
		dbtest.Exec(t, d, addTrainingQuery.With(db.ID(8), 20, 20)) // by another node
		if now = now.Add(untrainedTTL); ofOther() == nil {
			t.Error("after a minute it is not known what another node has learned")
		}
	})
}

func TestBlockLists(t *testing.T) {
	addr, zone := dnstest.Start(t,
		"2.2.0.192.bl.test. A 127.0.0.4", "3.2.0.192.bl.test. A 127.0.0.1", "4.2.0.192.bl.test. A 127.255.255.254", "5.2.0.192.bl.test. A 192.0.2.1",
		"2.2.0.192.white.test. A 127.0.0.2",
		"1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.bl.test. A 127.0.0.2")
	zone.Drop("6.2.0.192.bl.test")
	zone.ServFail("7.2.0.192.bl.test")
	l := &BlockLists{DNS: dnstest.Resolver(t, addr), Timeout: 200 * time.Millisecond}
	for _, text := range []string{"bl.test", "White.Test=-2.5"} {
		one, err := ParseBlockList(text)
		if err != nil {
			t.Fatal(err)
		}
		l.Lists = append(l.Lists, one)
	}
	for client, want := range map[string][]summary.SpamReason{
		"192.0.2.2":        {{Name: "DNSBL_bl.test", Points: 3}, {Name: "DNSBL_white.test", Points: -2.5}},
		"::ffff:192.0.2.2": {{Name: "DNSBL_bl.test", Points: 3}, {Name: "DNSBL_white.test", Points: -2.5}},
		"192.0.2.3":        nil, "192.0.2.4": nil, "192.0.2.5": nil, "192.0.2.6": nil, "192.0.2.7": nil, "192.0.2.8": nil,
		"2001:db8::1": {{Name: "DNSBL_bl.test", Points: 3}},
	} {
		if got := l.Lookup(t.Context(), netip.MustParseAddr(client)); !slices.Equal(got, want) {
			t.Errorf("%s is on %v", client, got)
		}
	}
	if got := l.Lookup(t.Context(), netip.Addr{}); got != nil {
		t.Errorf("nobody is on %v", got)
	}
	for _, bad := range []string{"", "=3", "a b", "bl.test=", "bl.test=x", "bl.test=1e9", "bl.test=NaN"} {
		if l, err := ParseBlockList(bad); err == nil {
			t.Errorf("%q is the list %v", bad, l)
		}
	}
}

// Authentication results count, but are never enough alone.
func TestResults(t *testing.T) {
	for want, v := range map[float64]summary.CheckResults{
		3.5:  {SPF: "fail", DKIM: "fail", DMARC: "fail"},
		-0.5: {SPF: "pass", DKIM: "pass", DMARC: "pass"},
		0.5:  {SPF: "none", DKIM: "none", DMARC: "none"},
		0:    {SPF: "pass", DMARC: "none"},
	} {
		w := &BuiltinFilter{Log: slog.New(slog.DiscardHandler)}
		got := w.Check(t.Context(), &Message{CheckResults: v, To: []string{"a@b.test", "c@b.test"}, Accounts: []db.ID{1, 2}})
		if len(got) != 2 || got[0].Score != want || got[1].IsSpam() {
			t.Errorf("%v: %+v", v, got)
		}
	}
}
