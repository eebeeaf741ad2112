// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

// The operator shows, sets and resets an account's limits while the service runs; invalid input
// changes nothing.
func TestAccountLimits(t *testing.T) {
	dbtest.EachURL(t, func(t *testing.T, url string) {
		s := servertest.NewProcess(t, binary, t.TempDir(), url)
		s.Start()
		where := []string{"--data", s.Data, "--database", s.Database}
		limits := func(args ...string) string {
			t.Helper()
			status, out, errs := run(t, nil, append(append([]string{"account", "limits", "--email", "you@demo.test"}, args...), where...)...)
			if status != 0 || errs != "" {
				t.Fatalf("%v: status %d, %s", args, status, errs)
			}
			return strings.Join(strings.Fields(out), " ")
		}
		shows := func(what, got, want string) {
			t.Helper()
			if got != want {
				t.Errorf("%s: it shows\n%s, want\n%s", what, got, want)
			}
		}
		const begin = "requests-per-second default burst default sends-per-hour default sends-per-day default recipients-per-day default storage-mb default"
		shows("at first", limits(), begin)
		const set = "requests-per-second 50 burst default sends-per-hour none sends-per-day 7 recipients-per-day default storage-mb 102400"
		shows("set", limits("--requests-per-second", "50", "--sends-per-hour", "none", "--sends-per-day", "7", "--storage-mb=102400"), set)
		shows("shown", limits(), set)
		servertest.Eventually(t, func() string {
			l, err := s.Client().GetLimits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if l.SendsPerDay.Limit == nil || *l.SendsPerDay.Limit != 7 || l.SendsPerHour.Limit != nil || *l.RecipientsPerDay.Limit != 20_000_000 ||
				*l.Requests.PerSecond != 50 || *l.Requests.Burst != 50 {
				return "the service goes by other limits"
			}
			return ""
		})
		for why, args := range map[string][]string{
			"--sends-per-day must be a number from 1":                       {"--sends-per-day", "0"},
			"--sends-per-hour must be a number from 1":                      {"--sends-per-hour=-1", "--sends-per-day", "9"},
			"--burst must be a number from 1":                               {"--burst", "many"},
			"--storage-mb must be a number from 1":                          {"--storage-mb", "99999999999999999999"},
			"--recipients-per-day must be a number from 1 to 1000000000000": {"--recipients-per-day", "1000000000001", "--sends-per-day", "9"},
			"unknown flag": {"--sends-per-minute", "1"},
		} {
			refused(t, why, nil, append(append([]string{"account", "limits", "--email", "you@demo.test"}, args...), where...)...)
		}
		refused(t, "--email: there is no such account", nil, append([]string{"account", "limits", "--email", "nobody@demo.test", "--burst", "1"}, where...)...)
		refused(t, "--email", nil, append([]string{"account", "limits"}, where...)...)
		shows("after wrong words", limits(), set)
		shows("one reset", limits("--sends-per-hour", "default"), strings.Replace(set, "none", "default", 1))
		shows("all reset", limits("--requests-per-second", "default", "--burst", "default", "--sends-per-day", "default", "--recipients-per-day", "default",
			"--storage-mb", "default"), begin)
		s.Stop()
	})
}
