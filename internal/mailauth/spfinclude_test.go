// SPDX-License-Identifier: Apache-2.0

package mailauth_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/dns/dnstest"
	"github.com/mailstead/mailstead/internal/mailauth"
)

// TestCheckIncludes evaluates what a record refers to, as receivers do.
func TestCheckIncludes(t *testing.T) {
	addr, zone := dnstest.Start(t,
		`spf.host.test. TXT "v=spf1 ip4:192.0.2.1 -all"`,
		`ok.test. TXT "v=spf1 a mx -all"`, "ok.test. A 192.0.2.2", "ok.test. MX 10 ok.test.",
		`two.test. TXT "v=spf1 -all"`, `two.test. TXT "v=spf1 +all"`,
		`bad.test. TXT "v=spf1 ip5:1 -all"`,
		`text.test. TXT "hello"`,
		`loop.test. TXT "v=spf1 include:loop.test -all"`,
		`deep.test. TXT "v=spf1 include:ok.test include:ok.test include:ok.test -all"`,
		`open.test. TXT "v=spf1 +all"`,
		`outer.test. TXT "v=spf1 include:gone.test -all"`,
		`macro.test. TXT "v=spf1 exists:%{i}.gone.test include:%{l}.gone.test redirect=%{d}.gone.test"`)
	zone.ServFail("dead.test")
	r := dnstest.Resolver(t, addr)
	const pass, perm, temp = mailauth.Pass, mailauth.PermError, mailauth.TempError
	for _, c := range []struct {
		record        string
		want          mailauth.Result
		reason        string
		inside, after bool
	}{
		{"include:spf.host.test ~all", pass, "", false, false},
		{"include:ok.test a:ok.test mx:ok.test ptr include:SPF.host.test. ~all", pass, "", false, false},
		{"include:macro.test include:spf.host.test ~all", pass, "", false, false},
		{"include:gone.test include:spf.host.test ~all", perm, "it includes gone.test, which has no record", false, false},
		{"include:text.test include:spf.host.test ~all", perm, "it includes text.test, which has no record", false, false},
		{"include:outer.test include:spf.host.test ~all", perm, "it includes gone.test", false, false},
		{"include:spf.host.test include:gone.test ~all", perm, "it includes gone.test", false, true},
		{"include:two.test include:spf.host.test ~all", perm, "two.test has more than one record", false, false},
		{"include:bad.test include:spf.host.test ~all", perm, "the record of bad.test: bad", false, false},
		{"include:loop.test include:spf.host.test ~all", perm, "too many terms", false, false},
		{"include:deep.test include:deep.test include:spf.host.test ~all", perm, "too many terms", false, false},
		{"include:dead.test include:spf.host.test ~all", temp, "no answer about dead.test", false, false},
		{"include:spf.host.test include:dead.test ~all", temp, "no answer about dead.test", false, true},
		{"a:no1.test a:no2.test a:ok.test include:spf.host.test ~all", pass, "", false, false},
		{"a:no1.test mx:no2.test exists:no3.test include:spf.host.test ~all", perm, "too many names that do not exist", false, false},
		{"include:open.test include:gone.test", pass, "", false, false},
		{"include:spf.host.test redirect=gone.test", perm, "a redirect to gone.test, which has no record", false, true},
		{"include:spf.host.test -all include:gone.test", pass, "", false, false},
	} {
		got := mailauth.CheckSPFIncludes(t.Context(), r, "shop.test", []string{"other", "v=spf1 " + c.record}, "spf.host.test")
		if got.Result != c.want || !strings.Contains(got.Reason, c.reason) || got.InInclude != c.inside || got.AfterInclude != c.after {
			t.Errorf("%s: %+v, want %+v", c.record, got, c)
		}
	}

	for name, want := range map[string]mailauth.Result{"gone.test": perm, "bad.test": perm, "outer.test": perm, "two.test": perm, "dead.test": temp} {
		got := mailauth.CheckSPFIncludes(t.Context(), r, "shop.test", []string{"v=spf1 include:ok.test include:" + name + " ~all"}, name)
		if got.Result != want || !got.InInclude || got.AfterInclude {
			t.Errorf("%s: %+v, want %s inside", name, got, want)
		}
	}
	if n := zone.QueryCount("loop.test."); n > 20 {
		t.Errorf("a loop was asked for %d times", n)
	}
}
