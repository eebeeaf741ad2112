// SPDX-License-Identifier: Apache-2.0

package imapd_test

import (
	"fmt"
	"strings"
	"testing"
)

const thunderbirdFields = "From To Cc Bcc Subject Date Message-ID Priority X-Priority References Newsgroups In-Reply-To Content-Type Reply-To"

// upload runs an APPEND like graphical clients: with or without a date, and with a synchronizing
// literal.
func (c *client) upload(folder, options, message string) {
	c.Helper()
	tag := c.begin(fmt.Sprintf("append \"%s\" %s{%d}", folder, options, len(message)))
	c.continued("+ ")
	c.send(message + "\r\n")
	c.finish(tag)
	if !strings.HasPrefix(c.tagged, "OK [APPENDUID ") {
		c.Fatalf("append: %q", c.tagged)
	}
}

// thunderbirdStart runs Thunderbird's commands before it opens a folder.
func (h *fixture) thunderbirdStart() *client {
	c := h.dial()
	c.ok("capability")
	c.has("* CAPABILITY …STARTTLS…")
	c.startTLS()
	c.ok("capability")
	c.has("* CAPABILITY …SASL-IR…AUTH=PLAIN")
	c.ok("authenticate PLAIN "+plain("", alice, password), "CAPABILITY ")
	c.ok(`ID ("name" "Thunderbird" "version" "128.4.0esr")`)
	c.has(`* ID (…`)
	c.ok("enable CONDSTORE")
	c.compress()
	c.ok("namespace")
	c.got(`* NAMESPACE (("" "/")) NIL NIL`)
	c.ok(`list (subscribed) "" "*" return (special-use)`)
	c.has(`* LIST (…\Subscribed…) "/" INBOX`, `* LIST (…\Sent…) "/" Sent`, `* LIST (…\Junk…) "/" Junk`)
	c.ok(`list (special-use) "" "*"`)
	c.has(`* LIST (…\Drafts…) "/" Drafts`)
	c.ok(`lsub "" "*"`)
	c.has(`* LSUB (…) "/" INBOX`)
	c.ok(`getquotaroot "INBOX"`)
	c.has(`* QUOTAROOT INBOX ""`, `* QUOTA "" (STORAGE …)`)
	return c
}

// Commands of Thunderbird, from its source and its logs (IMAP:4).
func TestThunderbird(t *testing.T) {
	each(t, func(h *fixture) {
		for _, s := range []string{"one", "two"} {
			h.login().append("INBOX", "", note(s))
		}
		big := mail + strings.Repeat("0123456789abcdef\r\n", 10_000)
		h.login().append("INBOX", "", big)
		c := h.thunderbirdStart()
		c.ok(`select "INBOX" (CONDSTORE)`, "READ-WRITE]")
		c.has("* 3 EXISTS", "* OK [UIDNEXT 4] …", "* OK [HIGHESTMODSEQ …] …", `* OK [PERMANENTFLAGS (…\*)] …`)
		c.ok("UID fetch 1:* (FLAGS)")
		c.got(`* 1 FETCH (UID 1 FLAGS (\Recent))`, `* 2 FETCH (UID 2 FLAGS (\Recent))`, `* 3 FETCH (UID 3 FLAGS (\Recent))`)
		c.ok("UID fetch 1:3 (UID RFC822.SIZE FLAGS BODY.PEEK[HEADER.FIELDS (" + thunderbirdFields + ")])")
		c.got("* 1 FETCH (UID 1 FLAGS (…) RFC822.SIZE … BODY[HEADER.FIELDS ("+thunderbirdFields+")] {…From: Bob Smith …\r\n\r\n)",
			"* 2 FETCH (…", "* 3 FETCH (UID 3 …Subject: =?utf-8?b?R3LDvMOfZQ==?= from the sea\r\n…\r\n\r\n)")
		c.ok("UID fetch 1:2 (UID BODY.PEEK[HEADER.FIELDS (Content-Type Content-Transfer-Encoding)] BODY.PEEK[TEXT]<0.2048>)")
		c.got("* 1 FETCH (UID 1 BODY[HEADER.FIELDS (Content-Type Content-Transfer-Encoding)] {2}\r\n\r\n BODY[TEXT]<0> {…Dear Alice, …", "* 2 FETCH …")

		c.ok("UID fetch 3 (BODYSTRUCTURE)")
		c.got(`* 3 FETCH (UID 3 BODYSTRUCTURE (("text" "plain" …) "mixed" ("boundary" "outer") NIL NIL NIL))`)
		c.ok("UID fetch 3 (BODY.PEEK[HEADER] BODY.PEEK[1.MIME] BODY.PEEK[1] BODY.PEEK[2.MIME] BODY.PEEK[2.HEADER] BODY.PEEK[2.1])")
		c.got("* 3 FETCH (UID 3 BODY[HEADER] {…BODY[2.1] {10}\r\ninner text)")
		var read strings.Builder
		for read.Len() < len(big) {
			c.ok(fmt.Sprintf("UID fetch 3 (UID RFC822.SIZE BODY[]<%d.65536>)", read.Len()))
			_, chunk, _ := strings.Cut(c.untagged[0], "}\r\n")
			read.WriteString(strings.TrimSuffix(chunk, ")"))
		}
		if read.String() != big {
			t.Errorf("in chunks it is %d bytes, not %d, or others", read.Len(), len(big))
		}
		h.thunderbirdChanges(c)
	})
}

