// SPDX-License-Identifier: Apache-2.0

package apijson_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/apijson"
)

func TestMarshal(t *testing.T) {
	type object struct {
		At       time.Time            `json:"at"`
		Never    *time.Time           `json:"never"`
		Words    []string             `json:"words"`
		Numbers  map[string]int       `json:"numbers"`
		Reply    apijson.NullString   `json:"reply"`
		Code     apijson.NullInt      `json:"code"`
		Points   apijson.NullFloat    `json:"points"`
		Other    []apijson.NullString `json:"other"`
		Metadata json.RawMessage      `json:"metadata"`
	}
	in := object{
		At: time.Date(2026, 1, 31, 13, 0, 0, 1_999_999, time.FixedZone("", 3600)), Other: []apijson.NullString{"", "<a&b>\xff"},
		Metadata: json.RawMessage(`{"b":1.0e2,"a":"\u00e9","a":9007199254740993}`),
	}
	text, err := apijson.Marshal(in)
	const want = `{"at":"2026-01-31T12:00:00.001Z","never":null,"words":[],"numbers":{},"reply":null,"code":null,"points":null,` +
		`"other":[null,"<a&b>` + "\uFFFD" + `"],"metadata":{"b":1.0e2,"a":"\u00e9","a":9007199254740993}}`
	if err != nil || string(text) != want {
		t.Errorf("%s, %v, want\n%s", text, err, want)
	}
	in = object{At: in.At.Truncate(time.Second), Reply: "ok", Code: 250, Points: 1.5, Numbers: map[string]int{"b": 2, "a": 1}, Metadata: json.RawMessage(`{}`)}
	text, err = apijson.Marshal(in)
	const full = `{"at":"2026-01-31T12:00:00.000Z","never":null,"words":[],"numbers":{"a":1,"b":2},"reply":"ok","code":250,"points":1.5,"other":[],"metadata":{}}`
	if err != nil || string(text) != full {
		t.Errorf("%s, %v, want\n%s", text, err, full)
	}
	var back object
	if err := json.Unmarshal([]byte(want), &back); err != nil || back.Reply != "" || back.Code != 0 {
		t.Errorf("decoded %+v, %v", back, err)
	}
}
