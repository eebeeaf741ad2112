// SPDX-License-Identifier: Apache-2.0

package outbound

import (
	"errors"
	"fmt"
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
		"X-Mailstead-Tags: a,\r\n b-c ,a":                           {metadata: "{}", tags: "a b-c"},
		"X-Mail: stays":                                             {metadata: "{}"},
		"X-Mailstead-Unsubscribe:":                                  {metadata: "{}", offersUnsubscribe: true},
		"X-Mailstead-Unsubscribe: True":                             {metadata: "{}", offersUnsubscribe: true},
		"X-Mailstead-Unsubscribe: https://a/b":                      {metadata: "{}", offersUnsubscribe: true, unsubscribe: Unsubscribe{URL: "https://a/b"}},
		"X-Mailstead-Unsubscribe: leave@a.test":                     {metadata: "{}", offersUnsubscribe: true, unsubscribe: Unsubscribe{Mailto: "leave@a.test"}},
		"X-Mailstead-Unsubscribe: <mailto:leave@a.test?body=x://y>,\r\n <https://a/b>": {metadata: "{}", offersUnsubscribe: true,
			unsubscribe: Unsubscribe{URL: "https://a/b", Mailto: "mailto:leave@a.test?body=x://y"}},
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
		"X-Mailstead-Tags:":                                     {"Tags"},
		"X-Mailstead-Tags: two words":                           {"Tags"},
		"X-Mailstead-Tags: 1,2,3,4,5,6,7,8,9,10,11":             {"Tags"},
		"X-Mailstead-Unsubscribe: https://a/, https://b/":       {"Unsubscribe"},
		"X-Mailstead-Unsubscribe: https://a/,":                  {"Unsubscribe"},
		"x-mailstead-Colour: blue\r\nX-Mailstead-Metadata: [1]": {"Metadata", "Idempotency-Key", "Unsubscribe"},
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

// Unknown fields are named if their names are harmless, a few of them, each once.
func TestUnknownFields(t *testing.T) {
	const known = "X-Mailstead-Idempotency-Key, X-Mailstead-Metadata, X-Mailstead-Schedule, X-Mailstead-Tags, X-Mailstead-Template, X-Mailstead-Thread, X-Mailstead-Unsubscribe, X-Mailstead-Variables"
	const end = " The supported ones of the service are " + known + "."
	for header, want := range map[string]string{
		"X-Mailstead-Colour: blue":             "The header X-Mailstead-Colour is not supported.",
		"X-Mailstead-A: x\r\nx-mailstead-a: y": "The header X-Mailstead-A is not supported.",
		"X-Mailstead-: x\r\nX-SERVICE-Id: y":   "The header X-Mailstead- is not supported. The header X-SERVICE-Id is not supported.",
		"X-Mailstead-<a>@b: x":                 "The header whose name has other characters than letters, digits and hyphens is not supported.",
		"X-Mailstead-_: x":                     "The header whose name has other characters than letters, digits and hyphens is not supported.",
	} {
		_, err := readSubmitOptions(message.Header(header+"\r\n\r\n"), today)
		if !fault.Is(err, fault.Invalid) || err.Error() != "invalid_header: "+want+end {
			t.Errorf("%.80q: %v", header, err)
		}
	}
	many := ""
	for i := range 50 {
		many += fmt.Sprintf("X-Mailstead-%d: x\r\n", i)
	}
	if got := unknownFields(message.Header(many + "\r\n")); len(got) != maxNamedFields+1 {
		t.Errorf("%d sentences", len(got))
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
