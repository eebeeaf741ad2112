// SPDX-License-Identifier: Apache-2.0

package message_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/message/messagetest"
)

func TestAuthors(t *testing.T) {
	all := messagetest.Froms(t)
	clear := 0
	for _, from := range all {
		a := message.ParseAuthors([][]byte{[]byte(from.Value)})
		if a.Problem != from.Problem {
			t.Errorf("%q: %q %+v, want %q", from.Value, string(a.Problem), a.List, string(from.Problem))
		}
		if from.Problem != "" {
			continue
		}
		clear++
		for _, one := range a.List {
			if name := strings.ToLower(strings.TrimSuffix(one.Domain, ".")); name != "own.test" && name != "own_.test" && name != "mail_out.own.test" {
				t.Errorf("%q: from %s", from.Value, one)
			}
		}
	}
	if clear < 100 || len(all)-clear < 150 {
		t.Errorf("%d of %d are clear", clear, len(all))
	}
}

// Names that some readers would otherwise show as several authors.
func TestAuthorNames(t *testing.T) {
	for value, want := range map[string]string{
		"Lee, Ann <ann@own.test>":                  "Lee, Ann|ann@own.test",
		"\"Lee, Ann\" <ann@own.test>":              "Lee, Ann|ann@own.test",
		"=?utf-8?q?L=C3=A9e?=, Ann <ann@own.test>": "Lée, Ann|ann@own.test",
		"Ann \"A\" Lee <ann@own.test>":             "Ann A Lee|ann@own.test",
		"ann@own.test (Ann)":                       "Ann|ann@own.test",
		"\"a \\\"b\\\"\" <ann@own.test>":           "a \"b\"|ann@own.test",
		"\"\\\"a\" <ann@own.test>":                 "\"a|ann@own.test",
		"ann@own.test":                             "|ann@own.test",
		"\"ceo@victim.test\" <ann@own.test>":       "ceo@victim.test|ann@own.test",
	} {
		e := message.Header("From: " + value + "\r\n\r\n").Envelope()
		if len(e.From) != 1 || e.From[0].Name+"|"+e.From[0].String() != want {
			t.Errorf("%q: %+v", value, e.From)
		}
	}
}

// A composed name and address parse to the same, or to a problem.
func FuzzAuthor(f *testing.F) {
	for _, name := range []string{"Ann", "Lee, Ann", "a \"b\" \\", "ceo@victim.test", "Ä (x)", "=?utf-8?q?x?=", "a@own.test", "\u202ex", strings.Repeat("long ", 30)} {
		f.Add(name, "a")
	}
	f.Add("", "a b")
	f.Add("", "a..b")
	f.Fuzz(func(t *testing.T, name, local string) {
		if strings.ContainsAny(name, "\r\n\x00") || strings.ContainsAny(local, "\r\n\x00") || !utf8.ValidString(name) {
			return
		}
		own := message.Address{Name: name, Local: local, Domain: "own.test"}
		if own.AuthorProblem() != "" {
			return
		}
		plain := own
		plain.Name = ""
		if plain.AuthorProblem() != "" {
			t.Errorf("%q beside %q is clear, alone it is not", name, local)
		}
	})
}

// Any From field parses in time, and has an author if there is no problem.
func FuzzFrom(f *testing.F) {
	for _, from := range messagetest.Froms(f) {
		f.Add(from.Value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		a := message.ParseAuthors([][]byte{[]byte(value)})
		if a.Problem != "" {
			return
		}
		if len(a.List) == 0 {
			t.Fatalf("%q is from nobody", value)
		}
		seen := map[string]bool{}
		for _, one := range message.ParseAddresses([]byte(value)) {
			seen[strings.ToLower(one.String())] = true
		}
		for _, one := range a.List {
			if !seen[strings.ToLower(one.String())] {
				t.Errorf("%q is from %s; lists show %v", value, one, seen)
			}
		}
	})
}
