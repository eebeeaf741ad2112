// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"archive/zip"
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// times repeats a text without storing it n times.
func times(n int, text string) io.Reader {
	return io.LimitReader(&endless{text: text}, int64(n)*int64(len(text)))
}

type endless struct {
	text string
	at   int
}

// Read implements io.Reader.
func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		k := copy(p[n:], e.text[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.text)
	}
	return n, nil
}

// numbered repeats a text with the repetition's number in it.
func numbered(n int, text string) io.Reader {
	r, w := io.Pipe()
	go func() {
		b := bufio.NewWriter(w)
		for i := range n {
			_, _ = fmt.Fprintf(b, text, i)
		}
		_ = b.Flush()
		_ = w.Close()
	}()
	return r
}

// parts concatenates texts and readers.
func parts(all ...any) io.Reader {
	var readers []io.Reader
	for _, one := range all {
		switch one := one.(type) {
		case string:
			readers = append(readers, strings.NewReader(one))
		case io.Reader:
			readers = append(readers, one)
		}
	}
	return io.MultiReader(readers...)
}

// bomb is a ZIP file that grows a thousandfold, in base64.
func bomb(t *testing.T) string {
	t.Helper()
	var file bytes.Buffer
	z := zip.NewWriter(&file)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
	w, err := z.Create("zeros")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, times(100<<20, "\x00")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	text := base64.StdEncoding.EncodeToString(file.Bytes())
	var lines strings.Builder
	for ; len(text) > 76; text = text[76:] {
		lines.WriteString(text[:76] + "\r\n")
	}
	return lines.String() + text + "\r\n"
}

// heap watches the heap in use until stop is called. stop returns its growth.
func heap() (stop func() int64) {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	start, peak := sample[0].Value.Uint64(), uint64(0)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			metrics.Read(sample)
			peak = max(peak, sample[0].Value.Uint64())
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	return func() int64 {
		close(done)
		watching.Wait()
		return int64(peak) - int64(start)
	}
}

// pour sends octets to the MX as a message for alice, and returns the final reply.
func pour(t *testing.T, s *servertest.Server, body io.Reader) string {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr("smtp"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // only a client
	in := bufio.NewReader(c)
	reply := func() string {
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if len(line) > 3 && line[3] == ' ' {
				return strings.TrimSpace(line)
			}
		}
	}
	reply()
	for _, command := range []string{"EHLO mx.good.com", "MAIL FROM:<a@good.com> BODY=8BITMIME", "RCPT TO:<alice@demo.test>", "DATA"} {
		_, _ = io.WriteString(c, command+"\r\n")
		if said := reply(); said[0] > '3' {
			t.Fatalf("%s: %s", command, said)
		}
	}
	w := bufio.NewWriterSize(c, 64<<10)
	_, _ = io.Copy(w, body) // an error shows in the reply
	_, _ = w.WriteString("\r\n.\r\n")
	_ = w.Flush()
	return reply()
}

