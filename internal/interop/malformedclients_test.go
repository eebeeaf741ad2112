// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"bufio"
	"fmt"
	"net"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/emersion/go-imap/v2"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// A strict RFC 3501 parser, and imapflow's, parse the responses about malformed mail.
func TestMalformedClients(t *testing.T) {
	s := servertest.Start(t)
	all := corpus()
	stock(t, login(t, s, 0, nil), "Odd", all)
	texts := t.TempDir()
	for i, x := range all {
		if err := os.WriteFile(filepath.Join(texts, fmt.Sprintf("%03d %s", i+1, strings.ReplaceAll(x.name, "/", "_"))), []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"DEV=" + filepath.Join(s.Config.Data, "dev.json"), "FOLDER=Odd", "CORPUS=" + texts}
	t.Run("by the grammar", func(t *testing.T) {
		newProgram(t, env...).must("", "/usr/bin/python3", absolute(t, "testdata/structures.py"))
	})
	t.Run("imapflow", func(t *testing.T) {
		env := append(env, "NODE_PATH="+npmPackages(t, "testdata/imapflow"))
		newProgram(t, env...).must("", "node", absolute(t, "testdata/imapflow/malformed.js"))
	})
}

// Malformed mail from outside is rejected if the transport can't carry it. Otherwise it is filed as
// it was sent, below the server's header fields. The server corrects it only where readers would
// disagree on where its body begins.
func TestMalformedFromOutside(t *testing.T) {
	s := servertest.Start(t)
	c := login(t, s, 1, nil)
	next := map[string]imap.UID{}
	for _, folder := range []string{"INBOX", "Junk"} {
		next[folder] = 1
	}
	mended := map[string][2]string{
		"a space on the empty line": {"is this the body?", "\r\nis this the body?"}, "byte order mark": {"\ufeff", ""},
		"8-bit in header": {"X-\xfc: y", "\r\nX-\xfc: y"},
	}
	for _, x := range corpus() {
		t.Run(x.name, func(t *testing.T) {
			text := x.text
			if !strings.HasSuffix(text, "\r\n") {
				text += "\r\n"
			}
			bare := strings.ContainsAny(strings.ReplaceAll(text, "\r\n", ""), "\r\n")
			code, words := fromOutside(t, s, text)
			switch {
			case bare && code >= 550, x.name == "a header line of 1 MB" && code == 552, x.name == "it begins with a space" && code == 554, code == 554 && words == "5.6.0 The message's header has a NUL.",
				code == 550 && strings.HasPrefix(words, "5.7.1 The author of this message can't be told: "): // no From field, or several
				return
			case bare || code != 250:
				t.Fatalf("%d %s", code, words)
			}
			for folder, uid := range next {
				st, err := c.Status(folder, &imap.StatusOptions{UIDNext: true}).Wait()
				if err != nil {
					t.Fatal(err)
				}
				if st.UIDNext == uid {
					continue
				}
				next[folder] = st.UIDNext
				if _, err := c.Select(folder, nil).Wait(); err != nil {
					t.Fatal(err)
				}
				whole := &imap.FetchItemBodySection{Peek: true}
				m := fetchOne(t, c, uid, &imap.FetchOptions{Envelope: true, BodyStructure: &imap.FetchItemBodyStructure{Extended: true}, BodySection: []*imap.FetchItemBodySection{whole}})
				if got := string(m.FindBodySection(whole)); st.UIDNext != uid+1 || !strings.HasSuffix(got, "\r\n"+withoutNUL(strings.Replace(text, mended[x.name][0], mended[x.name][1], 1))) {
					t.Errorf("it was filed as %.500q", got)
				}
				return
			}
			t.Error("it was filed nowhere")
		})
	}
}

// fromOutside sends a message to the MX and returns the response.
func fromOutside(t *testing.T, s *servertest.Server, text string) (code int, words string) {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close() //nolint:errcheck // QUIT is not waited for
	r := textproto.NewReader(bufio.NewReader(nc))
	said := func(want int) {
		t.Helper()
		if _, words, err = r.ReadResponse(want); err != nil {
			t.Fatal(err)
		}
	}
	said(220)
	for _, line := range []string{"EHLO client.example.net", "MAIL FROM:<ann@example.net> BODY=8BITMIME", "RCPT TO:<bob@demo.test>", "DATA"} {
		if _, err := fmt.Fprintf(nc, "%s\r\n", line); err != nil {
			t.Fatal(err)
		}
		want := 250
		if line == "DATA" {
			want = 354
		}
		said(want)
	}
	stuffed := strings.ReplaceAll("\r\n"+text, "\r\n.", "\r\n..")[2:]
	if _, err := fmt.Fprintf(nc, "%s.\r\n", stuffed); err != nil {
		t.Fatal(err)
	}
	code, words, err = r.ReadResponse(0)
	if err != nil && code == 0 {
		t.Fatal(err)
	}
	return code, words
}
