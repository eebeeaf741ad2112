// SPDX-License-Identifier: Apache-2.0

package outbound_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

const delayReport = "From: <mailer-daemon@mx.example.org>\r\nMessage-ID: <delay@mx.example.org>\r\nContent-Type: multipart/report; report-type=delivery-status; boundary=x\r\n\r\n" +
	"--x\r\n\r\nWe go on trying.\r\n--x\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.example.org\r\n\r\n" +
	"Final-Recipient: rfc822; ann@example.org\r\nAction: delayed\r\nStatus: 4.4.1\r\nRemote-MTA: dns; in.example.org\r\nDiagnostic-Code: smtp; 451 4.4.1 no answer\r\n\r\n--x--\r\n"

var allRemarks = db.SQL(`SELECT COUNT(*) FROM remark`)

// A delay report that arrives at the MX appears once in the timeline that the API shows, changes
// nothing, and is deleted with the message.
func TestDelayInTimeline(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := send(t, s, "ann@example.org")
		servertest.Eventually(t, func() string {
			got, err := s.Outbox.Get(t.Context(), demo(t, s).Account, m.ID)
			if err != nil || got.Status == queue.Delivered {
				return ""
			}
			return string(got.Status)
		})
		for range 2 {
			deliver(t, s, s.Inbound.Key.ReturnPath(int64(m.ID), 0)+"@demo.test", delayReport)
		}
		got := s.API("GET", "/outbound/messages/"+m.ID.String(), nil)
		text := string(got.Body)
		if strings.Count(text, `"stage":"delay"`) != 1 || !strings.Contains(text, `"smtp_code":451,"enhanced_code":"4.4.1","diagnostic":"no answer"`) ||
			!strings.Contains(text, `"status":"delivered"`) || strings.Contains(text, `"status":"deferred"`) {
			t.Errorf("%s", text)
		}
		remarks := 0
		if err := s.DB.One(t.Context(), allRemarks.With(), &remarks); err != nil || remarks != 1 {
			t.Errorf("%d remarks, %v", remarks, err)
		}
		makePast(t, s, m)
		if err := s.DB.One(t.Context(), allRemarks.With(), &remarks); err != nil || remarks != 0 {
			t.Errorf("%d remarks are left, %v", remarks, err)
		}
	})
}

var (
	triedOften = db.SQL(`UPDATE delivery SET attempts = $2 WHERE message = $1`)
	oneTry     = db.SQL(`INSERT INTO attempt (message, n, attempt, started_at, duration_us, outcome, host, ip, tls, stage, code, enhanced, reply, transcript)
		VALUES ($1, 0, $2, $2, 0, 'deferred', '', '', '', 'data', 451, '', $3, $4)`)
)

// The timeline of a delivery with very many attempts, for example after repeated manual retries,
// has only the last attempts, and the conversations of the last of these.
func TestLongTimeline(t *testing.T) {
	servertest.Each(t, func(t *testing.T, s *servertest.Server) {
		m := send(t, s, "ann@example.org")
		servertest.Eventually(t, func() string {
			got, err := s.Outbox.Get(t.Context(), demo(t, s).Account, m.ID)
			if err != nil || got.Status == queue.Delivered {
				return ""
			}
			return string(got.Status)
		})
		const tries = 250
		long := strings.Repeat("x", 100_000)
		err := s.DB.Tx(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), triedOften.With(m.ID, tries))
			for n := 2; n <= tries && err == nil; n++ {
				_, err = tx.Exec(t.Context(), oneTry.With(m.ID, n, fmt.Sprintf("reply %d.", n), fmt.Sprintf("S: conversation %d.%s", n, long)))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		text := string(s.API("GET", "/outbound/messages/"+m.ID.String(), nil).Body)
		if n := strings.Count(text, "S: conversation "); n != 65 || !strings.Contains(text, "S: conversation 250.") || !strings.Contains(text, "S: conversation 186.") {
			t.Errorf("%d bytes with %d conversations", len(text), n)
		}
		if n := strings.Count(text, `"number":`); n != 100 || !strings.Contains(text, "reply 250.") || !strings.Contains(text, "reply 151.") {
			t.Errorf("%d attempts are shown: %.2000s", n, text)
		}
	})
}