// Any input to the MX is filed, or rejected with a code that says why, in bounded memory. Filed
// messages can be read.
func TestBadInput(t *testing.T) {
	o := newOutsider(t)
	const head, mixed = "From: a@good.com\r\nTo: alice@demo.test\r\nSubject: bad\r\n", "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=b\r\n\r\n"
	zipped := bomb(t)
	nested := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
		}
		return b.String() + "Content-Type: text/plain\r\n\r\ndeep\r\n"
	}
	for _, tt := range []struct {
		name string
		body io.Reader
		want string // prefix of the rejection; "" means filed
	}{
		{"a million fields", parts(head, times(1_000_000, "X: y\r\n"), "\r\nx\r\n"), "552 5.3.4"},
		{"ten thousand fields", parts(head, times(10_000, "X: y\r\n"), "\r\nx\r\n"), ""},
		{"a field of 30 MB", parts(head, "X: ", times(30<<20, "y"), "\r\n\r\nx\r\n"), "552 5.3.4"},
		{"a field of a million lines", parts(head, "X: y\r\n", times(1_000_000, " y\r\n"), "\r\nx\r\n"), "552 5.3.4"},
		{"10,000 parts", parts(head, mixed, times(10_000, "--b\r\n\r\nx\r\n"), "--b--\r\n"), ""},
		{"a million parts", parts(head, mixed, times(1_000_000, "--b\r\n\r\n"), "--b--\r\n"), ""},
		{"1,000 levels", parts(head, nested(1000)), ""},
		{"1,000 messages in messages", parts(head, times(1000, "Content-Type: message/rfc822\r\n\r\n"), "Subject: x\r\n\r\nx\r\n"), ""},
		{"an endless line", parts(head, "\r\n", times(30<<20, "x")), ""},
		{"endless lines of blanks", parts(head, "\r\n", times(10<<20, " "), "\r\n", times(10<<20, "\t"), "x\r\n"), ""},
		{"a million empty lines", parts(head, "\r\n", times(1_000_000, "\r\n"), "x\r\n"), ""},
		{"NULs", parts(head, "X-Nul: a\x00b\r\n\x00: y\r\n\r\n", times(1<<20, "\x00"), "\r\n"), "554 5.6.0"},
		{"no header", parts("\r\nSubject: bad\r\n"), "550 5.7.1"},
		{"nothing", parts(""), "550 5.7.1"},
		{"bad charsets", parts(head, "Subject: =?utf-77?B?gIGC?= =?iso-2022-jp?B?GyRCJCIbKEI=?= =?utf-8?Q?=FF=FE?= =?x?Z?a?= =?\r\nX-Raw: \xff\xfe\x80\r\nContent-Type: text/plain; charset=\"\xff\"; charset*=utf-16'x'%ff\r\n\r\n\xff\xfe\x00\xd8\r\n"), ""},
		{"an encoded word without end", parts(head, "X: =?utf-8?Q?", times(100_000, "=41"), "\r\n\r\nx\r\n"), ""},
		{"folding tricks", parts("From:\r\n \r\n\t\r\n a@good.com\r\nSubject: bad\r\n \r\nTo\t :\r\n\talice@demo.test\r\n : x\r\nX\r\n: y\r\n\r\nx\r\n"), ""},
		{"begins with a fold", parts(" folded\r\n", head, "\r\nx\r\n"), "554 5.6.0"},
		{"an mbox line", parts("From a@good.com Thu Jan  1 00:00:00 2026\r\n", head, "\r\nx\r\n"), ""},
		{"two From, one strict", parts("From: a@bank.com\r\n", head, "\r\nx\r\n"), "550 5.7.1"},
		{"two From, folded apart", parts("From:\r\n a@bank.com\r\n", head, "\r\nx\r\n"), "550 5.7.1"},
		{"two From, one with a blank", parts("From : a@bank.com\r\n", head, "\r\nx\r\n"), "550 5.7.1"},
		{"two From in other cases", parts("FROM: a@bank.com\r\n", head, "\r\nx\r\n"), "550 5.7.1"},
		{"100,000 authors", parts("From: ", times(40_000, "a@good.com,\r\n "), "b@good.com\r\nSubject: bad\r\n\r\nx\r\n"), "550 5.7.1"},
		{"100,000 recipients", parts(head, "Cc: ", times(50_000, "a@b.test,\r\n "), "b@b.test\r\n\r\nx\r\n"), ""},
		{"a ZIP bomb", parts(head, mixed, "--b\r\nContent-Type: application/zip; name=x.zip\r\nContent-Transfer-Encoding: base64\r\n\r\n", zipped, "--b--\r\n"), ""},
		{"20 MB of no base64", parts(head, "Content-Transfer-Encoding: base64\r\n\r\n", times(300_000, strings.Repeat("=!~-", 18)+"\r\n")), ""},
		{"20 MB of soft breaks", parts(head, "Content-Transfer-Encoding: quoted-printable\r\n\r\n", times(5_000_000, "=\r\n")), ""},
		{"nested html", parts(head, "Content-Type: text/html\r\n\r\n", times(200_000, "<div><table><tr><td>"), "x\r\n"), ""},
		{"a thousand parameters", parts(head, "Content-Type: text/plain", numbered(1000, ";\r\n p*%d*=x"), "\r\n\r\nx\r\n"), ""},
		{"2,000 signatures", parts(numbered(2_000, "DKIM-Signature: v=1; a=rsa-sha256; d=x%d.com; s=s; h=from; bh=AAAA; b=AAAA\r\n"), head, "\r\nx\r\n"), ""},
		{"2,000 seals", parts(numbered(2_000, "ARC-Seal: i=%d; a=rsa-sha256; cv=pass; d=x.com; s=s; b=AAAA\r\n"), head, "\r\nx\r\n"), ""},
		{"99 hops", parts(times(99, "Received: from x by y\r\n"), head, "\r\nx\r\n"), ""},
		{"100 hops", parts(times(100, "Received: from x by y\r\n"), head, "\r\nx\r\n"), "554 5.4.6"},
		{"60 MB", parts(head, "\r\n", times(60<<20/64, strings.Repeat("x", 62)+"\r\n")), "552 5.3.4"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := len(o.arrived())
			grown := heap()
			said := pour(t, o.s, tt.body)
			peak := grown()
			t.Logf("%s; the heap grew by %d MB", said, peak>>20)
			if peak > 100<<20 {
				t.Error("that is too much")
			}
			if want := tt.want; want == "" && !strings.HasPrefix(said, "250 2.") || !strings.HasPrefix(said, want) {
				t.Errorf("want %q", want)
			}
			after := o.arrived()
			if filed := len(after) - before; filed != 1 && tt.want == "" || filed != 0 && tt.want != "" {
				t.Errorf("%d messages were filed", filed)
			}
			if tt.want != "" || len(after) == 0 {
				return
			}
			grown = heap()
			path := "/mailboxes/" + o.s.Dev.Mailboxes[0].ID.String() + "/messages/" + after[0]
			if a := o.s.API("GET", path, nil); a.Status != 200 {
				t.Errorf("it is shown as %d %.300s", a.Status, a.Body)
			}
			if peak := grown(); peak > 150<<20 {
				t.Errorf("to show it the heap grew by %d MB", peak>>20)
			}
		})
	}
}

// arrived lists alice's messages, newest first.
func (o *outsider) arrived() (ids []string) {
	o.t.Helper()
	var list struct{ Data []struct{ ID string } }
	o.s.API("GET", "/mailboxes/"+o.s.Dev.Mailboxes[0].ID.String()+"/messages?limit=100", nil).Decode(o.t, &list)
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	return ids
}
