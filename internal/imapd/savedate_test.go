// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"testing"
	"time"
)

const dateTime = "_2-Jan-2006 15:04:05 -0700"

// RFC 8514: the save date is the time of filing, not the client's date, and a copy has its own.
func TestSaveDate(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		before := time.Now().Truncate(time.Second)
		c.append("INBOX", `"01-Jan-2015 18:50:53 +0100" `, note("x"))
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 (SAVEDATE INTERNALDATE)")
		c.got(`* 1 FETCH (INTERNALDATE " 1-Jan-2015 17:50:53 +0000" SAVEDATE "…")`)
		saved, err := time.Parse(dateTime, c.untagged[0][len(c.untagged[0])-28:len(c.untagged[0])-2])
		if err != nil || saved.Before(before) || saved.After(time.Now()) {
			t.Errorf("got %q, %v", c.untagged, err)
		}
		day := func(days int) string { return saved.AddDate(0, 0, days).Format("2-Jan-2006") }
		for _, x := range []struct{ program, want string }{
			{"SAVEDON " + day(0), " 1"}, {"SAVEDON " + day(-1), ""}, {"SAVEDSINCE " + day(0), " 1"}, {"SAVEDSINCE " + day(1), ""},
			{"SAVEDBEFORE " + day(0), ""}, {"SAVEDBEFORE " + day(1), " 1"}, {"NOT SAVEDON " + day(0), ""},
			{"SAVEDATESUPPORTED", " 1"}, {"NOT SAVEDATESUPPORTED", ""}, {"ON 1-Jan-2015", " 1"},
		} {
			c.ok("SEARCH " + x.program)
			c.got("* SEARCH" + x.want)
		}
		c.ok("COPY 1 Archive")
		c.ok("SELECT Archive")
		c.ok("SEARCH SAVEDSINCE " + day(0) + " BEFORE 2-Jan-2015")
		c.got("* SEARCH 1")
	})
}

// RFC 5032: ages in seconds, of the internal date.
func TestWithin(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		for _, age := range []time.Duration{3 * time.Hour, time.Hour} {
			c.append("INBOX", `"`+time.Now().Add(-age).Format(dateTime)+`" `, note("x"))
		}
		c.ok("SELECT INBOX")
		for _, x := range []struct{ program, want string }{
			{"YOUNGER 7200", " 2"}, {"OLDER 7200", " 1"}, {"YOUNGER 14400", " 1 2"}, {"OLDER 14400", ""},
			{"NOT YOUNGER 7200", " 1"}, {"OLDER 3600", " 1 2"}, {"OLDER 4294967295", ""},
			{"UNSEEN OLDER 1800 YOUNGER 7200", " 2"},
		} {
			c.ok("SEARCH " + x.program)
			c.got("* SEARCH" + x.want)
		}
		for _, bad := range []string{"SEARCH OLDER", "SEARCH YOUNGER -1", "SEARCH YOUNGER 4294967296"} {
			c.bad(bad)
		}
	})
}
