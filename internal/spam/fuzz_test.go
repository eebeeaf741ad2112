// SPDX-License-Identifier: Apache-2.0

package spam

import (
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/summary"
)

func FuzzRspamdAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"is_skipped":true,"score":15.0,"required_score":15.0,"action":"reject","symbols":{"GTUBE":{"name":"GTUBE","score":0.0}},"messages":{"smtp_message":"Gtube pattern"}}`,
		`{"action":"soft reject","score":-1e308,"symbols":{"A B\r\nX: y":{"score":1e308}},"messages":[]}`, `{"action":"no action"}`, `{"action":null}`, `{}`, `[`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseRspamdReply(text)
		if err != nil {
			return
		}
		fields := string(o.AppendHeader(nil))
		if strings.Count(fields, "X-Spam-") < 2 || !strings.HasPrefix(fields, "X-Spam-Score: ") {
			t.Fatalf("%q", fields)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(fields, "\r\n"), "\r\n") {
			if strings.ContainsAny(line, "\r\n\x00") || len(line) > 200 || !strings.HasPrefix(line, "X-Spam-") && !strings.HasPrefix(line, "\t") {
				t.Fatalf("a line %q of %q", line, fields)
			}
		}
		v := o.AddTo(summary.CheckResults{SPF: "pass"})
		if got := summary.ParseCheckResults(v.String()); got != v.WithDefaults() {
			t.Fatalf("%+v is read as %+v", v, got)
		}
	})
}

func FuzzClamavAnswer(f *testing.F) {
	for _, seed := range []string{"stream: OK\x00", "stream: Eicar FOUND\x00", "INSTREAM size limit exceeded. ERROR\x00", "stream:  FOUND", "stream: a\r\nb FOUND\n", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		virus, err := parseClamReply(text)
		if len(virus) > maxVirusName || strings.ContainsFunc(virus, func(r rune) bool { return r <= ' ' || r > '~' }) || virus != "" && err != nil {
			t.Fatalf("%q, %v", virus, err)
		}
	})
}
