// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/notify"
	"github.com/mailstead/mailstead/internal/web"
)

// exportParams are the parameters of an export besides the filter.
type exportParams struct {
	Format string `query:"format" enum:"ndjson,csv" default:"ndjson" doc:"ndjson: a line of JSON for each entry, as the list has it; csv: a row for each (RFC 4180), after a row of names."`
}

func (e *exportParams) exportFormat() string { return e.Format }

// exportOrderParams are the parameters of an export of a list besides the filter.
type exportOrderParams struct {
	exportParams
	Order string `query:"order" enum:"asc,desc" default:"asc" doc:"asc: the oldest first; desc: the newest first."`
}

// page returns the parameters of the page after a cursor.
func (e *exportOrderParams) page(after string) pageParams {
	return pageParams{Limit: db.MaxPageSize, Order: e.Order, After: after}
}

const (
	// exportChunk is how much of a page is written at once, and exportWriteTimeout how long the
	// client may take to read it.
	exportChunk        = 64 << 10
	exportWriteTimeout = 30 * time.Second
)

const exportNote = " The file is read page by page while it is sent: entries that are added meanwhile may be in it. " +
	"In CSV, lists and objects are JSON in one cell, null is an empty cell, and text that a spreadsheet would take for a formula begins with an apostrophe. " +
	"An answer that breaks off was not whole: the connection is cut then, so that no program takes it for the end."

// handleExport registers an operation that streams all entries of a list. page returns the entries
// after a cursor; "" is the beginning.
func handleExport[I, T any](r *router, o operation, page func(ctx context.Context, p account.Principal, in *I, after string) (listResponse[T], error)) {
	o.method, o.responseMedia = http.MethodGet, "application/x-ndjson, text/csv"
	o.description += exportNote
	describeOperation[I, []byte](r.doc, o)
	r.register(o, func(w http.ResponseWriter, req *http.Request, p account.Principal) error {
		var in I
		capacity := memoryReservation{budget: r.api.memory, account: p.Account}
		defer capacity.release()
		if err := bind(req, &in); err != nil {
			return r.api.collectFaults(req.Context(), err, o, &capacity, func(ctx context.Context) (any, error) { return page(ctx, p, &in, "") })
		}
		ctx, cancel := r.api.withShutdown(req.Context())
		defer cancel(nil)
		e := export[T]{
			api: r.api, w: w, r: req.WithContext(ctx), capacity: &capacity, name: o.id,
			columns: jsonColumns(reflect.TypeFor[T]()), csv: any(&in).(interface{ exportFormat() string }).exportFormat() == "csv",
		}
		err := e.run(ctx, func(after string) (listResponse[T], error) { return page(ctx, p, &in, after) })
		if err != nil && e.started {
			web.AbortResponse(w, req, r.api.Log, err)
		}
		return err
	})
}

// export is a response that is being written.
type export[T any] struct {
	api      *API
	w        http.ResponseWriter
	r        *http.Request
	capacity *memoryReservation
	name     string
	columns  []string
	csv      bool
	started  bool
}

// run writes all pages. It holds nothing of the database while the client reads.
func (e *export[T]) run(ctx context.Context, read func(after string) (listResponse[T], error)) error {
	for after, more := "", true; more; {
		if err := e.api.revalidateKey(e.r); err != nil {
			return err
		}
		text, next, goesOn, err := e.readPage(ctx, read, after)
		if err != nil {
			return err
		}
		if err := e.capacity.reserve(max(0, len(text)-freeBodyBytes)); err != nil {
			if !e.started {
				return err
			}
			text = nil //nolint:ineffassign,wastedassign // frees the page, which is read again
			if err := notify.Sleep(ctx, memoryRetryDelay); err != nil {
				return err
			}
			continue
		}
		if err := e.write(ctx, text); err != nil {
			return err
		}
		if e.r.Method == http.MethodHead {
			return nil
		}
		e.capacity.release()
		after, more = next, goesOn && next != ""
	}
	return nil
}

// readPage reads and encodes a page, using one of the account's read slots.
func (e *export[T]) readPage(ctx context.Context, read func(after string) (listResponse[T], error), after string) (text []byte, next string, more bool, err error) {
	pass, err := e.api.readSlots.Acquire(ctx, e.capacity.account, maxReadsPerAccount)
	if err != nil {
		return nil, "", false, err
	}
	defer pass()
	page, err := read(after)
	if err != nil {
		return nil, "", false, err
	}
	var out bytes.Buffer
	rows := csv.NewWriter(&out)
	rows.UseCRLF = true
	if e.csv && after == "" {
		_ = rows.Write(e.columns) // writing to memory does not fail
	}
	for i := range page.Data {
		line, err := apijson.Marshal(page.Data[i])
		if err != nil {
			return nil, "", false, err
		}
		if !e.csv {
			out.Write(append(line, '\n'))
			continue
		}
		cells, err := csvCells(line, e.columns)
		if err != nil {
			return nil, "", false, err
		}
		_ = rows.Write(cells)
	}
	rows.Flush()
	if page.NextCursor != nil {
		next = *page.NextCursor
	}
	return out.Bytes(), next, page.HasMore, nil
}

// write writes a page, and first the header.
func (e *export[T]) write(ctx context.Context, text []byte) error {
	control := http.NewResponseController(e.w)
	if !e.started {
		e.started = true
		media, file := "application/x-ndjson", e.name+".ndjson"
		if e.csv {
			media, file = "text/csv; charset=utf-8", e.name+".csv"
		}
		e.w.Header().Set("Content-Type", media)
		e.w.Header().Set("Content-Disposition", `attachment; filename="`+file+`"`)
		e.w.WriteHeader(http.StatusOK)
	}
	for len(text) > 0 && ctx.Err() == nil {
		n := min(len(text), exportChunk)
		_ = control.SetWriteDeadline(time.Now().Add(exportWriteTimeout)) // the server has its own limit, too
		if _, err := e.w.Write(text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return context.Cause(ctx)
}

// jsonColumns returns the names of a struct's members in JSON, in order.
func jsonColumns(t reflect.Type) (all []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			all = append(all, jsonColumns(f.Type)...)
		case name != "" && name != "-":
			all = append(all, name)
		}
	}
	return all
}

// csvCells returns the members of a JSON object as cells.
func csvCells(object []byte, columns []string) ([]string, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(object, &members); err != nil {
		return nil, err
	}
	cells := make([]string, len(columns))
	for i, name := range columns {
		value := members[name]
		switch {
		case len(value) == 0 || string(value) == "null":
		case value[0] == '"':
			var text string
			if err := json.Unmarshal(value, &text); err != nil {
				return nil, err
			}
			cells[i] = escapeFormula(text)
		default:
			cells[i] = string(value) // a number, a boolean, a list or an object is no formula
		}
	}
	return cells, nil
}

// escapeFormula escapes a cell so that no spreadsheet evaluates it.
func escapeFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r\n'", rune(s[0])) {
		return "'" + s
	}
	return s
}
