// SPDX-License-Identifier: Apache-2.0

package event

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// Each list reads an index that leads with its filter, in the index's own order. A
// filter is therefore written as a bound, (kind, position) < ($4, $2) AND kind >= $4,
// ordered by kind and position: no other index has that order. With kind = $4 a planner
// may take an index of positions instead and look at every event for the kind, depending
// on what it knows or doesn't know about the table.
const (
	columns = `SELECT position, id, kind, data, content, created_at, message, domain, mailbox, recipient FROM event `

	olderKind = ` AND position IS NOT NULL ORDER BY kind DESC, position DESC LIMIT $3) AS k `
	older1    = ` AND (kind, position) < ($4, $2) AND kind >= $4` + olderKind + `UNION ALL `
	older2    = ` AND (kind, position) < ($5, $2) AND kind >= $5` + olderKind + `UNION ALL `
	older3    = ` AND (kind, position) < ($6, $2) AND kind >= $6` + olderKind + `UNION ALL `
	older4    = ` AND (kind, position) < ($7, $2) AND kind >= $7` + olderKind + `UNION ALL `
	older5    = ` AND (kind, position) < ($8, $2) AND kind >= $8` + olderKind + `UNION ALL `
	older6    = ` AND (kind, position) < ($9, $2) AND kind >= $9` + olderKind + `UNION ALL `
	older7    = ` AND (kind, position) < ($10, $2) AND kind >= $10` + olderKind + `UNION ALL `
	older8    = ` AND (kind, position) < ($11, $2) AND kind >= $11` + olderKind + `
		) AS kinds ORDER BY at DESC LIMIT $3) AS found CROSS JOIN event WHERE event.position = found.at AND +event.account = $1 ORDER BY found.at DESC`

	newerKind = ` AND position IS NOT NULL ORDER BY kind, position LIMIT $3) AS k `
	newer1    = ` AND (kind, position) > ($4, $2) AND kind <= $4` + newerKind + `UNION ALL `
	newer2    = ` AND (kind, position) > ($5, $2) AND kind <= $5` + newerKind + `UNION ALL `
	newer3    = ` AND (kind, position) > ($6, $2) AND kind <= $6` + newerKind + `UNION ALL `
	newer4    = ` AND (kind, position) > ($7, $2) AND kind <= $7` + newerKind + `UNION ALL `
	newer5    = ` AND (kind, position) > ($8, $2) AND kind <= $8` + newerKind + `UNION ALL `
	newer6    = ` AND (kind, position) > ($9, $2) AND kind <= $9` + newerKind + `UNION ALL `
	newer7    = ` AND (kind, position) > ($10, $2) AND kind <= $10` + newerKind + `UNION ALL `
	newer8    = ` AND (kind, position) > ($11, $2) AND kind <= $11` + newerKind + `
		) AS kinds ORDER BY at LIMIT $3) AS found CROSS JOIN event WHERE event.position = found.at AND +event.account = $1 ORDER BY found.at`

	merged    = `SELECT position, id, kind, data, content, created_at, message, domain, mailbox, recipient FROM (SELECT at FROM (`
	ofAccount = `SELECT at FROM (SELECT position AS at FROM event WHERE account = $1`
	ofDomain  = `SELECT at FROM (SELECT position AS at FROM event WHERE domain = $12 AND domain > 0`
	ofMailbox = `SELECT at FROM (SELECT position AS at FROM event WHERE mailbox = $12 AND mailbox > 0`
)

// A new kind needs a branch more.
var _ [8]string = Kinds

