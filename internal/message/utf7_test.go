// SPDX-License-Identifier: Apache-2.0

package message

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestUTF7(t *testing.T) {
	for name, encoded := range map[string]string{
		"":                     "",
		"INBOX":                "INBOX",
		"~peter/mail/台北/日本語":   "~peter/mail/&U,BTFw-/&ZeVnLIqe-",
		"A&B":                  "A&-B",
		"&&":                   "&-&-",
		"Entwürfe":             "Entw&APw-rfe",
		"é&é":                  "&AOk-&-&AOk-",
		"😀":                    "&2D3eAA-",
		"Отправленные":         "&BB4EQgQ,BEAEMAQyBDsENQQ9BD0ESwQ1-",
		"tab\there":            "tab&AAk-here",
		"a\u007fb":             "a&AH8-b",
		"Elementos eliminados": "Elementos eliminados",
	} {
		if got := EncodeUTF7(name); got != encoded {
			t.Errorf("%q is encoded as %q, want %q", name, got, encoded)
		}
		if got, err := DecodeUTF7(encoded); got != name || err != nil {
			t.Errorf("%q is decoded as %q, %v, want %q", encoded, got, err, name)
		}
	}
	for _, bad := range []string{
		"&", "a&", "&AOk", "&AO-", "&A-", "&AOk=-", "&AOkA-", "&AGE-", "&ACY-", "é", "a\tb", "\x7f",
		"&2D0-", "&3gA-", "&3gDYPQ-", "&AOk-&AOk-", "&AO k-", "&/wA-", "&AOl-x&",
	} {
		if got, err := DecodeUTF7(bad); err == nil {
			t.Errorf("%q is decoded as %q", bad, got)
		}
	}
}

func TestUTF7RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		got, err := DecodeUTF7(EncodeUTF7(name))
		if got != name || err != nil {
			t.Fatalf("%q comes back as %q, %v", name, got, err)
		}
	})
}

func FuzzUTF7(f *testing.F) {
	for _, s := range []string{"INBOX", "&U,BTFw-/&ZeVnLIqe-", "A&-B", "&AOk-&AOk-", "&2D3eAA-", "&2D0-", "&", "Entwürfe", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, err := DecodeUTF7(s); err == nil {
			if !utf8.ValidString(name) || EncodeUTF7(name) != s {
				t.Fatalf("%q is decoded as %q and encoded as %q", s, name, EncodeUTF7(name))
			}
		}
		encoded := EncodeUTF7(s)
		name, err := DecodeUTF7(encoded)
		if err != nil || (utf8.ValidString(s) && name != s) {
			t.Fatalf("%q is encoded as %q and decoded as %q, %v", s, encoded, name, err)
		}
	})
}
