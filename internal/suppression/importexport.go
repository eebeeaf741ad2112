// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"context"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// ImportResult is the result of an import.
type ImportResult struct {
	Added    int
	Existing int // already on the list; they keep their first reason
	Rejected int
	Faults   []LineFault // faults of the first rejected rows, at most 100
}

// LineFault is what is wrong with a line, counted from 1.
type LineFault struct {
	Line          int
	Code, Message string
}

const (
	importBatchSize = 200 // rows in one commit
	maxLineFaults   = 100
)

// Import adds the addresses of a CSV file to the list of an account, row by row. It rejects invalid
// rows and adds the others. A file with more than MaxImportRows rows is a fault.TooLarge, and one
// with an overlong row a fault.Invalid. Rows read before that, or before an error of r, stay added.
// fallback is the reason of rows without one.
func (l *List) Import(ctx context.Context, account db.ID, r io.Reader, fallback Reason) (ImportResult, error) {
	var done ImportResult
	rows, err := newCSVReader(r, fallback, l.Now())
	if err != nil {
		return done, err
	}
	var entries []Entry
	for n := 0; ; n++ {
		row, err := rows.next()
		if n >= MaxImportRows && err == nil {
			err = fault.New(fault.TooLarge, "too_many_rows", "A file may have %d rows; so many were taken. Send the rest on its own.", MaxImportRows)
		}
		if err == nil && row.fault == nil {
			entries = append(entries, Entry{
				Account: account, Address: row.address.String(), Reason: row.reason, Diagnostic: row.diagnostic, CreatedAt: row.created,
			})
		} else if err == nil {
			done.addRejected(row)
		}
		if len(entries) == importBatchSize || err != nil {
			added, writing := l.addBatch(ctx, account, entries)
			if writing != nil {
				return done, writing
			}
			done.Added += added
			done.Existing += len(entries) - added
			entries = entries[:0]
		}
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

func (i *ImportResult) addRejected(r row) {
	i.Rejected++
	if len(i.Faults) < maxLineFaults {
		i.Faults = append(i.Faults, LineFault{r.line, r.fault.Code, r.fault.Message})
	}
}

// addBatch adds entries in one commit and returns how many are new.
func (l *List) addBatch(ctx context.Context, account db.ID, entries []Entry) (added int, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	statements := make([]db.Statement, 0, len(entries))
	for _, e := range entries {
		if s, ok := l.insertStatement(addReturningQuery, e); ok {
			statements = append(statements, s)
		}
	}
	err = l.DB.Write(ctx, account, &db.Mutation{Guard: func(b *db.Batch) {
		added = 0
		for _, s := range statements {
			b.Queue(s).Each(func(db.Row) error {
				added++
				return nil
			})
		}
	}})
	return added, err
}

// Export writes the list of an account as CSV, in order of creation, in a form that Import accepts.
// Cells that a spreadsheet would take for a formula begin with an apostrophe.
func (l *List) Export(ctx context.Context, account db.ID, w io.Writer) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write([]string{"address", "reason", "created_at", "source_message_id", "diagnostic", "simulated"}); err != nil {
		return err
	}
	err := l.EachPage(ctx, account, func(entries []Entry) error {
		for _, e := range entries {
			source := ""
			if e.Message != 0 {
				source = e.Message.String()
			}
			err := out.Write([]string{
				escapeCell(e.Address), string(e.Reason), e.CreatedAt.UTC().Format(time.RFC3339), source, escapeCell(e.Diagnostic),
				strconv.FormatBool(e.Simulated),
			})
			if err != nil {
				return err
			}
		}
		out.Flush()
		return out.Error()
	})
	if err != nil { // don't flush: the response may not have started
		return err
	}
	out.Flush()
	return out.Error()
}