var (
	// SQLite, with statistics, would sort what an index of account and kind has.
	accountOlder = db.SQL(columns + `WHERE
		{sqlite}account = $1 AND position < $2 ORDER BY position DESC LIMIT $3
		{postgres}(account, position) < ($1, $2) AND account >= $1 AND position IS NOT NULL ORDER BY account DESC, position DESC LIMIT $3`)
	accountNewer = db.SQL(columns + `WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT $3
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT $3`)
	recipientOlder = db.SQL(columns + `WHERE account = $1 AND (recipient, position) < ($4, $2) AND recipient >= $4 AND recipient <> ''
		AND position IS NOT NULL ORDER BY recipient DESC, position DESC LIMIT $3`)
	recipientNewer = db.SQL(columns + `WHERE account = $1 AND (recipient, position) > ($4, $2) AND recipient <= $4 AND recipient <> ''
		AND position IS NOT NULL ORDER BY recipient, position LIMIT $3`)
	kindOlder = db.SQL(columns + `WHERE account = $1 AND (kind, position) < ($4, $2) AND kind >= $4
		AND position IS NOT NULL ORDER BY kind DESC, position DESC LIMIT $3`)
	kindNewer = db.SQL(columns + `WHERE account = $1 AND (kind, position) > ($4, $2) AND kind <= $4
		AND position IS NOT NULL ORDER BY kind, position LIMIT $3`)
	// A message has few events: they are sorted, by an expression for which no index
	// offers an order.
	messageOlder = db.SQL(columns + `WHERE message = $4 AND message > 0 AND +account = $1 AND +position < $2
		ORDER BY +position DESC LIMIT $3`)
	messageNewer = db.SQL(columns + `WHERE message = $4 AND message > 0 AND +account = $1 AND +position > $2
		ORDER BY +position LIMIT $3`)

	// The next events of each kind, merged. A domain and a mailbox are one account's. One statement sees all kinds at the same
	// time: with one for each, the sequencer could come between them, and an event would
	// be passed over.
	kindsOlder = db.SQL(merged + ofAccount + older1 + ofAccount + older2 + ofAccount + older3 + ofAccount + older4 +
		ofAccount + older5 + ofAccount + older6 + ofAccount + older7 + ofAccount + older8)
	kindsNewer = db.SQL(merged + ofAccount + newer1 + ofAccount + newer2 + ofAccount + newer3 + ofAccount + newer4 +
		ofAccount + newer5 + ofAccount + newer6 + ofAccount + newer7 + ofAccount + newer8)
	domainOlder = db.SQL(merged + ofDomain + older1 + ofDomain + older2 + ofDomain + older3 + ofDomain + older4 +
		ofDomain + older5 + ofDomain + older6 + ofDomain + older7 + ofDomain + older8)
	domainNewer = db.SQL(merged + ofDomain + newer1 + ofDomain + newer2 + ofDomain + newer3 + ofDomain + newer4 +
		ofDomain + newer5 + ofDomain + newer6 + ofDomain + newer7 + ofDomain + newer8)
	mailboxOlder = db.SQL(merged + ofMailbox + older1 + ofMailbox + older2 + ofMailbox + older3 + ofMailbox + older4 +
		ofMailbox + older5 + ofMailbox + older6 + ofMailbox + older7 + ofMailbox + older8)
	mailboxNewer = db.SQL(merged + ofMailbox + newer1 + ofMailbox + newer2 + ofMailbox + newer3 + ofMailbox + newer4 +
		ofMailbox + newer5 + ofMailbox + newer6 + ofMailbox + newer7 + ofMailbox + newer8)
)

// query reads the next events by the narrowest of the filters. With one of them, and
// with kinds of the account, of a domain or of a mailbox, all that it finds fit; of other
// combinations some do.
func (f *Filter) query(account db.ID, from int64, n int) db.Statement {
	pick := func(older, newer *db.Query, more ...any) db.Statement {
		args := append([]any{account, from, n}, more...)
		if f.Before > 0 {
			return older.With(args...)
		}
		return newer.With(args...)
	}
	switch {
	case f.Message != 0:
		return pick(messageOlder, messageNewer, f.Message)
	case f.Recipient != "":
		return pick(recipientOlder, recipientNewer, f.Recipient)
	case f.Mailbox != 0:
		return pick(mailboxOlder, mailboxNewer, append(f.kinds(), f.Mailbox)...)
	case f.Domain != 0:
		return pick(domainOlder, domainNewer, append(f.kinds(), f.Domain)...)
	case len(f.Kinds) == 1:
		return pick(kindOlder, kindNewer, f.Kinds[0])
	case len(f.Kinds) > 0:
		return pick(kindsOlder, kindsNewer, f.kinds()...)
	}
	return pick(accountOlder, accountNewer)
}

// kinds returns the kinds that are asked for, one for each branch of the query: each
// once, and then texts that are no kind.
func (f *Filter) kinds() []any {
	all := make([]any, 0, len(Kinds)+1)
	for _, kind := range Kinds {
		if len(f.Kinds) == 0 || slices.Contains(f.Kinds, kind) {
			all = append(all, kind)
		}
	}
	for len(all) < len(Kinds) {
		all = append(all, "")
	}
	return all
}
