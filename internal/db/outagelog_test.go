// SPDX-License-Identifier: Apache-2.0

package db_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mailstead/mailstead/internal/db"
)

// Each of thousands of queued deliveries logs that the database is down: one line a second reports
// it, with their number. No other record is suppressed.
func TestGatherOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(db.CollapseOutages(slog.NewTextHandler(&out, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))).With("delivery", 7)
		lines := func() []string {
			defer out.Reset()
			return strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' })
		}
		away := fmt.Errorf("attempt: %w", db.Outage(&pgconn.ConnectError{}))
		log.Warn("failed", "error", away)
		for range 1000 {
			log.Warn("failed", "error", away)
		}
		log.Error("failed", "err", away)
		log.Error("failed", "error", errors.New("another"))
		if got := lines(); len(got) != 2 || !strings.HasPrefix(got[0], "level=WARN msg=failed delivery=7") || !strings.Contains(got[1], "another") {
			t.Errorf("in the first second: %q", got)
		}
		<-time.After(time.Second)
		log.WithGroup("g").Warn("failed", "error", away)
		const more = `msg="more failed because the database could not be reached" count=`
		if got := lines(); len(got) != 1 || got[0] != "level=ERROR "+more+"1002" {
			t.Errorf("after a second: %q", got)
		}
		log.Warn("failed", "error", away)
		<-time.After(time.Second)
		log.Info("something else")
		if got := lines(); len(got) != 2 || got[0] != "level=WARN "+more+"1" || !strings.Contains(got[1], "something else") {
			t.Errorf("when it is back: %q", got)
		}
		<-time.After(time.Second)
		log.Warn("failed", "error", away)
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "msg=failed") {
			t.Errorf("in the next outage: %q", got)
		}
	})
}
