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
	// MaxRows bounds the rows of an import.
	MaxRows = 100_000
	maxRow  = 64 << 10 // octets of one row
	maxCell = 4096     // octets read ahead by the csv package
)

// sheet reads rows of addresses from CSV (RFC 4180) in UTF-8, as this service
// and others export them. The separator is a comma, semicolon or tab, whichever
// the first line has most of. A first line without an address names the
// columns; without it they are address, reason, time.
type sheet struct {
	in       *csv.Reader
	bound    *bound
	columns  columns
	first    []string // a first line that is no header
	fallback Reason
	now      time.Time
}

// columns are the places of what is understood; -1 for none.
type columns struct{ address, reason, created, diagnostic int }

// columnNames are the names of columns in exports, without case, blanks and
// punctuation; the first that a file has is taken.
var columnNames = [...][]string{
	{"address", "email", "emailaddress", "recipient", "destination", "mail"},
	{"reason", "suppressionreason", "type"},
	{"created", "createdat", "timestamp", "lastupdatetime", "lastupdate", "date"},
	{"diagnostic", "error", "description"},
}

// reasonNames are what exports call the reasons, likewise.
var reasonNames = map[string]Reason{
	"bounce": Bounce, "bounced": Bounce, "hardbounce": Bounce, "permanentbounce": Bounce, "permanent": Bounce,
	"complaint": Complaint, "complained": Complaint, "spamcomplaint": Complaint, "spam": Complaint, "spamreport": Complaint, "abuse": Complaint,
	"unsubscribe": Unsubscribe, "unsubscribed": Unsubscribe, "globalunsubscribe": Unsubscribe, "optout": Unsubscribe,
	"manual": Manual, "manualsuppression": Manual,
}

// row is one row of a sheet, or what is wrong with it.
type row struct {
	line       int
	address    address.Address
	reason     Reason
	diagnostic string
	created    time.Time // zero if unknown
	fault      *fault.Field
}

// bound refuses a row that goes on for ever, before it is in memory.
type bound struct {
	r    io.Reader
	left int
}

var errRowTooLong = fault.New(fault.Invalid, "row_too_long", "A row of the file may have %d bytes; perhaps a quote is not closed.", maxRow)

func (b *bound) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errRowTooLong
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// newSheet begins to read. fallback is the reason of rows that tell none.
func newSheet(r io.Reader, fallback Reason, now time.Time) (*sheet, error) {
	buffered := bufio.NewReaderSize(r, maxCell)
	if mark, _ := buffered.Peek(3); bytes.Equal(mark, []byte("\xEF\xBB\xBF")) {
		_, _ = buffered.Discard(3) // it is there
	}
	start, _ := buffered.Peek(maxCell) // less at the end
	start, _, _ = bytes.Cut(start, []byte("\n"))
	s := &sheet{bound: &bound{r: buffered}, fallback: fallback, now: now}
	s.in = csv.NewReader(s.bound)
	s.in.LazyQuotes, s.in.FieldsPerRecord = true, -1
	for _, c := range ",;\t" {
		if bytes.Count(start, []byte(string(c))) > bytes.Count(start, []byte(string(s.in.Comma))) {
			s.in.Comma = c
		}
	}
	head, err := s.record()
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return s, err
	}
	if s.columns.read(head) {
		return s, nil
	}
	s.columns, s.first = columns{address: 0, reason: 1, created: 2, diagnostic: -1}, head
	return s, nil
}

// record reads the cells of a row that has some.
func (s *sheet) record() ([]string, error) {
	for {
		s.bound.left = maxRow + maxCell
		cells, err := s.in.Read()
		if err != nil {
			return nil, err
		}
		for i, c := range cells {
			cells[i] = strings.TrimSpace(plainCell(c))
		}
		if strings.Join(cells, "") != "" {
			return cells, nil
		}
	}
}

// read takes a header; false says that it is none.
func (c *columns) read(head []string) bool {
	for _, cell := range head {
		if _, err := address.ParseNamed(cell); err == nil {
			return false
		}
	}
	for i, at := range [...]*int{&c.address, &c.reason, &c.created, &c.diagnostic} {
		*at = -1
		for _, name := range columnNames[i] {
			for place, cell := range head {
				if *at < 0 && letters(cell) == name {
					*at = place
				}
			}
		}
	}
	return c.address >= 0
}

// letters is a text's ASCII letters in lower case.
func letters(s string) string {
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
func (s *sheet) next() (row, error) {
	cells := s.first
	if s.first = nil; cells == nil {
		var err error
		if cells, err = s.record(); err != nil {
			return row{}, err
		}
	}
	line, _ := s.in.FieldPos(0)
	cell := func(at int) string {
		if at < 0 || at >= len(cells) {
			return ""
		}
		return cells[at]
	}
	r := row{line: line, reason: s.fallback, diagnostic: cell(s.columns.diagnostic), created: s.time(cell(s.columns.created))}
	if known, ok := reasonNames[letters(cell(s.columns.reason))]; ok {
		r.reason = known
	} else if r.diagnostic == "" {
		r.diagnostic = cell(s.columns.reason) // some tell there why it bounced
	}
	n, err := address.ParseNamed(cell(s.columns.address))
	switch r.address = n.Address; {
	case err != nil:
		r.fault = &fault.Field{Code: "invalid_address", Message: "This line has no address such as you@example.com."}
	case Simulator(r.address):
		r.fault = &fault.Field{Code: "simulator_address", Message: "Addresses of the simulator are never on the list."}
	}
	return r, nil
}

// times are how exports write a time.
var times = [...]string{
	time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05 MST", "2006-01-02",
	time.RFC1123, time.RFC1123Z,
}

// time reads a time in the past; zero for anything else.
func (s *sheet) time(text string) time.Time {
	for _, layout := range times {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		return s.past(t)
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil && seconds < 1<<40 {
		return s.past(time.Unix(seconds, 0))
	}
	return time.Time{}
}

func (s *sheet) past(t time.Time) time.Time {
	if t.Year() < 1990 || t.After(s.now) {
		return time.Time{}
	}
	return t.UTC()
}

// dangerous begin what a spreadsheet takes for a formula.
const dangerous = "=+-@\t\r"

// safeCell makes a cell that no spreadsheet runs; plainCell is the reverse.
func safeCell(s string) string {
	if s != "" && strings.ContainsRune(dangerous+"'", rune(s[0])) {
		return "'" + s
	}
	return s
}

func plainCell(s string) string {
	if len(s) > 1 && s[0] == '\'' && strings.ContainsRune(dangerous+"'", rune(s[1])) {
		return s[1:]
	}
	return s
}
