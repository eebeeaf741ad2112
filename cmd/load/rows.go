// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// row is a row of the table: the work, and Mailstead's target.
type row struct{ id, work, target string }

// rows returns the rows of the table, in order.
func rows() []row {
	list := []row{{"setup", "**settings**", ""}}
	api := map[int]string{1: "1,200/s", 16: "3,000/s", 64: "4,000/s"}
	for _, accounts := range []int{1, 100} {
		for _, conns := range apiConns {
			reach := ""
			if accounts == 100 {
				reach = "≥ " + api[conns] + ", p99 < 40 ms"
			}
			list = append(list, row{fmt.Sprintf("api/%d/%d", accounts, conns),
				fmt.Sprintf("API send accepted, 4 KiB text, %s, %s, no idempotency key, delivery running", plural(conns, "connection"), plural(accounts, "account")), reach})
		}
	}
	submission := map[int]string{1: "1,500/s", 10: "3,000/s", 50: "4,000/s"}
	for _, n := range sessionCounts {
		list = append(list, row{fmt.Sprintf("submission/%d", n),
			fmt.Sprintf("submission accepted (587, TLS, AUTH once), 4 KiB, %s, delivery running", plural(n, "session")), "≥ " + submission[n] + ", p99 < 50 ms"})
	}
	mx := map[int]string{1: "1,000/s", 10: "2,500/s", 50: "4,000/s"}
	for _, boxes := range []int{100, 1} {
		for _, n := range sessionCounts {
			reach := "≥ " + mx[n]
			if boxes == 1 {
				reach = "≥ 2,000/s"
			}
			list = append(list, row{fmt.Sprintf("mx/%d/%d", boxes, n),
				fmt.Sprintf("MX accepted (Mailstead: judged and filed), 4 KiB with DKIM signature, %s into %s", plural(n, "session"), plural(boxes, "mailbox")), reach})
		}
	}
	list = append(list, row{"mx-loss", "the same by 50 sessions into 100 mailboxes, while a DNS server whose absences can't be kept loses no packet, and one in fifty", "≥ × 0.8"})
	list = append(list, row{"mx-silent", "the same by 10 sessions, alone and beside 100 whose senders' domain has DNS servers that never answer: p50", "≤ × 2"})
	for _, domains := range []int{1, 100} {
		reach := "≥ 600/s"
		if domains == 1 {
			reach += ", ≤ 20 connections"
		}
		list = append(list, row{fmt.Sprintf("relay/%d", domains),
			fmt.Sprintf("3,000 messages to a sink, end to end, %s (Mailstead: API, DKIM by RSA-2048 and Ed25519; Postfix: submission, no DKIM)", plural(domains, "domain")), reach})
	}
	list = append(append(list, imapRows()...), append(sizeRows(), growthRows()...)...)
	return append(list,
		row{"idle", "memory, idle after the first start", "≤ 40 MB"},
		row{"conns", "memory of 1,000 idle IMAP connections (TLS, INBOX selected, IDLE)", "≤ 30 KiB each"},
		row{"after", "memory after all of the work", "≤ 120 MB"},
		row{"large/16", "16 API sends at once with 25 MiB attached to each, on a server just started: memory at its peak, until all have left", "≤ 200 MB"},
		row{"start", "start on the existing data until it greets", "≤ 150 ms"},
		row{"binary", "size of the binary", "≤ 45 MB"},
	)
}

func imapRows() []row {
	const folder = "folder of 10,000 × 8 KiB: "
	return []row{
		{"imap/append1", "IMAP APPEND of 8 KiB, 1 connection", "≥ 2,000/s"},
		{"imap/append4", "IMAP APPEND of 8 KiB, 4 connections into one folder", "≥ 5,000/s"},
		{"imap/login", "LOGIN, p50", "≤ 0.5 ms"},
		{"imap/select", folder + "SELECT, p50", "≤ 0.7 ms"},
		{"imap/flags", folder + "FETCH 1:* FLAGS", "≤ 6 ms"},
		{"imap/envelope", folder + "FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE)", "≤ 120 ms, first too"},
		{"imap/bodies", folder + "FETCH 1:* BODY.PEEK[] (82 MB)", "≤ 220 ms"},
		{"imap/body", folder + "FETCH of one body at random, p50", "≤ 0.10 ms"},
		{"imap/subject", folder + "SEARCH SUBJECT (1 % match)", "≤ 5 ms"},
		{"imap/text", folder + "SEARCH BODY (1 % match)", "≤ 20 ms once indexed"},
		{"imap/unseen", folder + "SEARCH UNSEEN", "≤ 2.6 ms"},
		{"imap/storeall", folder + "STORE 1:* +FLAGS, untagged answers included", "≤ 20 ms"},
		{"imap/store", folder + "STORE of one, p50", "≤ 0.4 ms"},
		{"imap/copy", "COPY 1,000", "≤ 15 ms"},
		{"imap/move", "MOVE 1,000", "≤ 20 ms"},
		{"imap/expunge", "EXPUNGE 1,000", "≤ 10 ms"},
		{"imap/push", "IDLE: EXISTS after another session's APPEND was answered, p50", "≤ 0.5 ms"},
		{"imap/big", "folder of 50,000: FETCH 1:* FLAGS; FETCH 1:* (UID FLAGS INTERNALDATE RFC822.SIZE ENVELOPE BODYSTRUCTURE); bodies", ""},
	}
}

