// SPDX-License-Identifier: Apache-2.0

// Package apijson encodes the JSON of API responses, events and webhooks: times in UTC with
// milliseconds, fields that are always present, lists that are never null.
package apijson

import (
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// TimeFormat is the form of all times, in UTC. The fixed width lets clients compare and sort them
// as text.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// options keep the text of embedded JSON values, such as a message's metadata.
var options = jsonv2.JoinOptions(
	jsonv2.WithMarshalers(jsonv2.MarshalToFunc(marshalTime)),
	jsonv2.Deterministic(true),
	jsontext.AllowInvalidUTF8(true),
	jsontext.AllowDuplicateNames(true),
	jsontext.PreserveRawStrings(true),
)

func marshalTime(e *jsontext.Encoder, t time.Time) error {
	return e.WriteToken(jsontext.String(FormatTime(t)))
}

// FormatTime returns t in TimeFormat. It rounds down, so that a time that was read from a response
// selects its object with created_after.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeFormat) }

// Marshal returns v as JSON, without a line end.
func Marshal(v any) ([]byte, error) {
	text, err := jsonv2.Marshal(v, options)
	if err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	return text, nil
}

// NullString is a string that is null in JSON if it is empty.
type NullString string

// MarshalJSON implements json.Marshaler of encoding/json.
func (s NullString) MarshalJSON() ([]byte, error) { return marshalNull(string(s)) }

// NullInt is a number that is null in JSON if it is 0.
type NullInt int

// MarshalJSON implements json.Marshaler.
func (n NullInt) MarshalJSON() ([]byte, error) { return marshalNull(int(n)) }

// NullFloat is a number that is null in JSON if it is 0.
type NullFloat float64

// MarshalJSON implements json.Marshaler.
func (n NullFloat) MarshalJSON() ([]byte, error) { return marshalNull(float64(n)) }

func marshalNull[T comparable](v T) ([]byte, error) {
	var zero T
	if v == zero {
		return []byte("null"), nil
	}
	return Marshal(v)
}
