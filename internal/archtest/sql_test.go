// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// use is the use of a table in a statement.
type use struct {
	table  string // "" if a name is expected and something else follows
	writes bool
}

// sqlToken matches words (also quoted, and with a schema) and the relevant symbols. Strings,
// comments and {fragments} come first, so that nothing inside them matches.
var sqlToken = regexp.MustCompile(`'(?:[^']|'')*'|--[^\n]*|/\*(?s:.*?)\*/|\{[a-z_]*\}|(?:"[^"]+"|[A-Za-z_][A-Za-z0-9_]*)(?:\.(?:"[^"]+"|[A-Za-z_][A-Za-z0-9_]*))*|[(),;?%]`)

// afterTable lists the keywords that may follow a table's name, and so are not its alias.
var afterTable = []string{
	"WHERE", "SET", "JOIN", "LEFT", "RIGHT", "FULL", "INNER", "CROSS", "NATURAL", "ON", "USING", "ORDER",
	"GROUP", "HAVING", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT", "VALUES", "SELECT", "DEFAULT", "RETURNING",
	"FOR", "INDEXED", "NOT", "WINDOW", "FROM", "DO", "TABLESAMPLE",
}

func tokens(sql string) []string {
	return slices.DeleteFunc(sqlToken.FindAllString(sql, -1), func(tok string) bool {
		return tok[0] == '\'' || tok[0] == '{' || strings.HasPrefix(tok, "--") || strings.HasPrefix(tok, "/*")
	})
}

func isWord(tok string) bool {
	return tok != "" && !strings.Contains("(),;?%", tok)
}

// scanner scans the tokens of one SQL text.
type scanner struct {
	toks []string
	ctes map[string]bool
	uses []use
}

// tablesOf lists the tables that the text reads or writes, without the names that it defines itself
// (WITH x AS).
func tablesOf(sql string) []use {
	s := &scanner{toks: tokens(sql), ctes: map[string]bool{}}
	s.findCTEs()
	for i := range s.toks {
		before := strings.ToUpper(s.at(i - 1))
		switch strings.ToUpper(s.toks[i]) {
		case "FROM":
			if before != "DISTINCT" { // IS DISTINCT FROM compares
				s.list(i+1, before == "DELETE")
			}
		case "JOIN":
			s.list(i+1, false)
		case "INTO":
			s.name(i+1, true)
		case "USING":
			if s.at(i+1) != "(" { // not JOIN … USING (column)
				s.list(i+1, false)
			}
		case "UPDATE":
			if before != "FOR" && before != "DO" && before != "ON" {
				s.update(i + 1)
			}
		}
	}
	return s.uses
}

func (s *scanner) at(i int) string {
	if i < 0 || i >= len(s.toks) {
		return ""
	}
	return s.toks[i]
}

func (s *scanner) findCTEs() {
	for i, tok := range s.toks {
		before := strings.ToUpper(s.at(i - 1))
		if !isWord(tok) || before != "WITH" && before != "RECURSIVE" && before != "," {
			continue
		}
		next := i + 1
		if s.at(next) == "(" { // WITH x (columns) AS
			next = s.close(next)
		}
		if !strings.EqualFold(s.at(next), "AS") {
			continue
		}
		for next++; strings.EqualFold(s.at(next), "NOT") || strings.EqualFold(s.at(next), "MATERIALIZED"); {
			next++
		}
		if s.at(next) == "(" {
			s.ctes[plain(tok)] = true
		}
	}
}

// close returns the index after the bracket that closes the one at i.
func (s *scanner) close(i int) int {
	depth := 0
	for ; i < len(s.toks); i++ {
		switch s.toks[i] {
		case "(":
			depth++
		case ")":
			depth--
			if depth == 0 {
				return i + 1
			}
		}
	}
	return i
}

