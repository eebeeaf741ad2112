// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"iter"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// inList is the condition of queries for db.InListSize UIDs or ids.
const inList = `IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// uidBatch is the messages that one statement handles: a span, or a list of single messages.
type uidBatch struct {
	snapshot.Span
	list []any // db.InListSize UIDs, the last of them repeated; nil for a span
}

// uidBatches splits spans into batches for statements, in order.
func uidBatches(spans []snapshot.Span) iter.Seq[uidBatch] {
	return func(yield func(uidBatch) bool) {
		for len(spans) > 0 {
			singles := 0
			for singles < min(len(spans), db.InListSize) && spans[singles].N == 1 {
				singles++
			}
			p := uidBatch{Span: spans[0]}
			if singles > 1 {
				p.N, p.Hi = singles, spans[singles-1].Hi
				p.list = db.InListArgs(singles, func(i int) any { return int64(spans[i].Lo) })
			}
			if !yield(p) {
				return
			}
			spans = spans[max(singles, 1):]
		}
	}
}

// statement returns the query for spans or for lists with the batch's UIDs and args as arguments.
func (p uidBatch) statement(span, list *db.Query, args ...any) db.Statement {
	if p.list != nil {
		return list.With(append(p.list[:db.InListSize:db.InListSize], args...)...)
	}
	return span.With(append([]any{int64(p.Lo), int64(p.Hi)}, args...)...)
}
