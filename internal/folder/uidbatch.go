// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"iter"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/folder/snapshot"
)

// listSize is the number of UIDs or ids that the list queries take.
const listSize = 16

// inList is their condition.
const inList = `IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`

// listArgs returns the arguments of a list query for n values; it repeats the last one.
func listArgs(n int, value func(i int) any) []any {
	args := make([]any, listSize, listSize+2)
	for i := range args {
		args[i] = value(min(i, n-1))
	}
	return args
}

// uidBatch is the messages that one statement handles: a span, or a list of single messages.
type uidBatch struct {
	snapshot.Span
	list []any // listSize UIDs, the last of them repeated; nil for a span
}

// uidBatches splits spans into batches for statements, in order.
func uidBatches(spans []snapshot.Span) iter.Seq[uidBatch] {
	return func(yield func(uidBatch) bool) {
		for len(spans) > 0 {
			singles := 0
			for singles < min(len(spans), listSize) && spans[singles].N == 1 {
				singles++
			}
			p := uidBatch{Span: spans[0]}
			if singles > 1 {
				p.N, p.Hi = singles, spans[singles-1].Hi
				p.list = listArgs(singles, func(i int) any { return int64(spans[i].Lo) })
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
		return list.With(append(p.list[:listSize:listSize], args...)...)
	}
	return span.With(append([]any{int64(p.Lo), int64(p.Hi)}, args...)...)
}