// list reads the tables of FROM a, b AS c, (SELECT …) d. Tables inside brackets are found
// separately.
func (s *scanner) list(i int, writes bool) {
	for {
		for strings.EqualFold(s.at(i), "ONLY") || strings.EqualFold(s.at(i), "LATERAL") {
			i++
		}
		switch {
		case s.at(i) == "(":
			if first := s.at(i + 1); isWord(first) && !strings.EqualFold(first, "SELECT") &&
				!strings.EqualFold(first, "VALUES") && !strings.EqualFold(first, "WITH") {
				s.list(i+1, false) // FROM (a JOIN b …)
			}
			i = s.close(i)
		case isWord(s.at(i)) && s.at(i+1) == "(": // a function, such as json_each(…)
			i = s.close(i + 1)
		default:
			s.name(i, writes)
			i++
		}
		if strings.EqualFold(s.at(i), "AS") {
			i++
		}
		if isWord(s.at(i)) && !slices.Contains(afterTable, strings.ToUpper(s.at(i))) {
			i++
			if s.at(i) == "(" {
				i = s.close(i)
			}
		}
		if s.at(i) != "," {
			return
		}
		i++
		writes = false
	}
}

// update reads the table of UPDATE a or UPDATE OR IGNORE a.
func (s *scanner) update(i int) {
	if strings.EqualFold(s.at(i), "OR") {
		i += 2
	}
	if strings.EqualFold(s.at(i), "ONLY") {
		i++
	}
	s.name(i, true)
}

func (s *scanner) name(i int, writes bool) {
	tok := s.at(i)
	if !isWord(tok) {
		s.uses = append(s.uses, use{"", writes})
		return
	}
	if name := plain(tok); !s.ctes[name] {
		s.uses = append(s.uses, use{name, writes})
	}
}

// plain returns the name in lower case, without schema and quotes. The engines' own information
// tables keep their schema.
func plain(tok string) string {
	tok = strings.ToLower(strings.ReplaceAll(tok, `"`, ""))
	schema, name, ok := strings.Cut(tok, ".")
	if !ok || schema == "information_schema" {
		return tok
	}
	return name
}

func TestTablesOf(t *testing.T) {
	cases := []struct {
		sql  string
		want []use
	}{
		{"SELECT a FROM delivery WHERE b = $1", []use{{"delivery", false}}},
		{"SELECT 1 FROM a, b AS x, c y WHERE z", []use{{"a", false}, {"b", false}, {"c", false}}},
		{"SELECT 1 FROM a JOIN b ON a.x = b.x LEFT JOIN c USING (x)", []use{{"a", false}, {"b", false}, {"c", false}}},
		{"INSERT INTO a(x) SELECT y FROM b {for_update}", []use{{"a", true}, {"b", false}}},
		{"INSERT INTO a (x) VALUES ($1) ON CONFLICT (x) DO UPDATE SET y = 1", []use{{"a", true}}},
		{"UPDATE a SET x = 1 FROM b WHERE a.y IS DISTINCT FROM b.y", []use{{"a", true}, {"b", false}}},
		{"UPDATE OR IGNORE a SET x = 'FROM z'", []use{{"a", true}}},
		{"DELETE FROM a WHERE x IN (SELECT y FROM b)", []use{{"a", true}, {"b", false}}},
		{"DELETE FROM a USING b WHERE a.x = b.x", []use{{"a", true}, {"b", false}}},
		{"WITH x AS (SELECT 1 FROM a), y (n) AS MATERIALIZED (SELECT 2 FROM x) SELECT * FROM y", []use{{"a", false}}},
		{"SELECT value FROM json_each($1) j, a", []use{{"a", false}}},
		{"SELECT 1 FROM (SELECT 2 FROM a) s, b -- FROM c\n", []use{{"b", false}, {"a", false}}},
		{"SELECT 1 FROM a FOR UPDATE SKIP LOCKED", []use{{"a", false}}},
		{`SELECT 1 FROM main."Order"`, []use{{"order", false}}},
		{"SELECT 1 FROM ?", []use{{"", false}}},
		{"SELECT 1 FROM %s", []use{{"", false}}},
		{"BEGIN IMMEDIATE", nil},
	}
	for _, c := range cases {
		if got := tablesOf(c.sql); !slices.Equal(got, c.want) {
			t.Errorf("%s\ngot  %v\nwant %v", c.sql, got, c.want)
		}
	}
}
