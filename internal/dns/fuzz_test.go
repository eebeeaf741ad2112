// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	wire "github.com/miekg/dns"
)

// seed adds the messages of testdata/messages.txt; each has a comment after it.
func seed(f *testing.F, add func(raw []byte)) {
	f.Helper()
	r, err := os.Open("testdata/messages.txt")
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		digits, _, _ := strings.Cut(lines.Text(), " ")
		raw, err := hex.DecodeString(digits)
		if err != nil {
			f.Fatal(err)
		}
		add(raw)
	}
	if err := lines.Err(); err != nil {
		f.Fatal(err)
	}
}

func FuzzResponse(f *testing.F) {
	seed(f, func(raw []byte) { f.Add(raw, "a.test.", wire.TypeTXT) })
	seed(f, func(raw []byte) { f.Add(raw, "a.test.", wire.TypeMX) })
	f.Fuzz(func(t *testing.T, raw []byte, name string, qtype uint16) {
		if len(raw) < 2 {
			return
		}
		q := question{name, qtype}
		m, ours, err := unpack(raw, binary.BigEndian.Uint16(raw), q)
		if !ours || err != nil {
			return
		}
		a, ttl, err := parseAnswer(m, q)
		if err != nil {
			return
		}
		if ttl < 0 || len(a.records) > maxRecords || a.reason != nil && len(a.records) > 0 {
			t.Errorf("answer %+v, ttl %v", a, ttl)
		}
		if len(a.records) == 0 && a.reason == nil && a.canonical == q.name {
			t.Error("no records, and no reason why")
		}
		for _, rr := range a.records {
			if rr.Header().Rrtype != qtype || !strings.EqualFold(rr.Header().Name, a.canonical) {
				t.Errorf("a record that was not asked for: %v", rr)
			}
			if txt, ok := rr.(*wire.TXT); ok && len(joinTXT(txt.Txt)) > len(raw) {
				t.Error("a text longer than its message")
			}
		}
	})
}

// FuzzTXT carries octets in the strings of a record, over the wire.
func FuzzTXT(f *testing.F) {
	for _, s := range []string{"v=spf1 -all", "", "a\\b\"c\x00\xff\t;", strings.Repeat("x", 600), `\\\000\999\`} {
		f.Add([]byte(s), byte(100))
	}
	f.Fuzz(func(t *testing.T, text []byte, length byte) {
		if len(text) > 60000 || length == 0 {
			return
		}
		msg := []byte{0, 1, 0x80, 0, 0, 1, 0, 1, 0, 0, 0, 0}
		msg = append(msg, 1, 'a', 0, 0, 16, 0, 1)
		var data []byte
		for rest := text; ; {
			n := min(len(rest), int(length))
			data = append(append(data, byte(n)), rest[:n]...)
			if rest = rest[n:]; len(rest) == 0 {
				break
			}
		}
		if len(data) > 65000 {
			return
		}
		msg = append(msg, 0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60)
		msg = append(binary.BigEndian.AppendUint16(msg, uint16(len(data))), data...)
		q := question{"a.", wire.TypeTXT}
		m, ours, err := unpack(msg, 1, q)
		if !ours || err != nil {
			t.Fatalf("unpack: %v, %v", ours, err)
		}
		a, _, err := parseAnswer(m, q)
		if err != nil || len(a.records) != 1 {
			t.Fatalf("read: %+v, %v", a, err)
		}
		if got := joinTXT(a.records[0].(*wire.TXT).Txt); !bytes.Equal([]byte(got), text) {
			t.Errorf("text %q came as %q", text, got)
		}
		joinTXT([]string{string(text)}) // the library does not return this, but it must not fail
	})
}

// FuzzServer passes requests to the server as the library does.
func FuzzServer(f *testing.F) {
	known := map[string]string{"a.test.": "a.test. TXT text", "b.test.": "b.test. CNAME a.test.", "l.test.": "l.test. CNAME l.test."}
	source := func(_ context.Context, name string) (NameData, error) {
		line, exists := known[name]
		if !exists {
			return NameData{}, nil
		}
		rrs, err := ParseRecords(line)
		return NameData{Records: rrs, Exists: true}, err
	}
	s := &Server{source: source, origins: []string{"test."}, negativeTTL: 1}
	seed(f, func(raw []byte) { f.Add(raw, true); f.Add(raw, false) })
	f.Fuzz(func(t *testing.T, raw []byte, tcp bool) {
		req := new(wire.Msg)
		if req.Unpack(raw) != nil || len(req.Question) != 1 {
			return
		}
		m := s.respond(context.Background(), req, tcp)
		if m == nil {
			t.Fatal("no reply")
		}
		packed, err := m.Pack()
		if err != nil {
			return // a name that can't be sent back
		}
		if !tcp && len(packed) > 4096 {
			t.Errorf("%d octets over UDP", len(packed))
		}
	})
}
