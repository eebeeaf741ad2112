// SPDX-License-Identifier: Apache-2.0

package smtpd_test

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/db/dbtest"
	"github.com/mailstead/mailstead/internal/smtpd"
)

// REQUIRETLS is offered only on submission, and only under TLS.
func TestRequireTLS(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, database *db.DB) {
		d, _, _ := startSubmission(t, database, smtpd.Submission)
		c := d.dial()
		c.want("220 ")
		if got := c.answers("EHLO client.example"); strings.Contains(got, "REQUIRETLS") {
			t.Errorf("in clear EHLO says\n%s", got)
		}
		c.say("STARTTLS", "220 ")
		c.handshake()
		if got := c.answers("EHLO client.example"); !strings.Contains(got, "\n250-REQUIRETLS\n") {
			t.Errorf("EHLO says\n%s", got)
		}
		c.say("AUTH PLAIN "+b64("\x00ann@demo.test\x00"+password), "235 2.7.0")
		c.say("MAIL FROM:<ann@demo.test> REQUIRETLS=yes", "501 5.5.4")
		c.say("MAIL FROM:<ann@demo.test> REQUIRETLS requiretls", "501 5.5.4")
		for i, parameter := range []string{" requiretls SIZE=10", ""} {
			c.say("MAIL FROM:<ann@demo.test>"+parameter, "250 ")
			c.say("RCPT TO:<bob@demo.test>", "250 ")
			c.say("DATA", "354 ")
			c.say("hi\r\n.", "250 ")
			if got := d.taken()[i]; got.envelope.RequireTLS != (parameter != "") {
				t.Errorf("took %+v", got)
			}
		}
	})
	mx := open(t, nil)
	c := mx.dial()
	c.want("220 ")
	c.say("EHLO client.example", "250 ")
	c.say("STARTTLS", "220 ")
	c.handshake()
	if got := c.answers("EHLO client.example"); strings.Contains(got, "REQUIRETLS") {
		t.Errorf("on MX EHLO says\n%s", got)
	}
	c.say("MAIL FROM:<ann@example.com> REQUIRETLS", "555 5.5.4")
}
