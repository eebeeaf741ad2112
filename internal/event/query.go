// SPDX-License-Identifier: Apache-2.0

package event

import (
	"slices"

	"github.com/mailstead/mailstead/internal/db"
)

// Each list reads an index that leads with its filter, in the index's own order. So each filter is
// written as a bound, (kind, position) < ($4, $2) AND kind >= $4, ordered by kind and position: no
// other index has that order. With kind = $4 a planner may choose an index of positions and check
// the kind of every event, depending on its statistics of the table.
const (
	selectEvents = `SELECT position, id, kind, data, content, created_at, message, domain, mailbox, recipient, tags FROM event `

	olderKind = ` AND position IS NOT NULL ORDER BY kind DESC, position DESC LIMIT $3) AS k `
	older1    = ` AND (kind, position) < ($4, $2) AND kind >= $4` + olderKind + `UNION ALL `
	older2    = ` AND (kind, position) < ($5, $2) AND kind >= $5` + olderKind + `UNION ALL `
	older3    = ` AND (kind, position) < ($6, $2) AND kind >= $6` + olderKind + `UNION ALL `
	older4    = ` AND (kind, position) < ($7, $2) AND kind >= $7` + olderKind + `UNION ALL `
	older5    = ` AND (kind, position) < ($8, $2) AND kind >= $8` + olderKind + `UNION ALL `
	older6    = ` AND (kind, position) < ($9, $2) AND kind >= $9` + olderKind + `UNION ALL `
	older7    = ` AND (kind, position) < ($10, $2) AND kind >= $10` + olderKind + `UNION ALL `
	older8    = ` AND (kind, position) < ($11, $2) AND kind >= $11` + olderKind + `UNION ALL `
	older9    = ` AND (kind, position) < ($12, $2) AND kind >= $12` + olderKind + `
		) AS kinds ORDER BY at DESC LIMIT $3) AS found CROSS JOIN event WHERE event.position = found.at AND +event.account = $1 ORDER BY found.at DESC`

	newerKind = ` AND position IS NOT NULL ORDER BY kind, position LIMIT $3) AS k `
	newer1    = ` AND (kind, position) > ($4, $2) AND kind <= $4` + newerKind + `UNION ALL `
	newer2    = ` AND (kind, position) > ($5, $2) AND kind <= $5` + newerKind + `UNION ALL `
	newer3    = ` AND (kind, position) > ($6, $2) AND kind <= $6` + newerKind + `UNION ALL `
	newer4    = ` AND (kind, position) > ($7, $2) AND kind <= $7` + newerKind + `UNION ALL `
	newer5    = ` AND (kind, position) > ($8, $2) AND kind <= $8` + newerKind + `UNION ALL `
	newer6    = ` AND (kind, position) > ($9, $2) AND kind <= $9` + newerKind + `UNION ALL `
	newer7    = ` AND (kind, position) > ($10, $2) AND kind <= $10` + newerKind + `UNION ALL `
	newer8    = ` AND (kind, position) > ($11, $2) AND kind <= $11` + newerKind + `UNION ALL `
	newer9    = ` AND (kind, position) > ($12, $2) AND kind <= $12` + newerKind + `
		) AS kinds ORDER BY at LIMIT $3) AS found CROSS JOIN event WHERE event.position = found.at AND +event.account = $1 ORDER BY found.at`

	selectMerged       = `SELECT position, id, kind, data, content, created_at, message, domain, mailbox, recipient, tags FROM (SELECT at FROM (`
	positionsOfAccount = `SELECT at FROM (SELECT position AS at FROM event WHERE account = $1`
	positionsOfDomain  = `SELECT at FROM (SELECT position AS at FROM event WHERE domain = $13 AND domain > 0`
	positionsOfMailbox = `SELECT at FROM (SELECT position AS at FROM event WHERE mailbox = $13 AND mailbox > 0`
)

// A new kind needs one more branch in the queries.
var _ [9]string = Kinds

