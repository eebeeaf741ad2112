// SPDX-License-Identifier: Apache-2.0

package smtpd

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/address"
)

func TestCutPath(t *testing.T) {
	for arg, want := range map[string]string{
		"FROM:<a@b.example>":                 "a@b.example|",
		"from: <a@b.example> SIZE=1":         "a@b.example| SIZE=1",
		"FROM:<>":                            "|",
		`FROM:<"a>\" b"@b.example> X`:        `"a>\" b"@b.example| X`,
		"FROM:<@x.example,@y.example:a@b.c>": "a@b.c|",
		"FROM:<@x.example>":                  "no",
		"FROM:<a@b.example":                  "no",
		"FROM:<a@b.example>x":                "no",
		"FROM:a@b.example":                   "no",
		"FROM <a@b.example>":                 "no",
		`FROM:<"a@b.example>`:                "no",
		"":                                   "no",
	} {
		path, params, ok := cutPath(arg, "FROM:")
		got := path + "|" + params
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", arg, got, want)
		}
	}
}

// FuzzCommand parses arguments of MAIL. An accepted address must be one that can be sent again
// unchanged.
func FuzzCommand(f *testing.F) {
	for _, seed := range []string{
		"FROM:<ann@example.com> SIZE=100 BODY=8BITMIME SMTPUTF8 AUTH=<>", `FROM:<"a>\" b"@b.example>`, "FROM:<@x,@y:a@b.c> RET=FULL",
		"FROM:<änn@bücher.example> SMTPUTF8", "FROM:<>", "FROM:<\"\\", "FROM: <a@b> SIZE=-1 SIZE=99999999999999999999",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		path, rest, ok := cutPath(arg, "FROM:")
		if !ok {
			return
		}
		l := &currentTransaction{}
		if r := l.parseParams(rest, mailParams{1 << 20, true, true}); r.code == 0 && (l.envelope.Size < 0 || l.envelope.Size > 1<<20) {
			t.Errorf("size %d", l.envelope.Size)
		}
		a, r := l.parseAddress(path)
		if r.code != 0 {
			return
		}
		if strings.ContainsAny(a.String(), "\r\n\x00") {
			t.Errorf("%q", a.String())
		}
		if again, err := address.Parse(a.String()); err != nil || again != a {
			t.Errorf("%q becomes %q, %v", a, again, err)
		}
	})
}
