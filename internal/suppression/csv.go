// SPDX-License-Identifier: Apache-2.0

package suppression

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/fault"
)

const (
	// MaxImportRows is the maximum number of rows of an import.
	MaxImportRows = 100_000
	maxRow        = 64 << 10 // octets of one row
	maxCell       = 4096     // octets read ahead by the csv package
)

// csvReader reads rows of addresses from CSV (RFC 4180) in UTF-8, as exported by this service and
// others. The separator is the most frequent of comma, semicolon and tab in the first line. A first
// line without an address names the columns; otherwise they are address, reason, time.
type csvReader struct {
	reader   *csv.Reader
	limiter  *rowLimiter
	columns  columnIndexes
	firstRow []string // a first line that is no header
	fallback Reason
	now      time.Time
}

// columnIndexes are the indexes of the known columns; -1 for none.
type columnIndexes struct{ address, reason, created, diagnostic int }

// columnNames are the names of columns in exports, without case, blanks and punctuation. The first
// one that a file has is used.
var columnNames = [...][]string{
	{"address", "email", "emailaddress", "recipient", "destination", "mail"},
	{"reason", "suppressionreason", "type"},
	{"created", "createdat", "timestamp", "lastupdatetime", "lastupdate", "date"},
	{"diagnostic", "error", "description"},
}

// reasonNames are the names of the reasons in exports, in the same form.
var reasonNames = map[string]Reason{
	"bounce": ReasonBounce, "bounced": ReasonBounce, "hardbounce": ReasonBounce, "permanentbounce": ReasonBounce, "permanent": ReasonBounce,
	"complaint": ReasonComplaint, "complained": ReasonComplaint, "spamcomplaint": ReasonComplaint, "spam": ReasonComplaint, "spamreport": ReasonComplaint, "abuse": ReasonComplaint,
	"unsubscribe": ReasonUnsubscribe, "unsubscribed": ReasonUnsubscribe, "globalunsubscribe": ReasonUnsubscribe, "optout": ReasonUnsubscribe,
	"manual": ReasonManual, "manualsuppression": ReasonManual,
}

// row is one row of a file, or what is wrong with it.
type row struct {
	line       int
	address    address.Address
	reason     Reason
	diagnostic string
	created    time.Time // zero if unknown
	fault      *fault.FieldError
}

// rowLimiter rejects a row that is too long before it is read into memory.
type rowLimiter struct {
	r    io.Reader
	left int
}

var errRowTooLong = fault.New(fault.Invalid, "row_too_long", "A row of the file may have %d bytes; perhaps a quote is not closed.", maxRow)

func (b *rowLimiter) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// newCSVReader starts reading. fallback is the reason of rows without one.
func newCSVReader(r io.Reader, fallback Reason, now time.Time) (*csvReader, error) {
	buffered := bufio.NewReaderSize(r, maxCell)
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\xEF\xBB\xBF")) {
		_, _ = buffered.Discard(3) // skip the byte order mark that was just read
	}
	start, _ := buffered.Peek(maxCell) // shorter at the end
	start, _, _ = bytes.Cut(start, []byte("\n"))
	s := &csvReader{limiter: &rowLimiter{r: buffered}, fallback: fallback, now: now}
	s.reader = csv.NewReader(s.limiter)
	s.reader.LazyQuotes, s.reader.FieldsPerRecord = true, -1
	for _, c := range ",;\t" {
		if bytes.Count(start, []byte(string(c))) > bytes.Count(start, []byte(string(s.reader.Comma))) {
			s.reader.Comma = c
		}
	}
	head, err := s.readCells()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return s, err
	}
	if s.columns.parseHeader(head) {
		return s, nil
	}
	s.columns, s.firstRow = columnIndexes{address: 0, reason: 1, created: 2, diagnostic: -1}, head
	return s, nil
}

// readCells reads the cells of the next row that isn't empty.
func (s *csvReader) readCells() ([]string, error) {
	for {
		s.limiter.left = maxRow + maxCell
		cells, err := s.reader.Read()
		if err != nil {
			return nil, err
		}
		for i, c := range cells {
			cells[i] = strings.TrimSpace(unescapeCell(c))
		}
		if strings.Join(cells, "") != "" {
			return cells, nil
		}
	}
}

// parseHeader parses a header; it returns false if the line is no header.
func (c *columnIndexes) parseHeader(head []string) bool {
	for _, cell := range head {
		if _, err := address.ParseNameAddr(cell); err == nil {
			return false
		}
	}
	for i, at := range [...]*int{&c.address, &c.reason, &c.created, &c.diagnostic} {
		*at = -1
		for _, name := range columnNames[i] {
			for place, cell := range head {
				if *at < 0 && columnKey(cell) == name {
					*at = place
				}
			}
		}
	}
	return c.address >= 0
}

// columnKey returns a text's ASCII letters in lower case.
func columnKey(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z':
			return r
		}
		return -1
	}, s)
}

// next returns the next row; io.EOF after the last.
func (s *csvReader) next() (row, error) {
	cells := s.firstRow
	if s.firstRow = nil; cells == nil {
		var err error
		if cells, err = s.readCells(); err != nil {
			return row{}, err
		}
	}
	line, _ := s.reader.FieldPos(0)
	cell := func(at int) string {
		if at < 0 || at >= len(cells) {
			return ""
		}
		return cells[at]
	}
	r := row{line: line, reason: s.fallback, diagnostic: cell(s.columns.diagnostic), created: s.parseTime(cell(s.columns.created))}
	if known, ok := reasonNames[columnKey(cell(s.columns.reason))]; ok {
		r.reason = known
	} else if r.diagnostic == "" {
		r.diagnostic = cell(s.columns.reason) // some exports give the diagnostic there
	}
	n, err := address.ParseNameAddr(cell(s.columns.address))
	switch r.address = n.Address; {
	case err != nil:
		r.fault = &fault.FieldError{Code: "invalid_address", Message: "This line has no address such as you@example.com."}
	case IsSimulator(r.address):
		r.fault = &fault.FieldError{Code: "simulator_address", Message: "Simulator addresses can't be added to the list."}
	}
	return r, nil
}

// timeLayouts are the time formats in exports.
var timeLayouts = [...]string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 MST", "2006-01-02",
	time.RFC1123, time.RFC1123Z,
}

// parseTime parses a time in the past; it returns zero for anything else.
func (s *csvReader) parseTime(text string) time.Time {
	for _, layout := range timeLayouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		return s.pastOrZero(t)
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds < 1<<40 {
		return s.pastOrZero(time.Unix(seconds, 0))
	}
	return time.Time{}
}

func (s *csvReader) pastOrZero(t time.Time) time.Time {
	if t.Year() < 1990 || t.After(s.now) {
		return time.Time{}
	}
	return t.UTC()
}

// formulaPrefixes are the characters that make a spreadsheet treat a cell as a formula.
const formulaPrefixes = "=+-@\t\r"

// escapeCell escapes a cell so that no spreadsheet evaluates it; unescapeCell is the reverse.
func escapeCell(s string) string {
	if s != "" && strings.ContainsRune(formulaPrefixes+"'", rune(s[0])) {
		return "'" + s
	}
	return s
}

func unescapeCell(s string) string {
	if len(s) > 1 && s[0] == '\'' && strings.ContainsRune(formulaPrefixes+"'", rune(s[1])) {
		return s[1:]
	}
	return s
}