// thunderbirdChanges continues with commands that change the mailbox.
func (h *fixture) thunderbirdChanges(c *client) {
	c.ok("noop")
	c.ok(`uid store 3 +FLAGS (\Seen)`)
	c.ok("uid store 1:2 -FLAGS (Junk)")
	c.ok("uid store 1:2 +FLAGS (NonJunk)")
	c.has(`* 1 FETCH (UID 1 MODSEQ (…) FLAGS (… NonJunk))`)
	c.ok("uid store 1 +FLAGS ($label1 $Forwarded)")
	c.ok(`uid store 1 +FLAGS (\Answered \Flagged)`)
	c.ok("uid store 1 -FLAGS ($label1)")
	c.ok("UID fetch 1 (FLAGS)")
	c.got(`* 1 FETCH (UID 1 FLAGS (\Answered \Flagged…$Forwarded…))`)

	since := fmt.Sprint(c.highestModSeq("INBOX"))
	h.login().append("INBOX", `(\Seen) `, note("three"))
	c.ok("noop")
	c.has("* 4 EXISTS")
	c.ok("UID fetch 1:* (FLAGS) (CHANGEDSINCE " + since + ")")
	c.got(`* 4 FETCH (UID 4 FLAGS (\Seen…) MODSEQ (…))`)

	c.ok(`create "Gesch&AOQ-ft"`)
	c.ok(`subscribe "Gesch&AOQ-ft"`)
	c.ok(`list "" "Gesch&AOQ-ft"`)
	c.got(`* LIST (…) "/" Gesch&AOQ-ft`)
	c.ok(`uid move 4 "Gesch&AOQ-ft"`)
	c.has("* OK [COPYUID … 4 1] …", "* 4 EXPUNGE")
	c.ok(`uid copy 2 "Trash"`, "COPYUID ")
	c.ok(`uid store 2 +FLAGS (\Deleted)`)
	c.ok("uid expunge 2")
	c.has("* 2 EXPUNGE")
	c.ok(`STATUS "Gesch&AOQ-ft" (UIDNEXT MESSAGES UNSEEN RECENT)`)
	c.got("* STATUS Gesch&AOQ-ft (MESSAGES 1 RECENT 1 UIDNEXT 2 UNSEEN 0)")

	draft := note("draft")
	c.upload("Drafts", `(\Draft) `, draft)
	c.upload("Sent", `(\Seen) `, note("sent"))
	c.ok(`select "Drafts" (CONDSTORE)`)
	c.ok("UID SEARCH UNDELETED HEADER Message-ID <draft@demo.test>")
	c.got("* SEARCH 1")
	c.ok("UID fetch 1 (UID RFC822.SIZE BODY[])")
	c.got(fmt.Sprintf(`* 1 FETCH (UID 1 FLAGS (\Seen \Draft…) RFC822.SIZE %d MODSEQ (…) BODY[] %s)`, len(draft), lit(draft)))
	c.ok(`uid store 1 +FLAGS (\Deleted \Seen)`)
	c.ok("close")

	c.ok(`select "INBOX" (CONDSTORE)`)
	tag := c.idle()
	h.login().append("INBOX", "", note("while idle"))
	c.next("* 3 EXISTS")
	c.send("DONE\r\n")
	c.finish(tag)
	c.ok("UID fetch 5:* (FLAGS)")
	c.has("* 3 FETCH (UID 5 FLAGS (…))")
	c.ok("check")
	c.ok(`rename "Gesch&AOQ-ft" "Alt/Gesch&AOQ-ft"`)
	c.ok(`unsubscribe "Gesch&AOQ-ft"`)
	c.ok(`subscribe "Alt/Gesch&AOQ-ft"`)
	c.ok(`delete "Alt/Gesch&AOQ-ft"`)
	c.ok("close")
	c.ok("logout")
}

// highestModSeq returns a folder's HIGHESTMODSEQ.
func (c *client) highestModSeq(folder string) (n uint64) {
	c.Helper()
	c.ok("STATUS " + folder + " (HIGHESTMODSEQ)")
	_, err := fmt.Sscanf(c.untagged[0], "* STATUS "+folder+" (HIGHESTMODSEQ %d)", &n)
	c.must(err)
	return n
}
