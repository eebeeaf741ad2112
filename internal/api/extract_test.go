// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/mailstead/mailstead/internal/fault"
)

func extractAll(r io.Reader, within bodyLimits) (rest string, contents []string, err error) {
	var sinks []*bytes.Buffer
	b, bad, err := extractAttachments(r, -1, func() io.Writer {
		sinks = append(sinks, &bytes.Buffer{})
		return sinks[len(sinks)-1]
	}, within)
	if err == nil {
		err = bad.Err()
	}
	for _, s := range sinks {
		contents = append(contents, s.String())
	}
	return string(b), contents, err
}

func TestExtract(t *testing.T) {
	for in, want := range map[string]struct {
		rest     string
		contents string
	}{
		`{"a":[1,true,"x\"y"],"b":{}}`:                               {`{"a":[1,true,"x\"y"],"b":{}}`, ""},
		`{"content":"aGk=","attachments":[]}`:                        {`{"content":"aGk=","attachments":[]}`, ""},
		`{"attachments":[{"content":"aGk="},{"content": "aG8=" }]} `: {`{"attachments":[{"content":0},{"content": 1 }]} `, "hi|ho"},
		`{"attachments":[{"content":"aG\/k\u003d\n"}]}`:              {`{"attachments":[{"content":0}]}`, "h\x6f\xe4"},
		`{"messages":[{"attachments":[{"content":"aGk="}]}]}`:        {`{"messages":[{"attachments":[{"content":0}]}]}`, "hi"},
		`{"metadata":{"attachments":[{"content":"aGk="}]}}`:          {`{"metadata":{"attachments":[{"content":"aGk="}]}}`, ""},
		`{"\u0061ttachments":[{"content":"aGk="}]}`:                  {`{"\u0061ttachments":[{"content":0}]}`, "hi"},
		`{"attachments":[{"x":{"content":"aGk="}}]}`:                 {`{"attachments":[{"x":{"content":"aGk="}}]}`, ""},
	} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			within := sendBodyLimits()
			if strings.HasPrefix(in, `{"messages"`) {
				within = batchBodyLimits()
			}
			rest, contents, err := extractAll(r, within)
			if in == `{"attachments":[{"content":"aG\/k\u003d\n"}]}` {
				if err == nil { // aG/k= is one character too many
					t.Errorf("%s passed", in)
				}
				continue
			}
			if err != nil || rest != want.rest || strings.Join(contents, "|") != want.contents {
				t.Errorf("%s → %s %q, %v", in, rest, contents, err)
			}
		}
	}
}

func TestExtractRefuses(t *testing.T) {
	for in, code := range map[string]string{
		``:                                   "invalid_json",
		`{`:                                  "invalid_json",
		`{"a"}`:                              "invalid_json",
		`{"a":}`:                             "invalid_json",
		`{"a":"x`:                            "invalid_json",
		`[1 2]`:                              "invalid_json",
		`{"attachments":[{"content":"aGk`:    "invalid_json",
		strings.Repeat("[", 100):             "invalid_json",
		`{"attachments":[{"content":"!!"}]}`: "validation_failed",
		`{"attachments":[{"content":"aGk=aGk="}]}`:                "validation_failed",
		`"` + strings.Repeat("x", sendBodyLimits().maxRest) + `"`: "body_too_large",
	} {
		_, _, err := extractAll(strings.NewReader(in), sendBodyLimits())
		var f *fault.Error
		if f, _ = err.(*fault.Error); f == nil || f.Code != code { //nolint:errorlint // exactly this type
			t.Errorf("%.40s → %v, want %s", in, err, code)
		}
	}
}

// Every content that is not base64 is reported, and the valid ones are kept.
func TestExtractTellsAllContents(t *testing.T) {
	_, contents, err := extractAll(strings.NewReader(`{"attachments":[{"content":"@"},{"content":"aGk="},{"content":"aGk"}]}`), sendBodyLimits())
	if err == nil || !strings.Contains(err.Error(), "attachments[0].content") || !strings.Contains(err.Error(), "attachments[2].content") {
		t.Errorf("got %v", err)
	}
	_ = contents
}

func FuzzExtract(f *testing.F) {
	f.Add(`{"attachments":[{"content":"aGk=","filename":"x"}],"to":["a@b.example"]}`)
	f.Add(`{"a":[1,2,{"b":null}],"c":"\u00e4\\"}`)
	f.Add(`[[[[`)
	f.Fuzz(func(t *testing.T, in string) {
		rest, contents, err := extractAll(strings.NewReader(in), sendBodyLimits())
		if err != nil || !json.Valid([]byte(in)) {
			return
		}
		if !json.Valid([]byte(rest)) {
			t.Fatalf("%q became %q", in, rest)
		}
		if len(contents) == 0 && rest != in {
			t.Fatalf("%q was changed to %q", in, rest)
		}
	})
}

func BenchmarkExtract25MiB(b *testing.B) {
	var body bytes.Buffer
	body.WriteString(`{"attachments":[{"filename":"x","content":"`)
	e := base64.NewEncoder(base64.StdEncoding, &body)
	e.Write(bytes.Repeat([]byte("0123456789abcdef"), 25<<16)) //nolint:errcheck // a buffer
	e.Close()                                                 //nolint:errcheck // a buffer
	body.WriteString(`"}]}`)
	b.SetBytes(int64(body.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := extractAttachments(bytes.NewReader(body.Bytes()), -1, func() io.Writer { return io.Discard }, sendBodyLimits()); err != nil {
			b.Fatal(err)
		}
	}
}