// sizeRows compares a folder of a thousand small messages with one of a million.
func sizeRows() []row {
	const twice = "≤ × 2"
	list := []row{{"size/fill", "folder of a million: filled by APPENDs of 500 messages of 0.5 KB, 1 connection", ""}}
	for _, r := range []row{
		{"cold", "SELECT, the first after a start", twice}, {"select", "SELECT, p50", twice},
		{"qresync", "SELECT with QRESYNC, 90 flags changed and 10 messages gone", twice},
		{"newest-first", "FETCH of the 50 newest with ENVELOPE, the first time", twice}, {"newest", "the same, p50", twice},
		{"subject", "UID SEARCH SUBJECT (10 match), indexed", twice}, {"from", "UID SEARCH FROM (10 match), indexed", twice},
		{"header", "UID SEARCH HEADER Message-ID (1 matches), indexed", twice},
		{"subject-scan", "UID SEARCH SUBJECT, first time and while the index is filled", ""}, {"from-scan", "UID SEARCH FROM, likewise", ""},
		{"header-scan", "UID SEARCH HEADER Message-ID, likewise", ""}, {"unseen-scan", "UID SEARCH UNSEEN (10 match), likewise", ""},
		{"unseen", "UID SEARCH UNSEEN (10 match)", twice},
		{"store", "STORE of one, p50", twice}, {"append", "APPEND of one, p50", twice}, {"expunge", "EXPUNGE of one, p50", twice},
		{"push", "IDLE: EXISTS after another session's APPEND was answered, p50", twice},
	} {
		list = append(list, row{"size/" + r.id, "folder of 1,000 and of a million: " + r.work, r.target})
	}
	return append(list,
		row{"size/session", "folder of 1,000 and of a million: memory of one more session (with buffers)", "alike"},
		row{"size/rss", "memory after a start, before and with both folders open", ""},
		row{"size/index", "until the search index has taken in the million, after they were filled", ""})
}

// growthRows compares a service with one that has a hundred times its data.
func growthRows() []row {
	const reach = "≤ × 1.5"
	list := []row{
		{"growth/fill", "1,000 and 100,000 mailboxes, a third of one account: their rows, made by SQL", ""},
		{"growth/start", "start until it greets", reach}, {"growth/memory", "memory once the search index is at rest", ""},
	}
	for _, r := range []row{
		{"events", "events, the first page", ""}, {"events-recipient", "events of a recipient, all pages", ""}, {"events-message", "events of a message, all pages", ""},
		{"events-kind", "events of a rare kind, all pages", ""}, {"events-kinds", "events of two rare kinds, all pages", ""},
		{"events-mailbox", "events of a mailbox, all pages", ""}, {"events-domain", "events of a domain without any", ""},
		{"domains", "domains, the first page", ""}, {"mailboxes", "mailboxes, the first page", ""}, {"mailboxes-domain", "mailboxes of a domain with two", ""},
		{"mailboxes-empty", "mailboxes of a domain without any", ""}, {"mailboxes-deleted", "deleted mailboxes, none", ""}, {"limits", "limits of the large account", ""},
		{"suppressions", "suppressions, the first page", ""}, {"suppressions-address", "a suppression by its address", ""}, {"suppressions-reason", "suppressions for a reason that none has", ""},
		{"sent", "sent messages, the first page", ""}, {"sent-recipient", "sent messages to a recipient", ""}, {"sent-status", "sent messages in a state that none has", ""},
		{"sent-subject", "sent messages by a word that none has", ""}, {"sent-domain", "sent messages of a domain without any", ""},
		{"received", "a mailbox's messages (3,000 and 300,000), the first page", ""}, {"received-subject", "the same by a subject that none has, all pages", ""},
		{"received-from", "the same by an author that none has, all pages", ""}, {"webhook-deliveries", "a webhook's deliveries, the first page", ""},
		{"webhook-pending", "a webhook's deliveries that wait", ""}, {"audit", "the audit log, the first page", ""},
		{"mailbox-make", "a mailbox made", ""}, {"mailbox-quota", "its quota changed", ""}, {"mailbox-delete", "and deleted", ""}, {"send", "a message sent by the API", ""},
		{"select", "SELECT of a folder of 3,000 and 300,000", ""}, {"search-text", "UID SEARCH TEXT there, none match", ""}, {"search-subject", "UID SEARCH SUBJECT there, none match", ""},
		{"newest", "UID FETCH of two ENVELOPEs there", ""}, {"arrive", "a message of 4 KiB taken by the MX, judged and filed", ""},
	} {
		list = append(list, row{"growth/" + r.id, "1,000 and 100,000 mailboxes: " + r.work + ", p50", reach})
	}
	return append(list, row{"growth/backup", "1,000 and 100,000 mailboxes: backup", ""})
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if what == "mailbox" {
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
