// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/message"
	"github.com/mailstead/mailstead/internal/thread"
)

func TestReadWishes(t *testing.T) {
	long := strings.Repeat("x", 20_000)
	for header, want := range map[string]submitOptions{
		"Subject: x":                                                {metadata: "{}"},
		"X-Mailstead-Metadata: {\"order\": 7}":                      {metadata: `{"order":7}`},
		"x-mailstead-METADATA :\r\n {\"a\":\r\n \"b c\"}":           {metadata: `{"a":"b c"}`},
		"X-Mailstead-Metadata: =?utf-8?q?{=22a=22:_=22=C3=BC=22}?=": {metadata: `{"a":"ü"}`},
		"X-Mailstead-Thread: order 7":                               {metadata: "{}", thread: "order 7"},
		"X-Mailstead-Idempotency-Key:  k-1 ":                        {metadata: "{}", idempotencyKey: "k-1"},
		"X-Mailstead-Schedule: 2026-05-04T14:00:00+02:00":           {metadata: "{}"},
		"X-Mailstead-Schedule: 2026-05-05T12:00:00Z":                {metadata: "{}", sendAt: today.Add(24 * time.Hour)},
		"X-Mailstead-Colour: blue":                                  {metadata: "{}"},
	} {
		got, err := readSubmitOptions(message.Header(header+"\r\n\r\n"), today)
		if err != nil || got != want {
			t.Errorf("%.80q: %+v, %v", header, got, err)
		}
	}
	for header, names := range map[string][]string{
		"X-Mailstead-Metadata: [1]":                             {"Metadata"},
		"X-Mailstead-Metadata:":                                 {"Metadata"},
		"X-Mailstead-Metadata: {\"a\":\"" + long + "\"}":        {"Metadata"},
		"X-Mailstead-Metadata: {}\r\nx-mailstead-metadata: {}":  {"Metadata"},
		"X-Mailstead-Thread:":                                   {"Thread"},
		"X-Mailstead-Thread: " + long:                           {"Thread"},
		"X-Mailstead-Schedule: tomorrow":                        {"Schedule"},
		"X-Mailstead-Schedule: 2026-05-04T11:00:00Z":            {"Schedule"},
		"X-Mailstead-Schedule: 2026-06-04T12:00:00Z":            {"Schedule"},
		"X-Mailstead-Idempotency-Key:":                          {"Idempotency-Key"},
		"X-Mailstead-Thread:\r\nX-Mailstead-Schedule: tomorrow": {"Thread", "Schedule"},
	} {
		_, err := readSubmitOptions(message.Header(header+"\r\n\r\n"), today)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || strings.Contains(f.Message, "xxx") || strings.Contains(f.Message, "tomorrow") {
			t.Errorf("%.80q: %v", header, err)
			continue
		}
		for _, name := range names {
			if !strings.Contains(f.Message, "X-Mailstead-"+name) {
				t.Errorf("%.80q does not name %s: %s", header, name, f.Message)
			}
		}
	}
}

// FuzzWishes reads arbitrary headers. Accepted options follow the rules of the API, and no option
// field stays in the header.
func FuzzWishes(f *testing.F) {
	for _, seed := range []string{
		"X-Mailstead-Metadata: {\"a\":1}\r\nX-Mailstead-Thread: t\r\n", "x-mailstead-schedule: 2026-05-05T12:00:00Z\r\nX-MAILSTEAD-: x\r\n",
		"X-Mailstead-Idempotency-Key: =?utf-8?b?aw==?=\r\n X-Mailstead-Thread: t\r\n", "X-Mailstead-Thread : =?x?q?a?=\nX-Mailstead-Template\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		h := message.Header(raw)
		w, err := readSubmitOptions(h, today)
		if err == nil {
			if len(w.metadata) > maxMetadata || w.metadata[0] != '{' || w.thread != "" && !thread.ValidID(w.thread) || w.sendAt.After(today.Add(maxSendAtAhead)) {
				t.Errorf("took %+v", w)
			}
		} else if !fault.Is(err, fault.Invalid) {
			t.Error(err)
		}
		for f := range h.WithoutFieldsFunc(isOptionField).Fields() {
			if isOptionField(f) {
				t.Errorf("%q stays", f.Raw)
			}
		}
	})
}
