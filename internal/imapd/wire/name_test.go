// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"reflect"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(`
CAPABILITY|NOOP|LOGOUT|STARTTLS|UNAUTHENTICATE|NAMESPACE|IDLE|CHECK|CLOSE|UNSELECT|EXPUNGE
LOGIN| a b|AUTHENTICATE| PLAIN|ENABLE| X|ID| NIL|COMPRESS| DEFLATE|SELECT| a|EXAMINE| a|CREATE| a|DELETE| a
RENAME| a b|SUBSCRIBE| a|UNSUBSCRIBE| a|LIST| "" a|LSUB| "" a|STATUS| a (SIZE)|APPEND| a {1}|REPLACE| * a {1}
UID REPLACE| 1 a {1}|FETCH| 1 UID|UID FETCH| 1 UID|STORE| 1 FLAGS ()|UID STORE| 1 FLAGS ()|SEARCH| ALL|UID SEARCH| ALL
SORT| (TO) UTF-8 ALL|UID SORT| (TO) UTF-8 ALL|THREAD| REFERENCES UTF-8 ALL|UID THREAD| ORDEREDSUBJECT UTF-8 ALL
COPY| 1 a|UID COPY| 1 a|MOVE| 1 a|UID MOVE| 1 a|UID EXPUNGE| 1|GETQUOTA| a|GETQUOTAROOT| a|SETQUOTA| a ()`), "\n") {
		fields := strings.Split(line, "|")
		for i, name := range fields {
			if name[0] == ' ' {
				continue
			}
			if i+1 < len(fields) && fields[i+1][0] == ' ' {
				line = name + fields[i+1]
			} else {
				line = name
			}
			if cmd, err := parseOne(t, strings.ToLower(name)+line[len(name):]); err != nil || cmd.Name() != name {
				t.Errorf("%s: %v, %v", line, cmd, err)
			}
		}
	}
}

func TestSearchKeys(t *testing.T) {
	flag := func(f SystemFlags, not bool) SearchKey { return SearchKey{Op: SearchFlag, Flag: f, Not: not} }
	field := func(name string) SearchKey { return SearchKey{Op: SearchEnvelope, Header: name, Text: "x"} }
	on := func(op SearchOp) SearchKey { return SearchKey{Op: op, Date: day(2026, 1, 2)} }
	for line, want := range map[string]SearchKey{
		"ALL":                    {Op: SearchAll},
		"NOT ALL":                {Op: SearchAll, Not: true},
		"ANSWERED":               flag(Answered, false),
		"DELETED":                flag(Deleted, false),
		"DRAFT":                  flag(Draft, false),
		"FLAGGED":                flag(Flagged, false),
		"SEEN":                   flag(Seen, false),
		"RECENT":                 flag(Recent, false),
		"UNANSWERED":             flag(Answered, true),
		"UNDELETED":              flag(Deleted, true),
		"UNDRAFT":                flag(Draft, true),
		"UNFLAGGED":              flag(Flagged, true),
		"OLD":                    flag(Recent, true),
		"NOT UNSEEN":             flag(Seen, false),
		"FROM x":                 field("From"),
		"TO x":                   field("To"),
		"CC x":                   field("Cc"),
		"BCC x":                  field("Bcc"),
		`SUBJECT "x"`:            field("Subject"),
		"HEADER List-Id x":       {Op: SearchHeader, Header: "List-Id", Text: "x"},
		"BODY x":                 {Op: SearchBody, Text: "x"},
		"BEFORE 2-Jan-2026":      on(SearchBefore),
		"ON 02-jan-2026":         on(SearchOn),
		"SENTBEFORE 2-Jan-2026":  on(SearchSentBefore),
		"SENTSINCE 2-Jan-2026":   on(SearchSentSince),
		"SAVEDBEFORE 2-Jan-2026": on(SearchSavedBefore),
		"SAVEDON 2-Jan-2026":     on(SearchSavedOn),
		"SAVEDSINCE 2-Jan-2026":  on(SearchSavedSince),
		"SAVEDATESUPPORTED":      {Op: SearchSaveDateSupported},
		"LARGER 0":               {Op: SearchLarger},
		"OLDER 60":               {Op: SearchOlder, Num: 60},
		"KEYWORD $Junk":          {Op: SearchKeyword, Text: "$Junk"},
		"EMAILID M1":             {Op: SearchEmailID, Text: "M1"},
		"THREADID T1":            {Op: SearchThreadID, Text: "T1"},
		"UID $":                  {Op: SearchNumbers, Numbers: NumSet{UID: true, Saved: true}},
		"((5:*))":                {Op: SearchNumbers, Numbers: seqs("5:*")},
	} {
		cmd, err := parseOne(t, "SEARCH "+line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
		} else if got := cmd.(*Search).Key; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
}

func TestSectionBounds(t *testing.T) {
	for _, tt := range []struct {
		s             Section
		size          int64
		offset, count int64
	}{
		{Section{}, 10, 0, 10},
		{Section{HasPartial: true, Offset: 2, Count: 3}, 10, 2, 3},
		{Section{HasPartial: true, Offset: 8, Count: 30}, 10, 8, 2},
		{Section{HasPartial: true, Offset: 99, Count: 1 << 62}, 10, 10, 0},
		{Section{HasPartial: true, Offset: 1 << 62, Count: 1}, 0, 0, 0},
	} {
		if offset, count := tt.s.Bounds(tt.size); offset != tt.offset || count != tt.count {
			t.Errorf("%+v of %d: %d, %d", tt.s, tt.size, offset, count)
		}
	}
}
