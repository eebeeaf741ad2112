// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"strings"
	"testing"
)

// RFC 8970, with its examples.
func TestPreview(t *testing.T) {
	each(t, func(h *fixture) {
		c := h.login()
		c.append("INBOX", "", crlf("Subject: x\n\nPreview text!\n"))
		c.append("INBOX", "", mail)
		c.append("INBOX", "", crlf("Content-Type: application/pdf\n\nx\n"))
		c.append("INBOX", "", crlf("Content-Type: text/html\n\n<style>x</style><p>All <b>work</b> and no play.\n"+strings.Repeat("<p>All work.\n", 10_000)))
		c.ok("SELECT INBOX")
		c.ok("FETCH 1 (PREVIEW)")
		c.got(`* 1 FETCH (PREVIEW "Preview text!")`)
		c.ok("FETCH 1 PREVIEW")
		c.got(`* 1 FETCH (PREVIEW "Preview text!")`)
		c.ok("FETCH 1:4 (UID PREVIEW (LAZY))")
		c.got(`* 1 FETCH (UID 1 PREVIEW "Preview text!")`, "* 2 FETCH (UID 2 PREVIEW "+lit("Grüße vom Meer, and a secret word: xylophone.")+")",
			`* 3 FETCH (UID 3 PREVIEW "")`, `* 4 FETCH (UID 4 PREVIEW NIL)`)
		c.ok("UID FETCH 4 (PREVIEW)")
		c.got(`* 4 FETCH (UID 4 PREVIEW "All work and no play. All work. …All work")`)
		c.ok("FETCH 4 (PREVIEW (LAZY) BODY.PEEK[HEADER.FIELDS (Subject)])") // the message is read anyway
		c.got(`* 4 FETCH (PREVIEW "All work …" BODY[…] ` + lit("\r\n") + ")")
		c.ok("SEARCH RETURN (SAVE) LARGER 100000")
		c.ok("FETCH $ (UID PREVIEW (LAZY))")
		c.got(`* 4 FETCH (UID 4 PREVIEW NIL)`)
		c.ok("SEARCH SEEN")
		c.got("* SEARCH")
	})
}
