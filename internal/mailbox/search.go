// SPDX-License-Identifier: Apache-2.0

package mailbox

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/db"
)

const (
	// maxSearchBytes is the maximum length of a Filter's Search, in bytes: longer ones find
	// nothing.
	maxSearchBytes = 200
	// maxCandidates is how many mailboxes a search checks one by one. The statements contain it
	// too; they read one more and are planned for it.
	maxCandidates = 500
	// maxPieceLength is the maximum length of a piece in mailbox_piece.
	maxPieceLength = 12
	// maxProbes is how many parts of a long search are tried.
	maxProbes = 4
	// piecesPerStatement is how many pieces one statement writes.
	piecesPerStatement = 32
)

const mailboxColumns = `id, account, domain, local_part, address, display_name, status, quota,
		` + usedExpr + `, messages, created_at, deleted_at, forward_to, keep_copy, spam_filter, generation`

var (
	listLiveQuery            = db.PagedSQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE {page account = $1, deleted_at = 0}`)
	listLiveInDomainQuery    = db.PagedSQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE (SELECT d.account FROM domain d WHERE d.id = $4) = $1 AND {page domain = $4, deleted_at = 0}`)
	listDeletedQuery         = db.PagedSQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE deleted_at > 0 AND +deleted_at > $4 AND {page account = $1}`)
	listDeletedInDomainQuery = db.PagedSQL(`SELECT ` + mailboxColumns + ` FROM mailbox JOIN mailbox_usage u ON u.mailbox = id WHERE (SELECT d.account FROM domain d WHERE d.id = $5) = $1
			AND deleted_at > 0 AND +deleted_at > $4 AND {page domain = $5}`)

	countPiecesQuery      = db.SQL(`SELECT COUNT(*) FROM (SELECT mailbox FROM mailbox_piece WHERE account = $1 AND piece >= $2 AND piece < $3 LIMIT 501) AS p`)
	mailboxesByPieceQuery = db.SQL(`SELECT ` + mailboxColumns + ` FROM (SELECT mailbox FROM mailbox_piece WHERE account = $1 AND piece >= $2 AND piece < $3 LIMIT 501) AS p
		JOIN mailbox ON id = p.mailbox JOIN mailbox_usage u ON u.mailbox = id`)

	searchTextQuery   = db.SQL(`SELECT address, display_name FROM mailbox WHERE id = $1 {for_update}`)
	insertPiecesQuery = db.SQL(`INSERT INTO mailbox_piece (account, mailbox, piece) VALUES
			($1, $2, $3), ($1, $2, $4), ($1, $2, $5), ($1, $2, $6), ($1, $2, $7), ($1, $2, $8), ($1, $2, $9), ($1, $2, $10),
			($1, $2, $11), ($1, $2, $12), ($1, $2, $13), ($1, $2, $14), ($1, $2, $15), ($1, $2, $16), ($1, $2, $17), ($1, $2, $18),
			($1, $2, $19), ($1, $2, $20), ($1, $2, $21), ($1, $2, $22), ($1, $2, $23), ($1, $2, $24), ($1, $2, $25), ($1, $2, $26),
			($1, $2, $27), ($1, $2, $28), ($1, $2, $29), ($1, $2, $30), ($1, $2, $31), ($1, $2, $32), ($1, $2, $33), ($1, $2, $34)
		ON CONFLICT DO NOTHING`)
	deletePiecesQuery = db.SQL(`DELETE FROM mailbox_piece WHERE account = $1 AND mailbox = $2 AND piece IN (
			$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34)`)
)

// Filter selects mailboxes of an account.
type Filter struct {
	Domain  db.ID  // 0 for all domains
	Deleted bool   // deleted mailboxes that can be restored, instead of live ones
	Search  string // text in the address or the display name, ignoring case; "" for all
}

// List returns an account's mailboxes, newest first.
func (m *Mailboxes) List(ctx context.Context, account db.ID, f Filter, page db.Page) (list []Mailbox, more bool, err error) {
	search := strings.ToLower(strings.TrimSpace(f.Search))
	if len(f.Search) > maxSearchBytes || !utf8.ValidString(f.Search) || strings.ContainsAny(search, "\x00\n") {
		return nil, false, nil
	}
	query, args := listLiveQuery, []any{}
	since := db.Micros(m.now().Add(-RestorePeriod))
	switch {
	case f.Deleted && f.Domain != 0:
		query, args = listDeletedInDomainQuery, []any{since, f.Domain}
	case f.Deleted:
		query, args = listDeletedQuery, []any{since}
	case f.Domain != 0:
		query, args = listLiveInDomainQuery, []any{f.Domain}
	}
	if search == "" {
		return db.ReadPage(ctx, m.db, query, page, scanMailbox, account, args...)
	}
	matches := func(b Mailbox) bool { return strings.Contains(b.searchText(), search) }
	// Frequent matches fill the page from the first rows, without looking up all.
	list, more, read, err := db.ReadFilteredPage(ctx, m.db, query, page, 1, scanMailbox, idOf, matches, account, args...)
	if err != nil || read {
		return list, more, err
	}
	few, all, err := m.candidates(ctx, account, search)
	if err != nil {
		return nil, false, err
	}
	if !all { // then matches are frequent and soon fill the page
		list, more, _, err = db.ReadFilteredPage(ctx, m.db, query, page, 0, scanMailbox, idOf, matches, account, args...)
		return list, more, err
	}
	few = slices.DeleteFunc(few, func(b Mailbox) bool {
		listed := b.DeletedAt.IsZero()
		if f.Deleted {
			listed = db.Micros(b.DeletedAt) > since
		}
		return !listed || f.Domain != 0 && b.Domain != f.Domain || !matches(b)
	})
	list, more = db.Paginate(few, page, idOf)
	return list, more, nil
}

func idOf(b Mailbox) db.ID { return b.ID }

// searchText returns the text that a search looks in.
func (b *Mailbox) searchText() string { return strings.ToLower(b.foldedAddress + "\n" + b.DisplayName) }

// candidates returns mailboxes of the account, newest first, which include all that a search can
// find. all is false if there are more than maxCandidates.
func (m *Mailboxes) candidates(ctx context.Context, account db.ID, search string) (few []Mailbox, all bool, err error) {
	for _, part := range searchProbes(search) {
		end, ok := prefixEnd(part)
		if !ok {
			continue
		}
		var n int
		if err := m.db.One(ctx, countPiecesQuery.With(account, part, end), &n); err != nil {
			return nil, false, err
		}
		if n > maxCandidates {
			continue
		}
		few, err = db.All(ctx, m.db, mailboxesByPieceQuery.With(account, part, end), scanMailbox)
		slices.SortFunc(few, func(a, b Mailbox) int { return cmp.Compare(b.ID, a.ID) })
		return slices.CompactFunc(few, func(a, b Mailbox) bool { return a.ID == b.ID }), true, err
	}
	return nil, false, nil
}

// searchProbes returns parts of a search that together cover it, or the beginning and the end of a
// long one. Every match has pieces that begin with each of them.
func searchProbes(search string) (parts []string) {
	runes := []rune(search)
	for from := 0; ; from += maxPieceLength {
		if from+maxPieceLength >= len(runes) || len(parts) == maxProbes-1 {
			return append(parts, string(runes[max(0, len(runes)-maxPieceLength):]))
		}
		parts = append(parts, string(runes[from:from+maxPieceLength]))
	}
}

// prefixEnd returns the first text that is greater, byte by byte, than all texts with this prefix;
// false if there is none.
func prefixEnd(part string) (string, bool) {
	runes := []rune(part)
	for i := len(runes) - 1; i >= 0; i-- {
		if runes[i] == utf8.MaxRune {
			continue
		}
		runes[i]++
		if !utf8.ValidRune(runes[i]) { // skip the UTF-16 surrogates
			runes[i] = 0xE000
		}
		return string(runes[:i+1]), true
	}
	return "", false
}

// searchPieces returns the pieces of a mailbox, sorted.
func (b *Mailbox) searchPieces() (all []string) {
	text := b.searchText()
	for i := range text {
		piece := text[i:]
		n := 0
		for j := range piece {
			if n == maxPieceLength {
				piece = piece[:j]
				break
			}
			n++
		}
		all = append(all, piece)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// updatePieces runs change, which may rename or delete a mailbox, and updates its rows in
// mailbox_piece.
func updatePieces(ctx context.Context, tx *db.Tx, account, id db.ID, change func() error) error {
	before, err := storedPieces(ctx, tx, id)
	if err == nil {
		err = change()
	}
	if err != nil {
		return err
	}
	after, err := storedPieces(ctx, tx, id)
	if err != nil {
		return err
	}
	return writePieces(ctx, tx, account, id, before, after)
}

// storedPieces returns the pieces of a mailbox; none if there is no such mailbox.
func storedPieces(ctx context.Context, tx *db.Tx, id db.ID) ([]string, error) {
	var b Mailbox
	if err := tx.One(ctx, searchTextQuery.With(id), &b.foldedAddress, &b.DisplayName); err != nil {
		return nil, db.IfNoRow(err, nil)
	}
	return b.searchPieces(), nil
}

func writePieces(ctx context.Context, tx *db.Tx, account, id db.ID, before, after []string) error {
	if err := execPieces(ctx, tx, deletePiecesQuery, account, id, before, after); err != nil {
		return err
	}
	return execPieces(ctx, tx, insertPiecesQuery, account, id, after, before)
}

// execPieces runs a query on the pieces in all but not in others, piecesPerStatement at a time.
func execPieces(ctx context.Context, tx *db.Tx, q *db.Query, account, id db.ID, all, others []string) error {
	all = slices.DeleteFunc(slices.Clone(all), func(piece string) bool {
		_, among := slices.BinarySearch(others, piece)
		return among
	})
	for some := range slices.Chunk(all, piecesPerStatement) {
		args := []any{account, id}
		for i := range piecesPerStatement {
			args = append(args, some[min(i, len(some)-1)]) // repeats the last one
		}
		if err := tx.Run(ctx, q.With(args...)); err != nil {
			return err
		}
	}
	return nil
}
