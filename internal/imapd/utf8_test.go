// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"testing"
)

// RFC 6855: names in quoted UTF-8, messages with UTF-8 in their header.
func TestUTF8Accept(t *testing.T) {
	each(t, func(h *fixture) {
		m := strings.Replace(note("x"), "Subject: x", "Subject: Grüße 你好", 1)
		c := h.login()
		c.bad("APPEND INBOX UTF8 (~" + upload(m) + ")")
		c.ok("CREATE Entw&APw-rfe")
		c.no(`CREATE "Entwürfe"`, "ALREADYEXISTS]") // RFC 6855 §3: quoted UTF-8 is always accepted
		c.ok("ENABLE UTF8=ACCEPT")
		c.got("* ENABLED UTF8=ACCEPT")
		c.ok("ENABLE UTF8=ACCEPT")
		c.got("* ENABLED")
		c.ok(`LIST "" Ent*`)
		c.got(`* LIST (\HasNoChildren) "/" "Entwürfe"`)
		c.ok(`CREATE "Projekte/Größe"`)
		c.ok(`STATUS "Projekte/Größe" (MESSAGES)`)
		c.got(`* STATUS "Projekte/Größe" (MESSAGES 0)`)
		c.ok(`CREATE "A&-B"`) // no modified UTF-7 any more
		c.ok(`LIST "" A&*`)
		c.got(`* LIST (\HasNoChildren) "/" A&-B`)
		c.bad("CREATE \"\xff\"")
		c.no("CREATE {1+}\r\n\xff", "CANNOT]")
		c.no("CREATE \"a\u2028b\"", "CANNOT]")

		c.ok(`SELECT "Projekte/Größe"`)
		c.ok(`APPEND "Projekte/Größe" (\Seen) UTF8 (~`+upload(m)+")", "APPENDUID ")
		c.got("* 1 EXISTS", "* 1 RECENT")
		c.ok(`APPEND "Projekte/Größe" UTF8 (~`+upload(m)+") UTF8 (~"+upload(m)+")", "APPENDUID ")
		c.ok("FETCH 1 BODY.PEEK[]")
		c.got(fmt.Sprintf("* 1 FETCH (BODY[] {%d}\r\n%s)", len(m), m))
		c.ok(`SEARCH SUBJECT "Grüße 你好"`)
		c.got("* SEARCH 1 2 3")
		c.bad(`SEARCH CHARSET UTF-8 SUBJECT "Grüße"`)
		c.bad(`APPEND INBOX UTF8 (` + upload(m) + ")")
		c.bad(`APPEND INBOX UTF8 (~` + upload(m))
		c.ok("NOOP")

		plain := h.login()
		plain.ok(`LIST "" Pro*/*`)
		plain.got(`* LIST (\HasNoChildren) "/" Projekte/Gr&APYA3w-e`)
		plain.ok(`LIST "" A&-*`)
		plain.got(`* LIST (\HasNoChildren) "/" A&--B`)
	})
}