var (
	// With statistics, SQLite would sort the rows of an index on account and kind.
	accountOlderQuery = db.SQL(selectEvents + `WHERE
		{sqlite}account = $1 AND position < $2 ORDER BY position DESC LIMIT $3
		{postgres}(account, position) < ($1, $2) AND account >= $1 AND position IS NOT NULL ORDER BY account DESC, position DESC LIMIT $3`)
	accountNewerQuery = db.SQL(selectEvents + `WHERE
		{sqlite}account = $1 AND position > $2 ORDER BY position LIMIT $3
		{postgres}(account, position) > ($1, $2) AND account <= $1 AND position IS NOT NULL ORDER BY account, position LIMIT $3`)
	recipientOlderQuery = db.SQL(selectEvents + `WHERE account = $1 AND (recipient, position) < ($4, $2) AND recipient >= $4 AND recipient <> ''
		AND position IS NOT NULL ORDER BY recipient DESC, position DESC LIMIT $3`)
	recipientNewerQuery = db.SQL(selectEvents + `WHERE account = $1 AND (recipient, position) > ($4, $2) AND recipient <= $4 AND recipient <> ''
		AND position IS NOT NULL ORDER BY recipient, position LIMIT $3`)
	kindOlderQuery = db.SQL(selectEvents + `WHERE account = $1 AND (kind, position) < ($4, $2) AND kind >= $4
		AND position IS NOT NULL ORDER BY kind DESC, position DESC LIMIT $3`)
	kindNewerQuery = db.SQL(selectEvents + `WHERE account = $1 AND (kind, position) > ($4, $2) AND kind <= $4
		AND position IS NOT NULL ORDER BY kind, position LIMIT $3`)
	// A message has few events. They are sorted by an expression, for which no index offers an
	// order.
	messageOlderQuery = db.SQL(selectEvents + `WHERE message = $4 AND message > 0 AND +account = $1 AND +position < $2
		ORDER BY +position DESC LIMIT $3`)
	messageNewerQuery = db.SQL(selectEvents + `WHERE message = $4 AND message > 0 AND +account = $1 AND +position > $2
		ORDER BY +position LIMIT $3`)

	// The next events of each kind, merged. A domain or a mailbox belongs to one account. One
	// statement sees all kinds at the same time: with one statement per kind, the sequencer could
	// number events in between, and an event would be skipped.
	kindsOlderQuery = db.SQL(selectMerged + positionsOfAccount + older1 + positionsOfAccount + older2 + positionsOfAccount + older3 + positionsOfAccount + older4 +
		positionsOfAccount + older5 + positionsOfAccount + older6 + positionsOfAccount + older7 + positionsOfAccount + older8 + positionsOfAccount + older9)
	kindsNewerQuery = db.SQL(selectMerged + positionsOfAccount + newer1 + positionsOfAccount + newer2 + positionsOfAccount + newer3 + positionsOfAccount + newer4 +
		positionsOfAccount + newer5 + positionsOfAccount + newer6 + positionsOfAccount + newer7 + positionsOfAccount + newer8 + positionsOfAccount + newer9)
	domainOlderQuery = db.SQL(selectMerged + positionsOfDomain + older1 + positionsOfDomain + older2 + positionsOfDomain + older3 + positionsOfDomain + older4 +
		positionsOfDomain + older5 + positionsOfDomain + older6 + positionsOfDomain + older7 + positionsOfDomain + older8 + positionsOfDomain + older9)
	domainNewerQuery = db.SQL(selectMerged + positionsOfDomain + newer1 + positionsOfDomain + newer2 + positionsOfDomain + newer3 + positionsOfDomain + newer4 +
		positionsOfDomain + newer5 + positionsOfDomain + newer6 + positionsOfDomain + newer7 + positionsOfDomain + newer8 + positionsOfDomain + newer9)
	mailboxOlderQuery = db.SQL(selectMerged + positionsOfMailbox + older1 + positionsOfMailbox + older2 + positionsOfMailbox + older3 + positionsOfMailbox + older4 +
		positionsOfMailbox + older5 + positionsOfMailbox + older6 + positionsOfMailbox + older7 + positionsOfMailbox + older8 + positionsOfMailbox + older9)
	mailboxNewerQuery = db.SQL(selectMerged + positionsOfMailbox + newer1 + positionsOfMailbox + newer2 + positionsOfMailbox + newer3 + positionsOfMailbox + newer4 +
		positionsOfMailbox + newer5 + positionsOfMailbox + newer6 + positionsOfMailbox + newer7 + positionsOfMailbox + newer8 + positionsOfMailbox + newer9)
)

// statement returns the query for the next events, by the most selective filter. All its rows match
// if only one filter is set, or kinds with an account, domain or mailbox. With other combinations
// some match.
func (f *Filter) statement(account db.ID, from int64, n int) db.Statement {
	pick := func(older, newer *db.Query, more ...any) db.Statement {
		args := append([]any{account, from, n}, more...)
		if f.Before > 0 {
			return older.With(args...)
		}
		return newer.With(args...)
	}
	switch {
	case f.Message != 0:
		return pick(messageOlderQuery, messageNewerQuery, f.Message)
	case f.Recipient != "":
		return pick(recipientOlderQuery, recipientNewerQuery, f.Recipient)
	case f.Mailbox != 0:
		return pick(mailboxOlderQuery, mailboxNewerQuery, append(f.kindArgs(), f.Mailbox)...)
	case f.Domain != 0:
		return pick(domainOlderQuery, domainNewerQuery, append(f.kindArgs(), f.Domain)...)
	case len(f.Kinds) == 1:
		return pick(kindOlderQuery, kindNewerQuery, f.Kinds[0])
	case len(f.Kinds) > 0:
		return pick(kindsOlderQuery, kindsNewerQuery, f.kindArgs()...)
	}
	return pick(accountOlderQuery, accountNewerQuery)
}

// kindArgs returns the requested kinds, one for each branch of the query: each once, then empty
// strings.
func (f *Filter) kindArgs() []any {
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
